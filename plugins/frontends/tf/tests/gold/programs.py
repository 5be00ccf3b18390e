"""Programs written around networks: decoders with hand-written loops, fake quantization, routing, strings, nested control
flow.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from registry import Call, R, f, model, spec


@model
def greedy_decoder():
    """A recurrent cell whose tokens are collected until one ends the sentence."""
    table, w, u, v = (tf.constant(f(*d)) for d in ((11, 6), (6, 8), (8, 8), (8, 11)))

    def decode(start, state):
        tokens = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None])
        token, k = start, 0
        done = tf.zeros_like(start, tf.bool)
        while k < 9 and not tf.reduce_all(done):
            state = tf.tanh(tf.gather(table, token) @ w + state @ u)
            token = tf.where(done, 0, tf.argmax(state @ v, -1, tf.int32))
            done = done | (token == 3)
            tokens = tokens.write(k, token)
            k += 1
        return {"tokens": tf.transpose(tokens.stack()), "state": state, "count": k}

    given = [[np.int32([1, 5]), f(2, 8)], [np.int32([3, 7, 9]), f(3, 8)]]
    return Call(decode, spec(None, dtype=tf.int32, name="start"), spec(None, 8, name="state")), given


@model
def beam_search():
    w = tf.constant(f(7, 7))

    def search(first):
        scores = tf.nn.log_softmax(first @ w)
        best, places = tf.math.top_k(scores, 3)
        paths = places[..., None]
        for _ in tf.range(3):
            tf.autograph.experimental.set_loop_options(shape_invariants=[(paths, tf.TensorShape([None, 3, None]))])
            step = tf.nn.log_softmax(tf.gather(w, paths[..., -1]))
            total = tf.reshape(best[..., None] + step, [tf.shape(first)[0], -1])
            best, at = tf.math.top_k(total, 3)
            paths = tf.concat([tf.gather(paths, at // 7, batch_dims=1), (at % 7)[..., None]], -1)
        return {"paths": paths, "scores": best}

    return Call(search, spec(None, 7, name="first")), [[f(2, 7)], [f(1, 7)]]


@model
def nested_control():
    def run(x, n):
        total, rounds = tf.zeros_like(x), 0
        for i in tf.range(n):
            if i % 3 == 1:
                continue
            y = x
            while tf.reduce_max(tf.abs(y)) > 1:
                y = y / 2 if tf.reduce_sum(y) > 0 else y / 3
                rounds += 1
            kinds = [lambda: y * 2, lambda: tf.sin(y), lambda: -y]  # noqa: B023
            total += tf.switch_case(i % 4, kinds, default=lambda: tf.square(y))  # noqa: B023
            if rounds > 12:
                break
        return {"total": total, "rounds": rounds}

    return Call(run, spec(None, name="x"), spec(dtype=tf.int32, name="n")), [
        [f(4) * 9, np.int32(5)], [f(3) * 90, np.int32(9)], [f(2), np.int32(0)],
    ]  # fmt: skip


@model
def fake_quantization():
    low, high = tf.constant([-1.0, -0.1, -6.0, 0.0]), tf.constant([1.5, 0.2, 6.0, 3.0])

    def run(x):
        q = tf.quantization
        return {
            "args": q.fake_quant_with_min_max_args(x, -0.9, 2.3),
            "four": q.fake_quant_with_min_max_args(x, -2.0, 2.0, num_bits=4, narrow_range=True),
            "vars": q.fake_quant_with_min_max_vars(x, tf.reduce_min(x), tf.reduce_max(x)),
            "channel": q.fake_quant_with_min_max_vars_per_channel(x, low, high, num_bits=6),
            "one": q.fake_quant_with_min_max_vars(x, 0.3, 5.0),
            "both": q.quantize_and_dequantize_v2(x, -1.2, 2.0, signed_input=True, num_bits=8, range_given=True),
            "axis": q.quantize_and_dequantize_v2(x, low, high, range_given=False, axis=1, narrow_range=True),
        }

    return Call(run, spec(None, 4, name="x")), [[f(5, 4) * 2], [f(1, 4)]]


@model
def routed_experts():
    gate, experts = tf.constant(f(6, 4)), tf.constant(f(4, 6, 5))

    def run(x):
        share, chosen = tf.math.top_k(tf.nn.softmax(x @ gate), 2)
        flat, order = tf.reshape(chosen, [-1]), tf.argsort(tf.reshape(chosen, [-1]), stable=True)
        rows = tf.gather(tf.repeat(x, 2, 0), order)
        sizes = tf.math.bincount(flat, minlength=4, maxlength=4)
        parts = tf.split(rows, sizes, num=4)
        made = tf.concat([part @ experts[k] for k, part in enumerate(parts)], 0)
        back = tf.scatter_nd(order[:, None], made, [tf.shape(flat)[0], 5])
        out = tf.reduce_sum(tf.reshape(back, [-1, 2, 5]) * share[..., None], 1)
        return {"out": out, "sizes": sizes, "kinds": tf.unique(flat).y}

    return Call(run, spec(None, 6, name="x")), [[f(7, 6)], [f(1, 6)]]


@model
def words_by_table():
    keys = tf.constant(["the", "cat", "sat", "mat", "ä"])
    table = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(5, dtype=tf.int64)), 3)
    vectors = tf.constant(f(8, 3))

    def run(text):
        words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(text, "utf-8"), "[.,!]", ""))
        ids = table.lookup(words)
        found = tf.gather(vectors, ids)
        return {
            "ids": ids.to_tensor(-1, shape=[None, 6]),
            "mean": tf.reduce_mean(found, 1),
            "lengths": words.row_lengths(),
            "longest": tf.reduce_max(tf.strings.length(words, "UTF8_CHAR"), 1),
            "joined": tf.strings.reduce_join(words[:, ::-1], 1, separator="-"),
        }

    given = [
        [np.array([b"The cat sat, on the mat.", b"A dog!", "Ä cat".encode()])],
        [np.array([b"the the the the the the the the"])],
    ]
    return Call(run, spec(None, dtype=tf.string, name="text"), held=table), given


@model
def maps_and_folds():
    def run(x, lengths):
        pair = tf.map_fn(
            lambda e: (tf.reduce_sum(e[0][: e[1]]), e[1] * 2), (x, lengths), fn_output_signature=(tf.float32, tf.int32)
        )
        return {
            "sums": pair[0],
            "twice": pair[1],
            "scan": tf.scan(lambda a, e: a * 0.5 + e, x, initializer=tf.zeros_like(x[0])),
            "back": tf.scan(lambda a, e: tf.maximum(a, e), x, reverse=True),
            "fold": tf.foldr(lambda a, e: a - 2 * e, x),
            "vector": tf.vectorized_map(lambda e: tf.tensordot(e, e, 0), x),
        }

    return Call(run, spec(None, 5, name="x"), spec(None, dtype=tf.int32, name="lengths")), [
        [f(3, 5), np.int32([0, 3, 5])], [f(1, 5), np.int32([2])],
    ]  # fmt: skip


@model
def rare_layer_options():
    a = L.Input((12, 10, 6), name="x")
    b = L.Input((15, 4), name="s")
    o = [
        L.Conv2D(8, 3, groups=2, dilation_rate=(2, 1), padding="same", activation="mish")(a),
        L.Conv2DTranspose(4, (3, 2), strides=(2, 3), padding="valid", output_padding=(1, 2))(a),
        L.SeparableConv2D(5, (3, 5), depth_multiplier=2, strides=2, padding="same", activation="hard_silu")(a),
        L.DepthwiseConv2D(3, depth_multiplier=3, dilation_rate=2, activation="glu")(a),
        L.Conv1D(6, 4, padding="causal", dilation_rate=3)(b),
        L.Conv1DTranspose(3, 4, strides=3, padding="same")(b),
        L.GroupNormalization(3, epsilon=0.1)(a),
        L.UnitNormalization(axis=[1, 2])(a),
        L.Resizing(7, 20, interpolation="lanczos3", antialias=True)(a),
        L.Resizing(7, 9, interpolation="bilinear", pad_to_aspect_ratio=True)(a),
        L.MultiHeadAttention(3, 5, value_dim=2, output_shape=7)(b, b, use_causal_mask=True),
        L.GroupQueryAttention(4, 4, 2)(b, b, use_causal_mask=True),
        L.MaxPooling2D((3, 2), strides=(1, 3), padding="same")(a),
        L.AveragePooling1D(4, strides=3, padding="same")(b),
        L.Dot(axes=(1, 1), normalize=True)([b, b]),
    ]
    return keras.Model([a, b], o), [[f(2, 12, 10, 6), f(2, 15, 4)], [f(1, 12, 10, 6), f(1, 15, 4)]]


@model
def pictures_and_patches():
    def run(x, boxes):
        i = tf.image
        return {
            "area": i.resize(x, [5, 9], method="area"),
            "gauss": i.resize(x, [5, 9], method="gaussian", antialias=True),
            "mitchell": i.resize(x, [17, 5], method="mitchellcubic"),
            "patches": i.extract_patches(x, [1, 3, 2, 1], [1, 2, 3, 1], [1, 2, 1, 1], "SAME"),
            "crops": i.crop_and_resize(x, boxes, tf.zeros(tf.shape(boxes)[0], tf.int32), [4, 3], "nearest", 7.0),
            "sobel": i.sobel_edges(x),
            "standard": i.per_image_standardization(x),
            "hue": i.adjust_hue(i.adjust_saturation(tf.sigmoid(x), 1.7), -0.2),
            "gamma": i.adjust_gamma(tf.sigmoid(x), 0.6, 2.0),
            "total": i.total_variation(x),
            "ssim": i.ssim(tf.sigmoid(x), tf.sigmoid(x[::-1]), 1.0, filter_size=5),
            "spread": tf.nn.space_to_depth(x[:, :12, :10], 2),
            "fold": tf.nn.dilation2d(
                x, tf.constant(np.zeros((3, 3, 3), np.float32)), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]
            ),
        }

    boxes = np.float32([[0, 0, 1, 1], [0.2, 0.6, 0.9, 0.1], [-0.3, 0.1, 1.2, 0.7]])
    return Call(run, spec(None, 13, 11, 3, name="x"), spec(None, 4, name="boxes")), [[f(2, 13, 11, 3), boxes]]


@model
def integers_of_many_kinds():
    def run(a, b, c):
        return {
            "floor": a // b, "mod": a % b, "trunc": tf.truncatediv(a, b), "rest": tf.truncatemod(a, b),
            "shift": tf.bitwise.left_shift(c, tf.constant(3, tf.uint8)), "right": tf.bitwise.right_shift(a, tf.constant(2, tf.int64)),
            "flip": tf.bitwise.invert(c), "count": tf.raw_ops.PopulationCount(x=c), "cast": tf.cast(a, tf.int8),
            "clip": tf.clip_by_value(a, -3, 4), "sum": tf.cumsum(a, exclusive=True, reverse=True), "prod": tf.math.cumprod(b),
            "edges": tf.searchsorted(tf.sort(a), b), "bins": tf.histogram_fixed_width(tf.cast(a, tf.float32), [-9.0, 9.0], 5),
            "sorted": tf.sort(a, direction="DESCENDING"), "where": tf.where(a > b)[:, 0],
        }  # fmt: skip

    return Call(
        run, spec(6, dtype=tf.int64, name="a"), spec(6, dtype=tf.int64, name="b"), spec(None, dtype=tf.uint8, name="c")
    ), [[R.integers(-9, 9, 6), np.int64([-4, 3, 2, -1, 5, 7]), R.integers(0, 256, 4).astype(np.uint8)]]
