"""Models that assign slices of variables, compute gradients through control flow, or are quantized or adapted by Keras."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import ops as K
from registry import Call, R, f, model, spec


@model
def kv_cache():
    cache = tf.Variable(np.zeros((2, 6, 4), np.float32), name="cache")
    pos = tf.Variable(0, name="pos")

    def step(x):
        p = pos.read_value()
        cache[:, p].assign(x)
        pos.assign_add(1)
        m = tf.sequence_mask(p + 1, 6, tf.float32)
        a = tf.nn.softmax(tf.einsum("bd,btd->bt", x, cache) - 1e9 * (1 - m))
        return {"y": tf.einsum("bt,btd->bd", a, cache), "pos": pos.read_value()}

    return Call(step, spec(2, 4, name="x"), held=[cache, pos]), [[f(2, 4)], [f(2, 4)], [f(2, 4)]]


@model
def slice_assign():
    v = tf.Variable(f(5, 6), name="v")

    def step(x, k):
        v[1:4, ::2].assign(x)
        v[k].assign(tf.ones(6) * 2)
        v[..., -1].assign(tf.range(5.0))
        return {"v": v.read_value(), "s": tf.reduce_sum(v)}

    return Call(step, spec(3, 3, name="x"), spec(dtype=tf.int32, name="k"), held=v), [
        [f(3, 3), np.int32(0)],
        [f(3, 3), np.int32(-1)],
    ]


@model
def gradients_through_control():
    w = tf.Variable(f(4, 4), name="w")

    def run(x, n):
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = x
            for _ in tf.range(n):
                h = tf.tanh(h @ w)
            y = tf.cond(tf.reduce_sum(h) > 0, lambda: tf.square(h) * 3, lambda: tf.exp(h))
            loss = tf.reduce_sum(y)
        return {"g": tape.gradient(loss, x), "y": y}

    return Call(run, spec(None, 4, name="x"), spec(dtype=tf.int32, name="n"), held=w), [
        [f(2, 4), np.int32(3)],
        [f(3, 4), np.int32(1)],
    ]


@model
def arrays_in_one_loop():
    def run(x):
        n = tf.shape(x)[0]
        a, b = tf.TensorArray(tf.float32, n), tf.TensorArray(tf.int32, n)
        i, h = tf.constant(0), tf.zeros([4])
        c = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        while i < n:
            h = tf.tanh(x[i] + h)
            a = a.write(i, h)
            b = b.write(n - 1 - i, tf.cast(tf.argmax(h), tf.int32))
            if tf.reduce_sum(h) > 0:
                c = c.write(c.size(), h * 2)
            i += 1
        return {"a": a.stack(), "b": b.stack(), "c": c.stack(), "k": c.size()}

    return Call(run, spec(None, 4, name="x")), [[f(5, 4)], [np.abs(f(2, 4))]]


@model
def ctc_decoding():
    a = L.Input((9, 5), name="x")

    class M(L.Layer):
        def call(self, x):
            n = K.full((K.shape(x)[0],), 9, dtype="int32")
            g = K.ctc_decode(x, n, "greedy", mask_index=4)
            b = K.ctc_decode(x, n, "beam_search", beam_width=4, top_paths=2, mask_index=4)
            return g[0], g[1], b[0], b[1]

    x = M()(a)
    return keras.Model(a, x), [[f(2, 9, 5)]]


@model
def saliency():
    @tf.custom_gradient
    def ste(x):
        return tf.round(x), lambda g: g

    w = tf.Variable(f(4, 4))

    def run(x):
        with tf.GradientTape(persistent=True) as t:
            t.watch(x)
            y = ste(x @ w)
            z = tf.reduce_sum(tf.nn.max_pool1d(y[..., None], 2, 2, "VALID")) + tf.reduce_sum(tf.nn.softmax(y)[:, 0])
            z += (
                tf.reduce_sum(tf.linalg.norm(x, axis=1))
                + tf.reduce_sum(tf.nn.elu(x))
                + tf.reduce_sum(tf.gather(x, [0, 0]))
            )
            z += tf.reduce_prod(x[0]) + tf.reduce_sum(tf.nn.log_softmax(x)[:, 1]) + tf.reduce_max(x)
            z += tf.reduce_sum(tf.clip_by_value(x, -0.5, 0.5))
        with tf.GradientTape() as t2:
            t2.watch(x)
            q = tf.nn.conv2d(tf.reshape(x, [-1, 2, 2, 1]), tf.reshape(w, [2, 2, 1, 4]), 1, "SAME")
            q2 = tf.reduce_sum(tf.nn.avg_pool2d(q, 2, 1, "SAME") ** 2) + tf.reduce_sum(tf.image.resize(q, [3, 3]) ** 2)
        j = t2.gradient(q2, x)
        return {"g": t.gradient(z, x), "y": y, "j": j}

    return Call(run, spec(None, 4, name="x"), held=w), [[f(3, 4)], [f(2, 4)]]


@model
def jacobians():
    w = tf.Variable(f(3, 3))

    def run(x):
        with tf.GradientTape() as t:
            t.watch(x)
            y = tf.tanh(x @ w) ** 2
        j = t.batch_jacobian(y, x)
        with tf.GradientTape() as o:
            o.watch(x)
            with tf.GradientTape() as i:
                i.watch(x)
                z = tf.reduce_sum(tf.sin(x) * x)
            g = i.gradient(z, x)
        h = o.gradient(g, x)
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as acc:
            q = tf.exp(x) * x
        return {"j": j, "h": h, "fwd": acc.jvp(q)}

    return Call(run, spec(None, 3, name="x"), held=w), [[f(2, 3)]]


@model
def keras_int8():
    a = L.Input((12,), name="x")
    x = L.Dense(16, activation="relu")(a)
    x = L.Dense(8)(x)
    x = L.EinsumDense("ab,bc->ac", 5, bias_axes="c")(x)
    m = keras.Model(a, x)
    m.quantize("int8")
    return m, [[f(3, 12)], [f(1, 12)]]


@model
def keras_lora():
    a = L.Input((12,), name="x")
    d, e = L.Dense(16), L.Embedding(20, 12)
    i = L.Input((5,), dtype="int32", name="i")
    x = d(a[:, None] + e(i))
    m = keras.Model([a, i], x)
    d.enable_lora(4)
    e.enable_lora(2)
    return m, [[f(3, 12), R.integers(0, 20, (3, 5)).astype(np.int32)]]
