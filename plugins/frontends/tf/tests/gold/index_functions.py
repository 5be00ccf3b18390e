"""Less common functions of indices and strings: bags, tables from files, searches, graphs, maps, examples."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from registry import Call, f, model, spec


@model
def embedding_bag():
    t = tf.Variable(f(20, 4))
    u = tf.Variable(f(20, 3))

    def call(ids, rows, weights):
        n = tf.shape(rows, out_type=tf.int64)[0]
        sp = tf.SparseTensor(tf.stack([rows, tf.range(n)], 1), ids, [4, 8])
        ws = tf.SparseTensor(sp.indices, weights, [4, 8])
        return {
            "sum": tf.nn.embedding_lookup_sparse(t, sp, ws, combiner="sum"),
            "sqrtn": tf.nn.embedding_lookup_sparse(t, sp, ws, combiner="sqrtn"),
            "safe": tf.nn.safe_embedding_lookup_sparse(u, sp, ws, combiner="mean", default_id=3),
            "look": tf.nn.embedding_lookup(t, ids, max_norm=1.0),
            "sprows": tf.sparse.reduce_sum(ws, 1),
        }

    return Call(
        call,
        spec(None, dtype=tf.int64, name="ids"),
        spec(None, dtype=tf.int64, name="rows"),
        spec(None, name="weights"),
        held=[t, u],
    ), [[np.array([1, 4, 9, 2], np.int64), np.array([0, 0, 1, 2], np.int64), np.abs(f(4))]]


@model
def tables():
    t = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b", "c"]), tf.constant([10, 20, 30], tf.int64)), -1
    )
    v = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["x", "y"]), tf.constant([0, 1], tf.int64)), 3
    )
    i = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([5, 7], tf.int64), tf.constant(["five", "seven"])), "none"
    )

    file = Path(tempfile.mkdtemp()) / "colors.txt"
    file.write_text("red\ngreen\nblue\n")
    w = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        ),
        -5,
    )

    def call(x, n):
        return {
            "t": t.lookup(x),
            "v": v.lookup(x),
            "i": i.lookup(n),
            "w": w.lookup(x),
            "size": t.size(),
            "rag": t.lookup(tf.strings.split(x, " ")).to_tensor(-9),
        }

    return Call(call, spec(None, dtype=tf.string, name="x"), spec(None, dtype=tf.int64, name="n"), held=[t, v, i, w]), [
        [np.array([b"a", b"y", b"green", b"q a b"], object), np.array([5, 6, 7], np.int64)]
    ]


@model
def beam_search():
    e = tf.Variable(f(11, 6))
    w = tf.Variable(f(6, 11))

    def call(start):
        beams = 3
        b = tf.shape(start)[0]
        seq = tf.zeros((b, beams, 6), tf.int32)
        seq = tf.concat([tf.tile(start[:, None, None], [1, beams, 1]), seq[:, :, 1:]], 2)
        score = tf.tile([[0.0, -1e9, -1e9]], [b, 1])

        def body(i, seq, score):
            last = tf.gather(seq, i, axis=2)
            h = tf.tanh(tf.gather(e, last) + tf.reduce_mean(tf.gather(e, seq[:, :, : i + 1]), 2))
            logp = tf.nn.log_softmax(h @ w) + score[..., None]
            top, at = tf.math.top_k(tf.reshape(logp, (b, beams * 11)), beams)
            seq = tf.gather(seq, at // 11, batch_dims=1)
            rows = tf.reshape(tf.stack(tf.meshgrid(tf.range(b), tf.range(beams), indexing="ij"), -1), (-1, 2))
            where = tf.concat([rows, tf.fill((b * beams, 1), i + 1)], 1)
            seq = tf.tensor_scatter_nd_update(seq, where, tf.reshape(at % 11, (-1,)))
            seq.set_shape([None, 3, 6])
            return i + 1, seq, top

        _, seq, score = tf.while_loop(lambda i, *_: i < 5, body, [0, seq, score])
        return {"seq": seq, "score": score}

    return Call(call, spec(None, dtype=tf.int32, name="start"), held=[e, w]), [
        [np.array([1, 4], np.int32)],
        [np.array([3], np.int32)],
    ]


@model
def graph_network():
    w = tf.Variable(f(5, 4))
    a = tf.Variable(f(8, 1))

    def call(x, src, dst):
        h = x @ w
        s = tf.nn.leaky_relu(tf.concat([tf.gather(h, src), tf.gather(h, dst)], 1) @ a)[:, 0]
        n = tf.shape(x)[0]
        s = tf.exp(s - tf.gather(tf.math.unsorted_segment_max(s, dst, n), dst))
        s = s / tf.gather(tf.math.unsorted_segment_sum(s, dst, n), dst)
        m = tf.math.unsorted_segment_sum(s[:, None] * tf.gather(h, src), dst, n)
        adj = tf.sparse.reorder(
            tf.SparseTensor(tf.cast(tf.stack([dst, src], 1), tf.int64), s, tf.cast([n, n], tf.int64))
        )
        return {
            "m": m,
            "mean": tf.math.unsorted_segment_mean(tf.gather(h, src), dst, n),
            "sqrtn": tf.math.unsorted_segment_sqrt_n(tf.gather(h, src), dst, n),
            "sp": tf.sparse.sparse_dense_matmul(adj, h),
        }

    return Call(
        call,
        spec(None, 5, name="x"),
        spec(None, dtype=tf.int32, name="src"),
        spec(None, dtype=tf.int32, name="dst"),
        held=[w, a],
    ), [[f(4, 5), np.array([0, 1, 2, 3, 0], np.int32), np.array([1, 2, 2, 0, 3], np.int32)]]


@model
def viterbi():
    t = tf.Variable(f(5, 5))

    def call(scores, lens):
        first = scores[:, 0]

        def step(state, x):
            s, _ = state
            m = s[:, :, None] + t[None]
            return tf.reduce_max(m, 1) + x, tf.argmax(m, 1, tf.int32)

        alphas, back = tf.scan(step, tf.transpose(scores[:, 1:], (1, 0, 2)), (first, tf.zeros_like(first, tf.int32)))
        last = tf.argmax(alphas[-1], 1, tf.int32)
        path = tf.scan(lambda k, b: tf.gather(b, k, batch_dims=1), back, last, reverse=True)
        return {
            "path": tf.transpose(tf.concat([path, last[None]], 0)),
            "best": tf.reduce_max(alphas[-1], 1),
            "mask": tf.sequence_mask(lens, tf.shape(scores)[1], tf.float32),
        }

    return Call(call, spec(None, None, 5, name="scores"), spec(None, dtype=tf.int32, name="lens"), held=t), [
        [f(2, 6, 5), np.array([3, 6], np.int32)],
        [f(1, 4, 5), np.array([2], np.int32)],
    ]


@model
def mappings():
    k = tf.Variable(f(2, 2, 3, 4))

    def call(x, n):
        a = tf.map_fn(lambda v: tf.cond(tf.reduce_sum(v) > 0, lambda: v * 2, lambda: v - 1), x)
        b = tf.map_fn(lambda p: (p[0] * 2.0, p[1] + 1), (x, n), fn_output_signature=(tf.float32, tf.int32))
        c = tf.vectorized_map(lambda v: tf.reduce_sum(v**2, 0), x)
        d = tf.foldr(lambda acc, v: acc * 0.5 + v, x)
        _, s = tf.while_loop(
            lambda i, s: i < tf.reduce_max(n),
            lambda i, s: (i + 1, s + tf.foldl(lambda p, q: p + q, x) * tf.cast(i, tf.float32)),
            [0, tf.zeros((3, 4))],
        )
        sw = tf.case([(n[0] > 3, lambda: x[0]), (n[1] > 3, lambda: x[1])], default=lambda: x[2])
        return {
            "a": a,
            "b0": b[0],
            "b1": b[1],
            "c": c,
            "d": d,
            "s": s,
            "sw": sw,
            "einsum": tf.einsum("bij,klji->bkl", x, tf.transpose(k, (0, 1, 3, 2))),
        }

    return Call(call, spec(3, 3, 4, name="x"), spec(3, dtype=tf.int32, name="n"), held=k), [
        [f(3, 3, 4), np.array([2, 5, 1], np.int32)],
        [f(3, 3, 4), np.array([0, 1, 3], np.int32)],
    ]


@model
def examples():
    w = tf.Variable(f(3, 2))

    def call(serialized):
        p = tf.io.parse_example(
            serialized,
            {
                "x": tf.io.FixedLenFeature([3], tf.float32),
                "k": tf.io.FixedLenFeature([], tf.int64, 7),
                "w": tf.io.VarLenFeature(tf.string),
                "r": tf.io.RaggedFeature(tf.int64),
            },
        )
        return {"y": p["x"] @ w, "k": p["k"], "w": tf.sparse.to_dense(p["w"], ""), "r": p["r"].to_tensor()}

    def ex(x, k, w, r):
        t = tf.train
        d = {
            "x": t.Feature(float_list=t.FloatList(value=x)),
            "w": t.Feature(bytes_list=t.BytesList(value=w)),
            "r": t.Feature(int64_list=t.Int64List(value=r)),
        }
        if k is not None:
            d["k"] = t.Feature(int64_list=t.Int64List(value=[k]))
        return t.Example(features=t.Features(feature=d)).SerializeToString()

    return Call(call, spec(None, dtype=tf.string, name="serialized"), held=w), [
        [np.array([ex([1, 2, 3], 4, [b"a", b"bc"], [1]), ex([0, -1, 0.5], None, [], [5, 6])], object)]
    ]


@model
def ragged_layers():
    def call(v, s):
        r = tf.RaggedTensor.from_row_splits(v, s)
        n = tf.RaggedTensor.from_row_lengths(r, [1, 2])
        return {
            "sm": tf.nn.softmax(r.to_tensor(-1e9)),
            "nest": n.to_tensor(),
            "mm": tf.ragged.map_flat_values(tf.square, r).to_tensor(),
            "bool": tf.ragged.boolean_mask(v, v > 0),
            "where": tf.where(r > 0, r, 0.0 * r).to_tensor(),
            "stack": tf.ragged.stack([r, r * 2]).to_tensor(),
            "tile": tf.tile(r, [2, 1]).to_tensor(),
            "rev": tf.reverse(r, [1]).to_tensor(),
            "bound": r.bounding_shape(),
            "expand": tf.expand_dims(r, 1).to_tensor(),
            "idx": r[1],
            "merge": n.merge_dims(0, 1).to_tensor(),
            "min": tf.reduce_min(r, 0),
            "prod": tf.reduce_prod(r, 1),
            "any": tf.reduce_any(r > 0, 1),
            "ids": tf.ragged.segment_ids_to_row_splits(tf.constant([0, 0, 2])),
            "shape": tf.shape(r.to_tensor()),
        }

    return Call(call, spec(None, name="v"), spec(4, dtype=tf.int64, name="s")), [
        [f(7), np.array([0, 3, 3, 7], np.int64)]
    ]
