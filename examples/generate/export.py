"""Exports a small decoder with random weights to ONNX: one file for prompts and for single tokens.

python examples/generate/export.py decoder.onnx [--layers 4] [--heads 8]

The number of tokens and the length of the cache stay symbolic.  Needs torch and onnxscript.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from decoder import Decoder, Sizes


def export(sizes: Sizes, path: Path) -> Decoder:
    """Writes the model; returns its torch module."""
    torch.manual_seed(0)
    module = Decoder(sizes).eval()
    past = tuple(torch.zeros(1, sizes.kv_heads, 3, sizes.head) for _ in range(2 * sizes.layers))
    names = [f"{kind}.{n}" for n in range(sizes.layers) for kind in ("keys", "values")]
    length, known = torch.export.Dim("length", max=4096), torch.export.Dim("known", max=4096)
    torch.onnx.export(
        module,
        (torch.ones(1, 2, dtype=torch.int64), *past),
        path,
        dynamo=True,
        input_names=["ids", *(f"past.{n}" for n in names)],
        output_names=["logits", *(f"present.{n}" for n in names)],
        dynamic_shapes={"ids": {1: length}, "past": tuple({2: known} for _ in past)},
        opset_version=18,
        verbose=False,
    )
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    given = parser.parse_args()
    export(Sizes(given.layers, given.heads, 2, 64, 4 * 64 * given.heads, 1000), given.path)


if __name__ == "__main__":
    main()
