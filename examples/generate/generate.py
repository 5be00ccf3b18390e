"""Generates tokens with a decoder whose key-value cache is passed and returned as tensors.

python examples/generate/generate.py decoder.onnx [--target cpu] [--prompt 5,17,42] [--tokens 32] [--temperature 0]

The file is compiled once; prompt and single tokens are runs of one program with different extents.  `--temperature 0` selects
the most likely token each time, other values sample.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx


class Generator:
    """A compiled decoder and the state of one text."""

    def __init__(self, path: Path, target: str) -> None:
        self.program = mgx.parse_onnx(path)
        self.program.compile(mgx.get_target(target))
        shapes = self.program.get_parameter_shapes()
        self.names = [n for n in shapes if n != "ids"]
        self.empty = {
            n: np.zeros([d if isinstance(d, int) else 0 for d in shapes[n].dims], np.float32) for n in self.names
        }

    def run(self, ids: Sequence[int], past: dict[str, Any]) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """Returns the logits after the last token, and the cache including the tokens."""
        logits, *present = self.program.run({"ids": np.array([ids], np.int64), **past})
        return np.asarray(logits)[0, -1], dict(zip(self.names, present, strict=True))

    def tokens(self, prompt: Sequence[int], temperature: float, seed: int = 0) -> Iterator[int]:
        """Yields tokens one by one."""
        rng = np.random.default_rng(seed)
        logits, past = self.run(prompt, self.empty)
        while True:
            token = chosen(logits, temperature, rng)
            yield token
            logits, past = self.run([token], past)


def chosen(logits: np.ndarray[Any, Any], temperature: float, rng: np.random.Generator) -> int:
    if not temperature:
        return int(logits.argmax())
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--prompt", default="5,17,42")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=0.0)
    given = parser.parse_args()
    stream = Generator(given.path, given.target).tokens([int(t) for t in given.prompt.split(",")], given.temperature)
    first = next(stream)
    start = time.perf_counter()
    rest = [next(stream) for _ in range(given.tokens - 1)]
    print(first, *rest)
    print(f"{len(rest) / (time.perf_counter() - start):.0f} tokens a second")


if __name__ == "__main__":
    main()
