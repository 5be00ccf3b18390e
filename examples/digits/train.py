"""Trains the small network that `demo.py` runs, in plain numpy, and writes digits.onnx and digits.npz beside this file.

The data are scikit-learn's 1797 handwritten digits: 8x8 images with pixel values from 0 to 16.  The network takes pixels / 16,
so that its input is in [0, 1], and returns ten probabilities.  A fifth of the images is held out; digits.npz contains these,
their labels, and onnxruntime's answers for them.

Needs scikit-learn, onnx and onnxruntime (`pip install scikit-learn onnx onnxruntime`); takes less than a minute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
EPOCHS, BATCH, RATE = 25, 32, 1e-3


class Conv:
    """3x3 convolution of [N, C, H, W] with one pixel of zero padding."""

    def __init__(self, rng, channels, filters):
        self.params = [
            rng.normal(0, np.sqrt(2 / (9 * channels)), (filters, channels, 3, 3)).astype(np.float32),
            np.zeros(filters, np.float32),
        ]

    def forward(self, x):
        w, b = self.params
        windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
        self.columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, w[0].size)
        self.shape = x.shape
        n, _, h, width = x.shape
        return (self.columns @ w.reshape(len(w), -1).T + b).reshape(n, h, width, -1).transpose(0, 3, 1, 2)

    def backward(self, up):
        w, _ = self.params
        flat = up.transpose(0, 2, 3, 1).reshape(-1, len(w))
        self.grads = [(flat.T @ self.columns).reshape(w.shape), flat.sum(0)]
        n, c, h, width = self.shape
        pieces = (flat @ w.reshape(len(w), -1)).reshape(n, h, width, c, 3, 3)
        down = np.zeros((n, c, h + 2, width + 2), np.float32)
        for i, j in np.ndindex(3, 3):
            down[:, :, i : i + h, j : j + width] += pieces[..., i, j].transpose(0, 3, 1, 2)
        return down[:, :, 1:-1, 1:-1]


class Relu:
    params = ()

    def forward(self, x):
        self.open = x > 0
        return x * self.open

    def backward(self, up):
        return up * self.open


class Pool:
    """Max pooling over 2x2 windows."""

    params = ()

    def forward(self, x):
        n, c, h, w = x.shape
        windows = x.reshape(n, c, h // 2, 2, w // 2, 2)
        best = windows.max((3, 5), keepdims=True)
        self.won = windows == best
        return best[:, :, :, 0, :, 0]

    def backward(self, up):
        down = self.won * (up[:, :, :, None, :, None] / self.won.sum((3, 5), keepdims=True))
        n, c, h, _, w, _ = down.shape
        return down.reshape(n, c, 2 * h, 2 * w).astype(np.float32)


class Dense:
    def __init__(self, rng, inputs, outputs):
        self.params = [
            rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        ]

    def forward(self, x):
        self.shape, self.x = x.shape, x.reshape(len(x), -1)
        return self.x @ self.params[0] + self.params[1]

    def backward(self, up):
        self.grads = [self.x.T @ up, up.sum(0)]
        return (up @ self.params[0].T).reshape(self.shape)


def train(x, labels, rng):
    layers = [
        Conv(rng, 1, 16),
        Relu(),
        Conv(rng, 16, 32),
        Relu(),
        Pool(),
        Dense(rng, 512, 64),
        Relu(),
        Dense(rng, 64, 10),
    ]
    params = [(layer, i) for layer in layers for i in range(len(layer.params))]
    first = [np.zeros_like(layer.params[i]) for layer, i in params]
    second = [np.zeros_like(m) for m in first]
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(x))
        loss = 0.0
        for start in range(0, len(x), BATCH):
            chosen = order[start : start + BATCH]
            shift = rng.integers(-1, 2, 2)  # an image shifted by a pixel is the same digit
            y = np.roll(x[chosen], shift, (2, 3))
            for layer in layers:
                y = layer.forward(y)
            y = np.exp(y - y.max(1, keepdims=True))
            y /= y.sum(1, keepdims=True)
            rows = np.arange(len(chosen))
            loss -= np.log(y[rows, labels[chosen]] + 1e-9).sum()
            y[rows, labels[chosen]] -= 1
            up = (y / len(chosen)).astype(np.float32)
            for layer in reversed(layers):
                up = layer.backward(up)
            step += 1
            for (layer, i), m, v in zip(params, first, second, strict=True):  # Adam
                m += 0.1 * (layer.grads[i] - m)
                v += 0.001 * (layer.grads[i] ** 2 - v)
                layer.params[i] -= RATE * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        print(f"epoch {epoch + 1:2d}  loss {loss / len(x):.4f}")
    return [layer.params[i] for layer, i in params]


def model(params):
    names = [
        "conv1.weight",
        "conv1.bias",
        "conv2.weight",
        "conv2.bias",
        "fc1.weight",
        "fc1.bias",
        "fc2.weight",
        "fc2.bias",
    ]
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", pads=[1, 1, 1, 1]),
            node("Relu", ["conv1"], ["relu1"], "relu1"),
            node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", pads=[1, 1, 1, 1]),
            node("Relu", ["conv2"], ["relu2"], "relu2"),
            node("MaxPool", ["relu2"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["pool"], ["flat"], "flat"),
            node("Gemm", ["flat", "fc1.weight", "fc1.bias"], ["fc1"], "fc1"),
            node("Relu", ["fc1"], ["relu3"], "relu3"),
            node("Gemm", ["relu3", "fc2.weight", "fc2.bias"], ["fc2"], "fc2"),
            node("Softmax", ["fc2"], ["probabilities"], "softmax", axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(p, name) for p, name in zip(params, names, strict=True)],
        doc_string="Handwritten digits, 8x8 pixels in [0, 1]; trained by examples/digits/train.py",
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, producer_name="mgx examples"
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def main() -> None:
    data = load_digits()
    pixels = data.images.astype(np.uint8)
    split = train_test_split(pixels, data.target, test_size=0.2, stratify=data.target, random_state=0)
    train_pixels, test_pixels, train_labels, test_labels = split
    made = model(train(train_pixels[:, None].astype(np.float32) / 16, train_labels, np.random.default_rng(0)))
    onnx.save(made, HERE / "digits.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (answers,) = session.run(None, {"image": test_pixels[:, None].astype(np.float32) / 16})
    print(f"held out: {np.mean(answers.argmax(1) == test_labels):.2%} of {len(test_labels)} images")
    np.savez_compressed(
        HERE / "digits.npz",
        images=test_pixels,
        labels=test_labels.astype(np.int64),
        answers=answers,
        runtime=np.array(f"onnxruntime {onnxruntime.__version__}"),
    )


if __name__ == "__main__":
    main()
