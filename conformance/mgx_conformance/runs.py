"""Runs programs and compares their results with others or with the reference; arguments in other layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Argument

from .compare import differs
from .noise import expected

__all__ = ["arrays", "judge", "layouts_of", "same"]


def arrays(program: Any, feed: dict[str, Any]) -> list[Any]:
    """Returns the results of a run."""
    return [a.value for a in program.run(feed)]


def same(a: list[Any], b: list[Any]) -> bool:
    """Returns True if two lists of tensors have the same bits."""
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)
    )


def judge(program: Any, source: Any, feed: dict[str, Any]) -> None:
    """Runs a compiled program.

    Errors: AssertionError if a result deviates from the reference result of `source`, the same program, by more than rounding.
    """
    module = source.get_main_module()
    wanted = expected(module, [feed[n] for n in module.parameters])
    for n, (got, value, allowed) in enumerate(
        zip(arrays(program, feed), wanted.results, wanted.tolerances, strict=True)
    ):
        why = differs(got, value, allowed)
        assert not why, f"result {n}: {why}"


def layouts_of(x: Any) -> dict[str, Any]:
    """Returns a float32 tensor of rank 2 in other layouts, in misaligned and in read-only memory, by name."""
    bytes_off = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    bytes_off[...] = x
    wide = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)
    wide[:, ::2] = x
    locked = x.copy()
    locked.flags.writeable = False
    return {
        "column-major": np.asfortranarray(x), "reversed": x[::-1, ::-1].copy()[::-1, ::-1], "strided": wide[:, ::2],
        "misaligned": bytes_off, "read-only": locked, "argument": Argument(x),
    }  # fmt: skip
