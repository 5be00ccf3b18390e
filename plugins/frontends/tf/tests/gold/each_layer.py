"""Every layer of keras.layers on its own, in one or several configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers as L
from registry import MODELS, R, f

IMAGE, ROW, VIDEO = (8, 7, 3), (12, 3), (5, 6, 4, 3)
WINDOWS = {
    1: ROW,
    2: IMAGE,
    3: VIDEO,
}


def entry(name: str, build: Callable[[], Any], *dims: tuple[int, ...], cases: Any = None) -> None:
    """Registers a layer on inputs of given extents, with batches of two and three."""

    def made() -> tuple[Any, list[list[Any]]]:
        given = [L.Input(d, name=f"x{k}") for k, d in enumerate(dims)]
        y = build()(given[0] if len(given) == 1 else given)
        return keras.Model(given, y), cases or [[f(n, *d) for d in dims] for n in (2, 3)]

    MODELS[f"layer_{name}"] = made


def integers(name: str, build: Callable[[], Any], values: np.ndarray, kind: str = "int64") -> None:
    def made() -> tuple[Any, list[list[Any]]]:
        given = L.Input(values.shape[1:], dtype=kind, name="x0")
        return keras.Model(given, build()(given)), [[values], [values[:1]]]

    MODELS[f"layer_{name}"] = made


def words(name: str, build: Callable[[], Any], values: list[Any]) -> None:
    def made() -> tuple[Any, list[list[Any]]]:
        array = np.array(values, object)
        given = L.Input(array.shape[1:], dtype="string", name="x0")
        return keras.Model(given, build()(given)), [[array]]

    MODELS[f"layer_{name}"] = made


class Functional:
    """A layer that takes several inputs, or inputs by name."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, xs: Any) -> Any:
        return self.call(*xs) if isinstance(xs, list) else self.call(xs)


for _n, _dims in WINDOWS.items():
    for _kind in ("Conv", "SeparableConv", "DepthwiseConv"):
        if not hasattr(L, f"{_kind}{_n}D"):
            continue
        _layer = getattr(L, f"{_kind}{_n}D")
        _args = (3,) if _kind == "DepthwiseConv" else (4, 3)
        for _tag, _more in (
            ("same", {"padding": "same"}),
            ("stride", {"strides": 2, "activation": "relu"}),
            ("dilated", {"dilation_rate": 2, "padding": "same", "use_bias": False}),
        ):
            entry(f"{_kind.lower()}{_n}d_{_tag}", lambda l=_layer, a=_args, m=_more: l(*a, **m), _dims)
    entry(
        f"convtranspose{_n}d",
        lambda n=_n: getattr(L, f"Conv{n}DTranspose")(2, 3, strides=2, padding="same", activation="elu"),
        _dims,
    )
    entry(f"convtranspose{_n}d_valid", lambda n=_n: getattr(L, f"Conv{n}DTranspose")(2, 3, strides=2), _dims)
    for _kind in ("Max", "Average"):
        entry(f"{_kind.lower()}pool{_n}d", lambda k=_kind, n=_n: getattr(L, f"{k}Pooling{n}D")(2), _dims)
        entry(
            f"{_kind.lower()}pool{_n}d_same",
            lambda k=_kind, n=_n: getattr(L, f"{k}Pooling{n}D")(3, 2, "same"),
            _dims,
        )
        entry(f"global{_kind.lower()}pool{_n}d", lambda k=_kind, n=_n: getattr(L, f"Global{k}Pooling{n}D")(), _dims)
        if hasattr(L, f"Adaptive{_kind}Pooling{_n}D"):
            entry(
                f"adaptive{_kind.lower()}pool{_n}d",
                lambda k=_kind, n=_n: getattr(L, f"Adaptive{k}Pooling{n}D")(3),
                _dims,
            )
    entry(f"upsampling{_n}d", lambda n=_n: getattr(L, f"UpSampling{n}D")(2), _dims)
    entry(f"zeropadding{_n}d", lambda n=_n: getattr(L, f"ZeroPadding{n}D")(1), _dims)
    entry(f"cropping{_n}d", lambda n=_n: getattr(L, f"Cropping{n}D")(1), _dims)
    entry(
        f"convlstm{_n}d",
        lambda n=_n: getattr(L, f"ConvLSTM{n}D")(2, 2, padding="same", return_sequences=True),
        (3, *_dims),
    )
