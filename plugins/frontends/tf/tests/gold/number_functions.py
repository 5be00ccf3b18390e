"""Less common numeric functions: quantization, gradients, bits, decompositions, waves, image projections."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from registry import Call, R, f, model, spec


@model
def quantization_aware():
    k = tf.Variable(f(3, 3, 4, 6))
    w = tf.Variable(f(6, 5))

    def call(x):
        x = tf.quantization.fake_quant_with_min_max_vars(x, -3.0, 3.1)
        q = tf.quantization.fake_quant_with_min_max_vars_per_channel(
            k, tf.reduce_min(k, [0, 1, 2]), tf.reduce_max(k, [0, 1, 2]), narrow_range=True
        )
        x = tf.nn.relu6(tf.nn.conv2d(x, q, 2, "SAME"))
        x = tf.quantization.fake_quant_with_min_max_args(x, 0.0, 6.0)
        x = tf.reduce_mean(x, [1, 2])
        y = tf.matmul(x, tf.quantization.quantize_and_dequantize_v2(w, -2.0, 2.0, range_given=True))
        return {
            "y": y,
            "q": tf.quantization.dequantize(*tf.quantization.quantize(y, -8.0, 8.0, tf.quint8)),
            "z": tf.quantization.quantize_and_dequantize_v2(y, 0.0, 0.0, num_bits=6),
        }

    return Call(call, spec(None, 8, 8, 4, name="x"), held=[k, w]), [[f(2, 8, 8, 4)]]


@model
def saliency():
    k = tf.Variable(f(3, 3, 3, 4))
    w = tf.Variable(f(4, 5))

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, k, 1, "SAME"), [0.1, 0.2, -0.1, 0.0]))
            y = tf.nn.elu(y * tf.nn.sigmoid(y))
            z = tf.tanh(tf.reduce_mean(y, [1, 2])) @ w
            p = tf.reduce_max(tf.nn.softmax(z), 1)
        return {"grad": tape.gradient(p, x), "p": p}

    return Call(call, spec(None, 6, 6, 3, name="x"), held=[k, w]), [[f(2, 6, 6, 3)]]


@model
def custom_gradients():
    w = tf.Variable(f(4, 4))

    @tf.custom_gradient
    def clipped(x):
        return tf.clip_by_value(x, -1.0, 1.0), lambda dy: dy

    def call(x):
        tf.debugging.assert_rank(x, 2)
        tf.debugging.assert_less(tf.reduce_max(x), 100.0)
        y = tf.recompute_grad(lambda v: tf.nn.gelu(v @ w))(clipped(x))
        y = tf.stop_gradient(tf.nn.silu(y)) + tf.nn.crelu(y)[:, :4]
        y = tf.ensure_shape(y, [None, 4])
        y = tf.debugging.check_numerics(y, "bad")
        y = tf.grad_pass_through(tf.round)(y) + y
        tf.print("ignored", tf.shape(y), output_stream="file:///dev/null")
        with tf.control_dependencies([tf.debugging.assert_non_negative(tf.abs(y))]):
            return {
                "y": tf.identity(y),
                "g": y,
                "placeholder": tf.raw_ops.PlaceholderWithDefault(input=y * 2, shape=[None, 4]),
            }

    return Call(call, spec(None, 4, name="x"), held=w), [[f(3, 4)]]


@model
def batch_statistics():
    g = tf.Variable(np.abs(f(4)))
    b = tf.Variable(f(4))
    m = tf.Variable(f(4))
    v = tf.Variable(np.abs(f(4)))

    def call(x):
        y, mean, var = tf.compat.v1.nn.fused_batch_norm(x, g, b, epsilon=1e-3)
        z, *_ = tf.compat.v1.nn.fused_batch_norm(x, g, b, m, v, is_training=False)
        m.assign(0.9 * m + 0.1 * mean)
        return {
            "y": y,
            "z": z,
            "mean": mean,
            "var": var,
            "moving": m.read_value(),
            "bn": tf.nn.batch_normalization(x, mean, var, b, g, 1e-3),
            "lrn": tf.nn.local_response_normalization(x, 2, 1.0, 0.5, 0.6),
            "l2": tf.nn.l2_loss(x),
            "in": tf.nn.weighted_moments(x, [1, 2], tf.abs(x))[1],
        }

    return Call(call, spec(2, 4, 4, 4, name="x"), held=[g, b, m, v]), [[f(2, 4, 4, 4)], [f(2, 4, 4, 4)]]


@model
def bits():
    def call(x, y):
        return {
            "and": tf.bitwise.bitwise_and(x, y),
            "inv": tf.bitwise.invert(x),
            "l": tf.bitwise.left_shift(x, 3),
            "cast": tf.cast(x, tf.uint8),
            "bc": tf.bitcast(x, tf.float32),
            "floor": x // y,
            "mod": x % y,
            "tdiv": tf.truncatediv(x, y),
            "u": tf.cast(tf.cast(x, tf.uint16) + 5, tf.int32),
            "i64": tf.cast(x, tf.int64) * 3,
            "d": tf.cast(x, tf.float64) / 7,
            "any": tf.reduce_any(x > y),
            "cum": tf.cumsum(x, exclusive=True),
            "cp": tf.math.cumprod(y, reverse=True),
            "sat": tf.saturate_cast(x * 100, tf.int8),
            "uc": tf.math.unsorted_segment_prod(x, [0, 1, 0, 1], 2),
            "ld": tf.raw_ops.ListDiff(x=x, y=y)[0],
            "fill": tf.eye(3, batch_shape=[2]),
            "nz": tf.math.count_nonzero(x),
            "conf": tf.math.confusion_matrix([1, 2, 0], [0, 2, 0]),
        }

    return Call(call, spec(4, dtype=tf.int32, name="x"), spec(4, dtype=tf.int32, name="y")), [
        [np.array([7, -3, 1000, 5], np.int32), np.array([2, -2, 3, 5], np.int32)]
    ]


@model
def decompositions():
    def call(x):
        s = x @ tf.transpose(x) + 4 * tf.eye(4)
        q, r = tf.linalg.qr(x[:, :3])
        e, v = tf.linalg.eigh(s)
        return {
            "qr": q @ r,
            "rec": v @ tf.linalg.diag(e) @ tf.transpose(v),
            "pinv": tf.linalg.pinv(x),
            "lstsq": tf.linalg.lstsq(x, x[:, :2], fast=True),
            "slog": tf.linalg.slogdet(s)[1],
            "adj": tf.linalg.adjoint(x),
            "chs": tf.linalg.cholesky_solve(tf.linalg.cholesky(s), x),
            "matrix": tf.linalg.matrix_rank(x),
            "norm": tf.linalg.norm(x, ord=1),
            "hh": tf.linalg.normalize(x, axis=1)[0],
            "kron": tf.linalg.LinearOperatorKronecker(
                [tf.linalg.LinearOperatorFullMatrix(s[:2, :2]), tf.linalg.LinearOperatorFullMatrix(s[2:, 2:])]
            ).to_dense(),
            "svd": tf.linalg.svd(s)[0],
        }

    return Call(call, spec(4, 6, name="x")), [[f(4, 6)]]


@model
def wave_functions():
    def call(x):
        c = tf.complex(x, tf.reverse(x, [1]))
        return {
            "mdct": tf.signal.mdct(x, 16),
            "imdct": tf.signal.inverse_mdct(tf.signal.mdct(x, 16)),
            "f3": tf.math.imag(tf.signal.fft3d(tf.reshape(c, (2, 4, 4, 4)))),
            "r2": tf.math.real(tf.signal.rfft2d(tf.reshape(x, (2, 8, 8)))),
            "ir": tf.signal.irfft(tf.signal.rfft(x, [32]), [32]),
            "dct3": tf.signal.dct(x, 3),
            "idct": tf.signal.idct(x, norm="ortho"),
            "shift": tf.math.abs(tf.signal.fftshift(tf.signal.ifft(c))),
            "k": tf.signal.kaiser_window(8),
            "h": tf.signal.hann_window(8),
            "v": tf.signal.vorbis_window(8),
            "polar": tf.math.real(tf.exp(tf.complex(0.0 * x, x))),
            "cm": tf.math.real(tf.matmul(c, c, adjoint_b=True)),
            "cabs": tf.abs(tf.reduce_sum(c * c, 1)),
        }

    return Call(call, spec(2, 64, name="x")), [[f(2, 64)]]


@model
def image_functions():
    def call(x, b):
        return {
            "trans": tf.raw_ops.ImageProjectiveTransformV3(
                images=x,
                transforms=tf.constant([[0.9, 0.1, 1.0, -0.1, 1.1, 0.5, 0.0, 0.0]]),
                output_shape=[8, 8],
                fill_value=0.5,
                interpolation="BILINEAR",
                fill_mode="REFLECT",
            ),
            "near": tf.raw_ops.ImageProjectiveTransformV2(
                images=x,
                transforms=tf.constant([[1.0, 0.2, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]]),
                output_shape=[8, 10],
                interpolation="NEAREST",
            ),
            "erode": tf.nn.erosion2d(x, tf.zeros((3, 3, 3)), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]),
            "dilate": tf.nn.dilation2d(x, tf.zeros((2, 2, 3)), [1, 1, 1, 1], "VALID", "NHWC", [1, 1, 1, 1]),
            "contrast": tf.image.adjust_contrast(x, 1.3),
            "u8": tf.image.convert_image_dtype(tf.image.convert_image_dtype(x, tf.uint8), tf.float32),
            "yuv": tf.image.rgb_to_yuv(x),
            "cropbox": tf.image.crop_to_bounding_box(x, 1, 2, 4, 5),
            "s2d": tf.nn.space_to_depth(x, 2),
            "pool": tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")[1],
            "frac": tf.nn.pool(x, [3, 3], "AVG", dilations=[2, 2], padding="VALID"),
            "atrous": tf.nn.atrous_conv2d(x, tf.ones((3, 3, 3, 2)), 2, "SAME"),
            "sep": tf.nn.separable_conv2d(x, tf.ones((3, 3, 3, 2)), tf.ones((1, 1, 6, 4)), [1, 2, 2, 1], "SAME"),
            "ms": tf.image.ssim_multiscale(
                tf.image.resize(x, (48, 48)),
                tf.image.resize(x, (48, 48)) * 0.9,
                1.0,
                power_factors=(0.5, 0.5),
                filter_size=3,
            ),
            "gauss": tf.image.resize(x, (5, 7), "gaussian"),
            "mitchell": tf.image.resize(x, (12, 7), "mitchellcubic", antialias=True),
            "legacy": tf.compat.v1.image.resize_bilinear(x, (5, 6), align_corners=True),
        }

    x = R.uniform(0, 1, (2, 8, 10, 3)).astype(np.float32)
    return Call(call, spec(2, 8, 10, 3, name="x"), spec(2, 4, name="b")), [
        [x, np.array([[0.1, 0.2, 0.6, 0.7], [0.3, 0.3, 0.9, 0.8]], np.float32)]
    ]
