"""Less common configurations of Keras layers: states, masks, stacked cells, hashing with salts, crosses, spectrograms."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from registry import f, model


@model
def recurrent_kinds():
    a = L.Input((6, 5), name="x")
    m = L.Masking(0.0)(a)
    o = [
        L.LSTM(4, unroll=True)(a),
        L.GRU(4, return_sequences=True, reset_after=False)(m),
        L.Bidirectional(L.GRU(3, return_sequences=True), merge_mode="mul")(m),
        L.Bidirectional(L.LSTM(3), merge_mode="ave")(a),
        L.RNN(L.StackedRNNCells([L.LSTMCell(4), L.LSTMCell(3)]), go_backwards=True, return_sequences=True)(a),
        L.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False)(m),
        L.TimeDistributed(L.Bidirectional(L.SimpleRNN(2)))(L.Reshape((2, 3, 5))(a)),
    ]
    x = f(3, 6, 5)
    x[0, 3:] = 0
    x[2, 1:3] = 0
    return keras.Model(a, o), [[x], [x[:1]]]


@model
def conv_rnn_kinds():
    a = L.Input((4, 8, 3), name="x")
    b = L.Input((3, 4, 4, 4, 2), name="v")
    c = L.ConvLSTM1D(4, 3, padding="same", return_sequences=True)(a)
    d = L.ConvLSTM3D(2, 2, padding="same")(b)
    e = L.TimeDistributed(L.Conv3D(3, 2, padding="same", dilation_rate=2))(b)
    g = L.Conv3DTranspose(2, 3, strides=2, padding="same")(d)
    return keras.Model([a, b], [c, d, e, g, L.UpSampling3D(2)(d), L.ZeroPadding3D(1)(d), L.Cropping3D(1)(g)]), [
        [f(2, 4, 8, 3), f(1, 3, 4, 4, 4, 2)]
    ]


@model
def text_kinds():
    a = L.Input((), dtype="string", name="text")
    r = L.TextVectorization(
        vocabulary=["a", "b", "ab", "c"], split="character", standardize="lower", output_sequence_length=7
    )
    m = L.TextVectorization(vocabulary=["hello", "world"], output_mode="multi_hot", standardize=None)
    c = L.TextVectorization(vocabulary=["hello", "world"], output_mode="count", ngrams=(1, 2))
    s = L.StringLookup(vocabulary=["abc", "hello world"], output_mode="one_hot")
    h = L.Hashing(8, salt=[1, 2])
    e = L.Embedding(8, 4)(r(a))
    return keras.Model(a, [r(a), m(a), c(a), s(a), h(a), e]), [
        [np.array([b"ABC", b"hello world", b"hello hello", b""], object)]
    ]


@model
def spectrograms():
    a = L.Input((256, 1), name="x")
    m = L.MelSpectrogram(fft_length=64, sequence_stride=16, num_mel_bins=8, sampling_rate=4000, max_freq=1900.0)(
        L.Reshape((256,))(a)
    )
    s = L.STFTSpectrogram("log", frame_length=32, frame_step=16, fft_length=64)(a)
    return keras.Model(a, [m, s]), [[f(2, 256, 1)]]


@model
def crossings():
    a, b = L.Input((1,), dtype="int64", name="a"), L.Input((1,), dtype="string", name="b")
    h = L.HashedCrossing(10, output_mode="one_hot")([a, b])
    c = L.CategoryEncoding(6, "count")(a)
    i = L.IntegerLookup(vocabulary=[1, 3], output_mode="count")(a)
    d = L.Embedding(10, 3, embeddings_initializer="uniform")(L.Hashing(10)(b))
    return keras.Model([a, b], [h, c, i, d]), [
        [np.array([[1], [5], [3]], np.int64), np.array([[b"u"], [b"v"], [b""]], object)]
    ]


@model
def stateful_layers():
    a = L.Input(batch_shape=(2, 3, 4), name="x")
    x = L.LSTM(5, stateful=True, return_sequences=True)(a)
    return keras.Model(a, L.GRU(3, stateful=True)(x)), [[f(2, 3, 4)], [f(2, 3, 4)], [f(2, 3, 4)]]


@model
def transformer_decoder():
    ids = L.Input((None,), dtype="int32", name="ids")
    mem = L.Input((None, 8), name="memory")
    x = L.Embedding(30, 8, mask_zero=True)(ids)
    x = x + L.Lambda(
        lambda v: tf.sin(tf.range(tf.shape(v)[1], dtype=tf.float32)[:, None] / 10000 ** (tf.range(8.0) / 8)),
        output_shape=(None, 8),
    )(x)
    for _ in range(2):
        y = L.MultiHeadAttention(2, 4, dropout=0.1)(x, x, use_causal_mask=True)
        x = L.LayerNormalization()(x + y)
        y = L.MultiHeadAttention(2, 4, value_dim=6)(x, mem)
        x = L.LayerNormalization(epsilon=1e-6)(x + y)
        x = L.Add()([x, L.Dense(8)(L.Dense(16, activation="gelu")(x))])
    x = L.Dense(30, activation="softmax")(x)
    return keras.Model([ids, mem], x), [
        [np.array([[1, 5, 7, 0], [2, 3, 0, 0]], np.int32), f(2, 5, 8)],
        [np.array([[4, 9]], np.int32), f(1, 3, 8)],
    ]