entry("upsampling2d_bilinear", lambda: L.UpSampling2D((2, 3), interpolation="bilinear"), IMAGE)
entry("upsampling2d_bicubic", lambda: L.UpSampling2D(2, interpolation="bicubic"), IMAGE)
entry("conv2d_groups", lambda: L.Conv2D(6, 3, groups=3, padding="same"), IMAGE)
entry("conv1d_causal", lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2), ROW)
entry("depthwiseconv2d_multiplier", lambda: L.DepthwiseConv2D(3, depth_multiplier=2, strides=2), IMAGE)

for _name in (
    "relu",
    "gelu",
    "silu",
    "softmax",
    "sigmoid",
    "hard_sigmoid",
    "mish",
    "log_softmax",
    "glu",
    "softsign",
    "selu",
    "celu",
    "hard_swish",
    "relu6",
    "exponential",
    "softplus",
    "tanh",
    "elu",
    "leaky_relu",
    "sparsemax",
    "squareplus",
    "threshold",
):
    entry(f"activation_{_name}", lambda n=_name: L.Activation(n), (4, 6))  # fmt: skip
entry("relu", lambda: L.ReLU(6.0, 0.1, 0.2), (5,))
entry("leakyrelu", lambda: L.LeakyReLU(0.3), (5,))
entry("prelu", lambda: L.PReLU("uniform", shared_axes=[1, 2]), IMAGE)
entry("elu", lambda: L.ELU(0.7), (5,))
entry("softmax_axis", lambda: L.Softmax(axis=1), (4, 5))
entry("softmax_axes", lambda: L.Softmax(axis=(1, 2)), (4, 5))

