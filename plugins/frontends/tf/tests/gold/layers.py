"""Networks of Keras layers: recurrent, attention, normalizations, windows, preprocessing."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from registry import R, f, model


@model
def rnn_masked():
    a = L.Input((None,), dtype="int32", name="ids")
    x = L.Embedding(20, 8, mask_zero=True)(a)
    x = L.Bidirectional(L.LSTM(6, return_sequences=True))(x)
    x = L.SimpleRNN(5, return_sequences=True)(x)
    x = L.GRU(4, go_backwards=True)(x)
    ids = R.integers(1, 20, (3, 7)).astype(np.int32)
    ids[0, 4:] = 0
    ids[2, 2:] = 0
    return keras.Model(a, x), [[ids], [ids[:1, :5]]]


@model
def rnn_states():
    a = L.Input((6, 4), name="x")
    cells = L.RNN([L.LSTMCell(5), L.GRUCell(4, reset_after=False), L.SimpleRNNCell(3)], return_state=True)
    y, *states = cells(a)
    flat = [L.Flatten()(s) for g in states for s in (g if isinstance(g, (list, tuple)) else [g])]
    return keras.Model(a, [y, *flat]), [[f(2, 6, 4)]]


@model
def conv_lstm():
    a = L.Input((4, 6, 6, 2), name="x")
    return keras.Model(a, L.ConvLSTM2D(3, 3, padding="same", return_sequences=True)(a)), [[f(1, 4, 6, 6, 2)]]


@model
def attentions():
    q, v = L.Input((5, 8), name="q"), L.Input((7, 8), name="v")
    a = L.Attention(use_scale=True)([q, v])
    b = L.AdditiveAttention()([q, v])
    c = L.MultiHeadAttention(2, 4)(q, v, use_causal_mask=True)
    d = L.GroupQueryAttention(4, 4, 2)(q, v)
    return keras.Model([q, v], L.Concatenate()([a, b, c, d])), [[f(2, 5, 8), f(2, 7, 8)]]


@model
def normalizations():
    a = L.Input((6, 6, 8), name="x")
    x = L.LayerNormalization()(a)
    x = L.GroupNormalization(4)(x)
    x = L.UnitNormalization()(x)
    x = L.SpectralNormalization(L.Conv2D(4, 3))(x)
    x = L.BatchNormalization()(x)
    return keras.Model(a, L.RMSNormalization()(x)), [[f(2, 6, 6, 8)]]


@model
def activations():
    a = L.Input((9,), name="x")
    names = ["relu", "relu6", "selu", "elu", "softplus", "softsign", "swish", "gelu", "tanh", "sigmoid", "hard_sigmoid", "mish",
             "exponential", "leaky_relu", "hard_silu", "celu", "glu", "log_softmax", "hard_tanh", "tanh_shrink", "soft_shrink",
             "squareplus", "sparse_plus", "log_sigmoid", "hard_shrink"]  # fmt: skip
    even = L.Dense(8)(a)
    out = [L.Activation(n)(even) for n in names]
    out += [
        L.PReLU()(a),
        L.ThresholdedReLU()(a) if hasattr(L, "ThresholdedReLU") else L.ReLU(3, 0.1, 0.5)(a),
        L.Softmax()(a),
    ]
    return keras.Model(a, L.Concatenate()(out)), [[f(3, 9)]]


@model
def image_layers():
    a = L.Input((12, 10, 3), name="x")
    x = L.Rescaling(1 / 127.5, -1)(a)
    x = L.Resizing(9, 11, interpolation="bicubic")(x)
    y = L.CenterCrop(6, 6)(x)
    z = L.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])(y)
    z = L.ZeroPadding2D(((1, 2), (0, 1)))(z)
    z = L.Cropping2D(1)(z)
    z = L.UpSampling2D(2, interpolation="bilinear")(z)
    return keras.Model(a, z), [[f(2, 12, 10, 3) * 50 + 100]]


@model
def convolutions():
    a = L.Input((12, 12, 4), name="x")
    x = L.SeparableConv2D(6, 3, padding="same")(a)
    x = L.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same")(x)
    x = L.Conv2D(8, 3, groups=4, padding="same")(x)
    x = L.Conv2DTranspose(5, 4, strides=2, padding="same")(x)
    x = L.Conv2DTranspose(5, 3, strides=3, padding="valid", output_padding=1)(x)
    y = L.Reshape((-1, 5))(x)
    y = L.Conv1D(4, 5, dilation_rate=3, padding="causal")(y)
    y = L.Conv1DTranspose(3, 3, strides=2)(y)
    y = L.SeparableConv1D(3, 3)(y)
    y = L.DepthwiseConv1D(3)(y)
    return keras.Model(a, L.GlobalMaxPooling1D()(y)), [[f(2, 12, 12, 4)]]


@model
def pools():
    a = L.Input((7, 9, 9, 2), name="x")
    x = L.AveragePooling3D(2, padding="same")(a)
    y = L.MaxPooling3D((2, 3, 2), strides=(1, 2, 2), padding="same")(a)
    flat = L.Reshape((-1, 2))(x)
    return keras.Model(a, [L.GlobalAveragePooling3D()(x), L.GlobalMaxPooling3D()(y), L.AveragePooling1D(3, 2)(flat),
                           L.MaxPooling1D(2, padding="same")(flat)]), [[f(2, 7, 9, 9, 2)]]  # fmt: skip


@model
def merges():
    a, b = L.Input((4, 5), name="a"), L.Input((4, 5), name="b")
    out = [kind()([a, b]) for kind in (L.Add, L.Subtract, L.Multiply, L.Average, L.Maximum, L.Minimum)]
    out += [
        L.Permute((2, 1))(L.Dot(2)([a, b])),
        L.RepeatVector(3)(L.Flatten()(a)),
        L.EinsumDense("abc,cd->abd", (4, 3))(a),
    ]
    out += [L.TimeDistributed(L.Dense(2))(a), L.Masking()(a), L.Lambda(lambda v: tf.cumsum(v, 1, reverse=True))(b)]
    return keras.Model([a, b], out), [[f(2, 4, 5), f(2, 4, 5)]]


@model
def preprocess_numbers():
    a, b = L.Input((1,), name="age"), L.Input((2,), dtype="int64", name="kind")
    x = L.Discretization([18.0, 30.0, 65.0])(a)
    x = L.CategoryEncoding(5, "one_hot")(x)
    y = L.IntegerLookup(vocabulary=[3, 7, 11], output_mode="multi_hot")(b)
    h = L.Hashing(6)(b)
    return keras.Model([a, b], L.Concatenate()([x, y, L.Lambda(lambda v: tf.cast(v, tf.float32))(h)])), [
        [np.array([[17.0], [44.0], [70.0]], np.float32), np.array([[3, 8], [7, 11], [1, 3]], np.int64)]
    ]


@model
def preprocess_strings():
    a = L.Input((), dtype="string", name="text")
    v = L.TextVectorization(vocabulary=["hello", "world", "a", "test"], output_sequence_length=6)
    t = L.TextVectorization(
        vocabulary=["hello", "world", "hello world"], ngrams=2, output_mode="tf_idf", idf_weights=[0.5, 0.7, 0.9]
    )
    s = L.StringLookup(vocabulary=["x", "Hello, World!"], num_oov_indices=2)
    return keras.Model(a, [v(a), t(a), s(a)]), [[np.array([b"Hello, World!", b"a test of the hello", b""], object)]]


@model
def string_lookup_inverse():
    a = L.Input((3,), dtype="int64", name="ids")
    return keras.Model(a, L.StringLookup(vocabulary=["p", "q", "r"], invert=True)(a)), [
        [np.array([[0, 1, 3], [2, 2, 9]], np.int64)]
    ]
