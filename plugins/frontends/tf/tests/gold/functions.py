"""Functions: images, ragged tensors, control flow, linear algebra, indexing, signals, strings, boxes, variables."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from registry import Call, R, f, model, spec


@model
def image_ops():
    def call(x):
        return {
            "hsv": tf.image.rgb_to_hsv(x), "back": tf.image.hsv_to_rgb(x), "gray": tf.image.rgb_to_grayscale(x),
            "yiq": tf.image.rgb_to_yiq(x), "hue": tf.image.adjust_hue(x, 0.2), "sat": tf.image.adjust_saturation(x, 1.7),
            "gamma": tf.image.adjust_gamma(x, 0.8), "bright": tf.image.adjust_brightness(x, 0.1),
            "rot": tf.image.rot90(x), "flip": tf.image.flip_up_down(x), "crop": tf.image.central_crop(x, 0.6),
            "pad": tf.image.resize_with_pad(x, 9, 7), "lanczos": tf.image.resize(x, (5, 9), "lanczos3", antialias=True),
            "area": tf.image.resize(x, (4, 3), "area"), "near": tf.image.resize(x, (13, 5), "nearest"),
            "patches": tf.image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"),
            "std": tf.image.per_image_standardization(x), "sobel": tf.image.sobel_edges(x), "tv": tf.image.total_variation(x),
            "ssim": tf.image.ssim(x, x * 0.9, 1.0, filter_size=3), "psnr": tf.image.psnr(x, x * 0.9, 1.0),
            "grad": tf.stack(tf.image.image_gradients(x)),
        }  # fmt: skip

    x = R.uniform(0, 1, (2, 8, 10, 3)).astype(np.float32)
    return Call(call, spec(2, 8, 10, 3, name="x")), [[x]]


@model
def ragged():
    def call(v, s):
        r = tf.RaggedTensor.from_row_lengths(v, s)
        words = tf.strings.split(tf.strings.as_string(tf.cast(v * 10, tf.int32)), "1")
        return {
            "dense": r.to_tensor(-1.0), "sum": tf.reduce_sum(r, 1), "max": tf.reduce_max(r, 1), "mean": tf.reduce_mean(r, 1),
            "twice": (r * 2 + 1).to_tensor(), "pick": tf.gather(r, [2, 0]).to_tensor(), "cut": r[:, :2].to_tensor(),
            "cat": tf.concat([r, r], 1).to_tensor(), "rows": r.value_rowids(), "lens": words.row_lengths(),
            "mask": tf.sequence_mask(s, 5), "sort": tf.sort(v), "range": tf.ragged.range(s).to_tensor(),
        }  # fmt: skip

    return Call(call, spec(None, name="v"), spec(None, dtype=tf.int64, name="s")), [
        [f(8), np.array([3, 1, 4], np.int64)], [f(5), np.array([2, 0, 3], np.int64)]
    ]  # fmt: skip


@model
def control():
    def call(x, n):
        total = tf.zeros_like(x)
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for k in tf.range(n):
            if tf.reduce_sum(x) > tf.cast(k, tf.float32):
                total += x * tf.cast(k, tf.float32)
            elif k % 2 == 0:
                total -= 1.0
                if tf.reduce_any(total > 30):
                    break
            else:
                continue
            array = array.write(array.size(), total)
        found = tf.map_fn(lambda r: tf.reduce_prod(r) + 1, x[None])
        scan = tf.scan(lambda a, b: a * 0.5 + b, x)
        fold = tf.foldl(lambda a, b: a + b * 2, x)
        switch = tf.switch_case(n % 3, [lambda: x + 1, lambda: x * 2, lambda: -x])
        return {"total": total, "stack": array.stack(), "map": found, "scan": scan, "fold": fold, "switch": switch}

    return Call(call, spec(4, name="x"), spec(dtype=tf.int32, name="n")), [
        [f(4) + 1, np.array(5, np.int32)], [f(4) - 1, np.array(4, np.int32)], [f(4), np.array(1, np.int32)]
    ]  # fmt: skip


@model
def linear_algebra():
    def call(x, y):
        s = tf.matmul(x, x, transpose_b=True) + 3 * tf.eye(4)
        return {
            "chol": tf.linalg.cholesky(s), "inv": tf.linalg.inv(s), "det": tf.linalg.det(s), "solve": tf.linalg.solve(s, y),
            "tri": tf.linalg.triangular_solve(tf.linalg.cholesky(s), y), "trace": tf.linalg.trace(s), "diag": tf.linalg.diag(y[:, 0]),
            "part": tf.linalg.diag_part(s), "band": tf.linalg.band_part(s, 1, 0), "norm": tf.norm(x, axis=1), "cross": tf.linalg.cross(y[:, :3], y[:, 1:4]),
            "eig": tf.linalg.eigvalsh(s), "logdet": tf.linalg.logdet(s), "set": tf.linalg.set_diag(s, y[:, 0]),
            "tensordot": tf.tensordot(x, y, [[0], [0]]), "exp": tf.linalg.expm(x[:, :4] * 0.1), "sv": tf.linalg.svd(x, compute_uv=False),
        }  # fmt: skip

    return Call(call, spec(4, 6, name="x"), spec(4, 5, name="y")), [[f(4, 6), f(4, 5)]]


@model
def indexing():
    def call(x, i):
        t = tf.tensor_scatter_nd_max(x, i[:, None], tf.ones((3, 5)))
        u, where, counts = tf.unique_with_counts(i)
        parts = tf.dynamic_partition(x, tf.constant([0, 1, 0, 1, 2, 0]), 3)
        return {
            "t": t, "u": u, "w": where, "c": counts, "parts0": parts[0], "parts2": parts[2],
            "seg": tf.math.segment_mean(x, [0, 0, 1, 1, 3, 3]), "useg": tf.math.unsorted_segment_max(x, [2, 0, 2, 1, 1, 0], 4),
            "bin": tf.math.bincount(i, minlength=7), "top": tf.math.top_k(x, 2).indices, "in": tf.math.in_top_k([1, 2, 3, 0, 4, 1], x, 2),
            "roll": tf.roll(x, [1, -2], [0, 1]), "hist": tf.histogram_fixed_width(x, [-1.0, 1.0], 5), "mask": tf.boolean_mask(x, x[:, 0] > 0),
            "invert": tf.math.invert_permutation([2, 0, 1]), "search": tf.searchsorted(tf.sort(x[0]), x[1]), "space": tf.space_to_batch(x[None, :, :4, None], [2, 2], [[0, 0], [0, 0]]),
            "onehot": tf.one_hot(i, 5, on_value=2.0, off_value=-1.0, axis=0), "nd": tf.gather_nd(x, [[0, 1], [2, 3]]), "meshgrid": tf.stack(tf.meshgrid(x[0], x[1])),
            "clip": tf.clip_by_norm(x, 1.5), "lin": tf.linspace(0.0, 1.0, 7), "argsort": tf.argsort(x, direction="DESCENDING"), "rev": tf.reverse_sequence(x, [1, 2, 3, 4, 5, 1], 1),
        }  # fmt: skip

    return Call(call, spec(6, 5, name="x"), spec(3, dtype=tf.int32, name="i")), [
        [f(6, 5), np.array([4, 1, 4], np.int32)]
    ]


@model
def special_functions():
    def call(x):
        p = tf.abs(x) + 0.5
        return {n: getattr(tf.math, n)(p) for n in (
            "lgamma", "digamma", "erf", "erfc", "expm1", "log1p", "bessel_i0", "bessel_i1e", "sinh", "cosh", "asinh", "atanh", "rsqrt",
            "reciprocal_no_nan", "softplus", "sigmoid", "rint")} | {
            "erfinv": tf.math.erfinv(tf.tanh(x)), "ndtri": tf.math.ndtri(tf.sigmoid(x)),
            "xlogy": tf.math.xlogy(x, p), "atan2": tf.math.atan2(x, p),
            "lse": tf.reduce_logsumexp(x, 1), "std": tf.math.reduce_std(x, 0), "var": tf.math.reduce_variance(x), "l2": tf.math.l2_normalize(x, 1), "nextafter": tf.math.nextafter(x, p),
            "moments": tf.stack(tf.nn.moments(x, [0])), "xent": tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x), x), "sxent": tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], x),
            "ctc": tf.nn.sigmoid_cross_entropy_with_logits(p, x), "cumlse": tf.math.cumulative_logsumexp(x, 1), "square": tf.math.square(x),
        }  # fmt: skip

    return Call(call, spec(3, 4, name="x")), [[f(3, 4)]]


@model
def signals():
    def call(x):
        s = tf.signal.stft(x, 16, 8)
        m = tf.tensordot(tf.abs(s), tf.signal.linear_to_mel_weight_matrix(6, 9, 8000.0, 100.0, 3800.0), 1)
        return {
            "mel": m, "mfcc": tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(m + 1e-3)), "back": tf.signal.inverse_stft(s, 16, 8),
            "angle": tf.math.angle(s + 1), "dct": tf.signal.dct(x), "frame": tf.signal.frame(x, 16, 4, pad_end=True), "fft2": tf.abs(tf.signal.fft2d(tf.cast(tf.reshape(x, (2, 8, 8)), tf.complex64))),
            "conj": tf.math.real(s * tf.math.conj(s)), "overlap": tf.signal.overlap_and_add(tf.signal.frame(x, 16, 8), 8),
        }  # fmt: skip

    return Call(call, spec(2, 64, name="x")), [[f(2, 64)]]


@model
def strings():
    def call(x):
        return {
            "low": tf.strings.lower(x), "len": tf.strings.length(x), "sub": tf.strings.substr(x, 1, 3), "join": tf.strings.join([x, x], "-"),
            "hash": tf.strings.to_hash_bucket_fast(x, 100), "num": tf.strings.to_number(tf.strings.regex_replace(x, r"\D+", "1")), "match": tf.strings.regex_full_match(x, ".*b.*"),
            "red": tf.strings.reduce_join(x, separator="|"), "strip": tf.strings.strip(x), "upper": tf.strings.upper(x), "eq": x == "ab 12",
            "code": tf.strings.unicode_decode(x, "UTF-8").to_tensor(), "gram": tf.strings.ngrams(tf.strings.split("a b c d"), 2), "bytes": tf.strings.bytes_split(x).to_tensor(),
            "fmt": tf.strings.as_string(tf.strings.length(x)),
        }  # fmt: skip

    return Call(call, spec(None, dtype=tf.string, name="x")), [[np.array([b"ab 12", b" Cb3 ", b"zz99"], object)]]


@model
def detection():
    def call(boxes, scores):
        combined = tf.image.combined_non_max_suppression(
            boxes[None, :, None], tf.stack([scores, scores * 0.5], -1)[None], 3, 5, 0.5, 0.1
        )
        soft = tf.image.non_max_suppression_with_scores(boxes, scores, 6, 0.5, 0.1, 0.5)
        kept = tf.image.non_max_suppression(boxes, scores, 4, 0.4, 0.2)
        padded, count = tf.image.non_max_suppression_padded(boxes, scores, 6, 0.5, 0.1, pad_to_max_output_size=True)
        crops = tf.image.crop_and_resize(tf.reshape(tf.range(96.0), (1, 8, 4, 3)), boxes[:3], [0, 0, 0], (3, 3))
        return {
            "boxes": combined.nmsed_boxes,
            "scores": combined.nmsed_scores,
            "soft": soft[1],
            "kept": tf.gather(boxes, kept),
            "padded": padded,
            "count": count,
            "crops": crops,
        }

    low = R.uniform(0, 0.6, (12, 2)).astype(np.float32)
    boxes = np.concatenate([low, low + R.uniform(0.1, 0.4, (12, 2)).astype(np.float32)], 1)
    return Call(call, spec(None, 4, name="boxes"), spec(None, name="scores")), [
        [boxes, R.uniform(0, 1, 12).astype(np.float32)]
    ]


@model
def counter():
    held = tf.Variable(np.float32(2), name="count")

    def call(x):
        held.assign_add(tf.reduce_sum(x))
        return {"y": x * held, "count": held.read_value()}

    return Call(call, spec(3, name="x"), held=held), [[f(3)], [f(3)]]


@model
def embedding_sparse():
    table = tf.Variable(f(10, 4), name="table")

    def call(values, rows):
        ids = tf.SparseTensor(tf.stack([rows, tf.range(tf.shape(rows, out_type=tf.int64)[0])], 1), values, [3, 8])
        found = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean")
        return {
            "found": found,
            "dense": tf.sparse.to_dense(ids),
            "mat": tf.sparse.sparse_dense_matmul(tf.cast(ids, tf.float32), tf.ones((8, 2))),
        }

    return Call(call, spec(None, dtype=tf.int64, name="values"), spec(None, dtype=tf.int64, name="rows"), held=table), [
        [np.array([1, 4, 9, 2], np.int64), np.array([0, 0, 1, 2], np.int64)]
    ]