entry("dense", lambda: L.Dense(4, activation="tanh"), (5,))
entry("dense_3d", lambda: L.Dense(4), (3, 5))
entry("einsumdense", lambda: L.EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de"), (3, 5))
entry("bilinear", lambda: Functional(lambda a, b: L.Dot(axes=1, normalize=True)([a, b])), (5,), (5,))
entry("flatten", lambda: L.Flatten(), (3, 4))
entry("reshape", lambda: L.Reshape((4, -1)), (3, 8))
entry("permute", lambda: L.Permute((3, 1, 2)), (3, 4, 5))
entry("repeatvector", lambda: L.RepeatVector(3), (4,))
entry("identity", lambda: L.Identity(), (4,))
entry("dropout", lambda: L.Dropout(0.5), (4,))
for _n, _dims in WINDOWS.items():
    entry(f"spatialdropout{_n}d", lambda n=_n: getattr(L, f"SpatialDropout{n}D")(0.5), _dims)
entry("alphadropout", lambda: L.AlphaDropout(0.5), (4,))
entry("gaussiandropout", lambda: L.GaussianDropout(0.5), (4,))
entry("gaussiannoise", lambda: L.GaussianNoise(0.5), (4,))
entry("activityregularization", lambda: L.ActivityRegularization(0.1), (4,))
entry("masking", lambda: L.Masking(0.0), (4, 3))
for _name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"):
    entry(_name.lower(), lambda n=_name: getattr(L, n)(), (4, 3), (4, 3))
entry("concatenate_1", lambda: L.Concatenate(axis=1), (4, 3), (2, 3))
entry("dot", lambda: L.Dot(axes=(2, 1)), (4, 3), (3, 5))

entry("batchnormalization", lambda: L.BatchNormalization(), IMAGE)
entry("batchnormalization_axis", lambda: L.BatchNormalization(axis=1, scale=False), IMAGE)
entry("layernormalization", lambda: L.LayerNormalization(axis=(1, 2)), IMAGE)
entry("groupnormalization", lambda: L.GroupNormalization(3), (8, 7, 6))
entry("instancenormalization", lambda: L.GroupNormalization(-1), IMAGE)
entry("rmsnormalization", lambda: L.RMSNormalization(), (4, 6))
entry("unitnormalization", lambda: L.UnitNormalization(axis=1), (4, 6))
entry("spectralnormalization", lambda: L.SpectralNormalization(L.Dense(4)), (6,))
entry("normalization", lambda: L.Normalization(mean=[1.0, 2, 3], variance=[1.0, 4, 9]), (5, 3))
entry("rescaling", lambda: L.Rescaling(0.5, 1.0), IMAGE)

entry("lstm", lambda: L.LSTM(4), (5, 3))
entry("lstm_sequences", lambda: L.LSTM(4, return_sequences=True, go_backwards=True), (5, 3))
entry("lstm_states", lambda: L.LSTM(4, return_state=True), (5, 3))
entry("lstm_unroll", lambda: L.LSTM(4, unroll=True), (5, 3))
entry("gru", lambda: L.GRU(4, return_sequences=True), (5, 3))
entry("gru_plain", lambda: L.GRU(4, reset_after=False, activation="relu"), (5, 3))
entry("gru_unroll", lambda: L.GRU(4, unroll=True, return_sequences=True), (5, 3))
entry("simplernn", lambda: L.SimpleRNN(4), (5, 3))
entry("bidirectional", lambda: L.Bidirectional(L.LSTM(3, return_sequences=True)), (5, 3))
entry("bidirectional_sum", lambda: L.Bidirectional(L.GRU(3), merge_mode="sum"), (5, 3))
entry("rnn_stacked", lambda: L.RNN([L.GRUCell(3), L.LSTMCell(2)]), (5, 3))
entry("timedistributed", lambda: L.TimeDistributed(L.Conv2D(2, 3)), (3, 8, 7, 3))
entry("lstm_masked", lambda: keras.Sequential([L.Masking(), L.LSTM(4)]), (5, 3))
entry("attention", lambda: L.Attention(), (4, 6), (5, 6))
entry("attention_concat", lambda: L.Attention(score_mode="concat"), (4, 6), (5, 6))
entry("additiveattention", lambda: L.AdditiveAttention(), (4, 6), (5, 6))
entry("multiheadattention", lambda: Functional(lambda q, v: L.MultiHeadAttention(2, 3)(q, v)), (4, 6), (5, 6))
entry(
    "multiheadattention_axes",
    lambda: Functional(lambda q: L.MultiHeadAttention(2, 3, attention_axes=(2,))(q, q)),
    (4, 3, 6),
)
entry(
    "multiheadattention_scores",
    lambda: Functional(lambda q: L.MultiHeadAttention(2, 3)(q, q, return_attention_scores=True)),
    (4, 6),
)
entry("groupqueryattention", lambda: Functional(lambda q, v: L.GroupQueryAttention(4, 4, 2)(q, v)), (4, 6), (5, 6))

entry("resizing", lambda: L.Resizing(5, 9), IMAGE)
entry("resizing_nearest", lambda: L.Resizing(5, 9, interpolation="nearest"), IMAGE)
entry("resizing_bicubic", lambda: L.Resizing(5, 9, interpolation="bicubic"), IMAGE)
entry("resizing_crop", lambda: L.Resizing(5, 9, crop_to_aspect_ratio=True), IMAGE)
entry("resizing_pad", lambda: L.Resizing(5, 9, pad_to_aspect_ratio=True), IMAGE)
entry("resizing_lanczos", lambda: L.Resizing(5, 9, interpolation="lanczos3", antialias=True), IMAGE)
entry("centercrop", lambda: L.CenterCrop(4, 5), IMAGE)
entry("centercrop_larger", lambda: L.CenterCrop(10, 9), IMAGE)
for _name, _args in {
    "RandomFlip": (), "RandomRotation": (0.2,), "RandomZoom": (0.2,), "RandomTranslation": (0.2, 0.2), "RandomContrast": (0.2,),
    "RandomBrightness": (0.2,), "RandomCrop": (4, 5), "RandomHue": (0.2,), "RandomSaturation": (0.2,), "RandomSharpness": (0.2,),
    "RandomShear": (0.2,), "RandomGrayscale": (0.5,), "RandomColorJitter": (), "RandomPosterization": (4,), "RandomPerspective": (),
    "RandomInvert": (), "RandomErasing": (), "RandomGaussianBlur": (), "RandomElasticTransform": (), "RandomColorDegeneration": (0.2,),
    "AutoContrast": (), "Equalization": (), "Solarization": (), "ContrastLimitedAdaptiveHistogramEqualization": (), "MixUp": (), "CutMix": (), "RandAugment": (), "AugMix": (),
}.items():  # fmt: skip
    if hasattr(L, _name):
        entry(
            _name.lower(),
            lambda n=_name, a=_args: getattr(L, n)(*a),
            IMAGE,
            cases=[[R.uniform(0, 255, (2, *IMAGE)).astype(np.float32)]],
        )
entry("stftspectrogram", lambda: L.STFTSpectrogram("magnitude", 16, 8, 16), (64, 1))
entry("stftspectrogram_real", lambda: L.STFTSpectrogram("real", 16, 8, 16), (64, 1))
entry("melspectrogram", lambda: L.MelSpectrogram(32, 8, 32, sampling_rate=800, max_freq=400.0, num_mel_bins=6), (128,))
integers("embedding", lambda: L.Embedding(9, 4), R.integers(0, 9, (2, 5)))
integers(
    "embedding_mask", lambda: keras.Sequential([L.Embedding(9, 4, mask_zero=True), L.GRU(3)]), R.integers(0, 9, (2, 5))
)
integers("reversible", lambda: L.ReversibleEmbedding(9, 4), R.integers(0, 9, (2, 5)))
for _mode in ("one_hot", "multi_hot", "count"):
    integers(f"categoryencoding_{_mode}", lambda m=_mode: L.CategoryEncoding(6, m),
             R.integers(0, 6, (2, 1 if _mode == "one_hot" else 4)))  # fmt: skip
integers("integerlookup", lambda: L.IntegerLookup(vocabulary=[4, 7, 2]), np.array([[4, 2], [9, 7]]))
integers(
    "integerlookup_multi",
    lambda: L.IntegerLookup(vocabulary=[4, 7, 2], output_mode="multi_hot"),
    np.array([[4, 2], [9, 7]]),
)
integers("integerlookup_invert", lambda: L.IntegerLookup(vocabulary=[4, 7, 2], invert=True), np.array([[1, 2], [3, 0]]))
integers("hashing", lambda: L.Hashing(5), np.array([[4, 2], [9, 7]]))
integers("hashing_salt", lambda: L.Hashing(5, salt=17), np.array([[4, 2], [9, 7]]))
for _mode in ("int", "one_hot", "multi_hot", "count"):
    entry(f"discretization_{_mode}", lambda m=_mode: L.Discretization([-0.5, 0.0, 0.7], output_mode=m), (4,))
words("stringlookup", lambda: L.StringLookup(vocabulary=["a", "bc"]), [["a", "x"], ["bc", ""]])
words("stringlookup_tfidf",
      lambda: L.StringLookup(vocabulary=["a", "bc"], output_mode="tf_idf", idf_weights=[0.5, 0.75]), [["a", "x"], ["bc", "a"]])  # fmt: skip
words("textvectorization", lambda: L.TextVectorization(vocabulary=["the", "cat"]), ["The cat, the dog", "", "cat!"])
words(
    "textvectorization_hot",
    lambda: L.TextVectorization(vocabulary=["the", "cat"], output_mode="multi_hot"),
    ["The cat", "dog"],
)
words("hashing_words", lambda: L.Hashing(7, mask_value=""), [["a"], [""], ["bcd"]])
