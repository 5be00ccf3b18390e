"""Quantizes four small networks with the default methods, and measures the loss of accuracy on held-out data.

The digits network, a residual CNN and a vision transformer classify handwritten digits; a causal language model predicts
characters of the standard library's docstrings.  Prints a table; with a folder as argument also writes each quantization's
report there.  The exit status is 1 if a network loses more than is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from docstrings import docstrings, windows

import mgx_core as mgx
from mgx_core.quantize import QuantizeReport

HERE = Path(__file__).parent
DIGITS = HERE.parent / "digits"
NETWORKS = {
    "digits": DIGITS / "digits.onnx",
    "residual": HERE / "residual.onnx",
    "vision_transformer": HERE / "vision_transformer.onnx",
    "language": HERE / "language.onnx",
}
BATCH = 32
HELD_OUT = 256  # windows of text used to measure perplexity

__all__ = ["MOST", "docstrings", "lost", "measured", "windows"]


def images(pixels: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    for n in range(0, len(pixels), BATCH):
        yield {"image": (pixels[n : n + BATCH, None] / 16).astype(np.float32)}


def texts(rows: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    for n in range(0, len(rows), BATCH):
        yield {"text": np.ascontiguousarray(rows[n : n + BATCH, :-1])}


def accuracy(program: mgx.Program) -> float:
    """Returns the share of held-out images that are classified correctly."""
    with np.load(DIGITS / "digits.npz") as stored:
        pixels, labels = stored["images"], stored["labels"]
    found = np.concatenate([np.asarray(program.run(batch)[0]).argmax(1) for batch in images(pixels)])
    return float(np.mean(found == labels))


def perplexity(program: mgx.Program) -> float:
    """Returns exp of the mean loss on held-out text, negated, so that larger is better."""
    rows = windows(held_out=True, most=HELD_OUT)
    losses = []
    for n, batch in enumerate(texts(rows)):
        logits = np.asarray(program.run(batch)[0], np.float64)
        logits -= logits.max(-1, keepdims=True)
        wanted = rows[n * BATCH : (n + 1) * BATCH, 1:, None]
        right = np.take_along_axis(logits, wanted, -1)[..., 0]
        losses.append((np.log(np.exp(logits).sum(-1)) - right).reshape(-1))
    return -float(np.exp(np.concatenate(losses).mean()))


def calibration(name: str) -> Iterator[dict[str, np.ndarray]]:
    """Returns batches of training data."""
    if name == "language":
        return texts(windows(held_out=False, most=128))
    with np.load(HERE / "calibration.npz") as stored:
        return images(stored["images"])


Quantizer = Callable[[mgx.Program, Iterator[dict[str, np.ndarray]], QuantizeReport], object]
METHODS: dict[str, Quantizer] = {
    "int8": lambda p, data, report: mgx.quantize_int8(p, data, report=report),
    "fp8": lambda p, data, report: mgx.quantize_fp8(p, data, report=report),
    "int4 weights": lambda p, data, report: mgx.quantize_int4_weights(p, report=report),
    "int4 weights, gptq": lambda p, data, report: mgx.quantize_int4_weights(
        p, method="gptq", calibration=data, report=report
    ),
}
# maximum loss: percentage points of accuracy, or relative perplexity
MOST = {"int8": (0.003, 0.01), "fp8": (0.003, 0.01), "int4 weights": (None, 0.03), "int4 weights, gptq": (None, 0.01)}


def measured(name: str, method: str | None, report: QuantizeReport | None = None) -> float:
    """Returns the accuracy of a network, or its negated perplexity, in float or quantized by a method."""
    program = mgx.parse_onnx(NETWORKS[name])
    if method is not None:
        METHODS[method](program, calibration(name), QuantizeReport() if report is None else report)
    program.compile(mgx.get_target(mgx.best_target()))
    return perplexity(program) if name == "language" else accuracy(program)


def lost(name: str, before: float, after: float) -> float:
    """Returns the loss in percentage points of accuracy, or in relative perplexity."""
    return after / before - 1 if name == "language" else before - after


def main(pages: Path | None) -> int:
    good = True
    for name in NETWORKS:
        before = measured(name, None)
        print(f"{name:20} float32              {abs(before):8.4f}")
        for method, (points, part) in MOST.items():
            allowed = part if name == "language" else points
            if allowed is None:
                continue
            report = QuantizeReport()
            after = measured(name, method, report)
            report.accuracy = before, after
            worse = lost(name, before, after)
            good &= worse <= allowed
            print(f"{name:20} {method:20} {abs(after):8.4f}  lost {worse:8.4%} of at most {allowed:.1%}", flush=True)
            if pages is not None:
                pages.mkdir(parents=True, exist_ok=True)
                (pages / f"{name} {method}.html".replace(", ", " ").replace(" ", "_")).write_text(
                    report.html(), encoding="utf-8"
                )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
