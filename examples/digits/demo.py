"""Classifies handwritten digits with mgx: loads digits.onnx, compiles it for the best installed target, checks every answer.

The images have 8x8 pixels with values from 0 to 16; the network takes pixels / 16 as float32 [batch, 1, 8, 8].  digits.npz
contains images that were not used in training, their labels and the answers of another runtime.  The exit status is 1 if fewer
than 97 % of the images are classified correctly, or if an answer differs from the stored one by more than 1e-4.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import mgx_core as mgx

HERE = Path(__file__).parent
LEAST_ACCURACY, MOST_DIFFERENCE = 0.97, 1e-4


def drawn(pixels, colors: bool) -> Text:
    """Renders an image with two pixels per character cell: gray blocks, or black and white if the terminal has no colors."""
    text = Text()
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        for a, b in zip(upper, lower, strict=True):
            if colors:
                top, bottom = (min(255, ink * 16) for ink in (a, b))
                text.append("▀", f"rgb({top},{top},{top}) on rgb({bottom},{bottom},{bottom})")
            else:
                text.append(" ▀▄█"[(a > 7) + 2 * (b > 7)])
        text.append("\n")
    return text


def classify(program: mgx.Program, images) -> np.ndarray:
    """Returns ten probabilities for each image."""
    (result,) = program.run({"image": np.ascontiguousarray(images[:, None].astype(np.float32) / 16)})
    return np.asarray(result)


def main() -> int:
    console = Console()
    stored = np.load(HERE / "digits.npz")
    images, labels, expected = stored["images"], stored["labels"], stored["answers"]

    target = mgx.best_target()
    start = time.perf_counter()
    program = mgx.parse_onnx(HERE / "digits.onnx")
    parsed = time.perf_counter()
    program.compile(mgx.get_target(target))
    compiled = time.perf_counter()
    classify(program, images)  # the first run of a batch size also compiles for it
    again = time.perf_counter()
    answers = classify(program, images)
    seconds = time.perf_counter() - again
    classes = answers.argmax(1)

    # show correct answers, and all wrong ones
    wrong = np.flatnonzero(classes != labels)
    shown = [*(np.flatnonzero((classes == labels) & (labels == d))[0] for d in range(10)), *wrong[:5]]
    for row in (shown[:5], shown[5:10], shown[10:]):
        grid = Table.grid(padding=(0, 3))
        grid.add_row(*(drawn(images[i], console.color_system is not None) for i in row))
        grid.add_row(
            *(
                Text(
                    f"{classes[i]}  {answers[i].max():.0%}" + ("" if classes[i] == labels[i] else f"  not {labels[i]}"),
                    "green" if classes[i] == labels[i] else "red",
                )
                for i in row
            )
        )
        console.print(grid)

    accuracy = float(np.mean(classes == labels))
    difference = float(np.abs(answers - expected).max())
    good = accuracy >= LEAST_ACCURACY and difference <= MOST_DIFFERENCE
    for name, value in {
        "target": target,
        "parse, compile": f"{(parsed - start) * 1e3:.1f} ms, {(compiled - parsed) * 1e3:.1f} ms",
        "accuracy": f"{accuracy:.2%} of {len(labels)} held-out images (at least {LEAST_ACCURACY:.0%})",
        "time": f"{seconds / len(labels) * 1e6:.1f} us an image in one batch of {len(labels)}",
        "agreement": f"{difference:.1e} from {stored['runtime']} at most (up to {MOST_DIFFERENCE:.0e})",
    }.items():
        console.print(f"{name:>14}  {value}", highlight=False)
    if not good:
        console.print("the answers are not accurate enough", style="red")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
