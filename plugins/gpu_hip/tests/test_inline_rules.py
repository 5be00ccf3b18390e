"""Cheap pointwise work is computed by its readers, behind broadcasts and slices."""

from __future__ import annotations

import numpy as np
import pytest
from built_program import BuiltProgram

waves = pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
kinds = pytest.mark.parametrize("kind", ["float32", "float16"])


@waves
@kinds
def test_broadcasts(kind: str, device: int) -> None:
    """1 - w is computed where it is broadcast, and w, which broadcasts read only, as well."""
    b = BuiltProgram(1)
    (x, _), (y, _) = b.argument(5, 3, kind=kind), b.argument(5, 4, 3, kind=kind)
    w = b.add("sub", x, b.add("floor", x))
    one = b.add("multibroadcast", b.main.add_literal(np.ones((), kind)), out_lens=[5, 1, 3])
    wide = b.add("unsqueeze", w, axes=[1])
    one, wide = (b.add("multibroadcast", v, out_lens=[5, 4, 3]) for v in (b.add("sub", one, wide), wide))
    picked = b.add("where", b.add("greater", y, wide), wide, one)
    (step,) = b.checked_steps(b.add("reduce_prod", picked, axes=[2]), device, 1e-6 if kind == "float32" else 4e-3)
    assert "reduce" in step.kernel


@waves
@pytest.mark.parametrize("squeezed", [False, True])
def test_slices(squeezed: bool, device: int) -> None:
    """Coordinates that are taken apart and combined."""
    b = BuiltProgram(2)
    (x, _), (y, _) = b.argument(40, 3, kind="float32"), b.argument(8, 3, kind="float32")
    x, y = b.add("unsqueeze", x, axes=[1]), b.add("unsqueeze", y, axes=[0])
    moved = b.add("add", *(b.add("multibroadcast", v, out_lens=[40, 8, 3]) for v in (x, y)))
    parts = [b.add("slice", moved, axes=[2], starts=[n], ends=[n + 1]) for n in range(3)]
    parts = [b.add("squeeze", p, axes=[2]) for p in parts] if squeezed else parts
    first, second, third = parts
    (step,) = b.checked_steps(b.add("mul", b.add("exp", b.add("sub", first, second)), third), device, 1e-5)
    assert "pointwise" in step.kernel


def test_slices_behind_a_long_chain() -> None:
    """Six ops on a parameter are no epilogue."""
    b = BuiltProgram(5)
    (x, _) = b.argument(40, 2, kind="float32")
    for n in range(3):
        x = b.add("abs", b.add("sub", x, b.main.add_literal(np.full((40, 2), 0.1 * n, "float32"))))
    one, other = (b.add("slice", x, axes=[1], starts=[n], ends=[n + 1]) for n in range(2))
    (step,) = b.checked_steps(b.add("mul", b.add("exp", one), other), 1, 1e-5)
    assert "pointwise" in step.kernel


@pytest.mark.parametrize("why", ["product", "reader", "overlap", "read whole", "costly"])
def test_slices_of_other_work_stay(why: str) -> None:
    b = BuiltProgram(3)
    (x, _), (y, _) = b.argument(2, 32, 24, kind="float32"), b.argument(2, 32, 24, kind="float32")
    if why == "product":
        x = b.add("dot", x, b.argument(2, 24, 24, kind="float32")[0])
    work = b.add("exp", x) if why == "costly" else b.add("add", x, y)
    ends = [12, 24]
    starts = [0, 6 if why == "overlap" else 12]
    one, other = (b.add("slice", work, axes=[2], starts=[s], ends=[e]) for s, e in zip(starts, ends, strict=True))
    if why == "reader":
        made = b.add("dot", one, b.add("transpose", other, permutation=[0, 2, 1]))
    elif why == "overlap":
        made = b.add("concat", b.add("exp", one), b.add("exp", other), axis=2)
    else:
        made = b.add("mul", b.add("tanh", one), other)
    made = b.add("concat", made, work, axis=2) if why == "read whole" else made
    steps = b.checked_steps(made, 1, 1e-4)
    assert any(list(s.outputs[0].lens) == [2, 32, 24] for s in steps), [s.kernel for s in steps]


@pytest.mark.parametrize("why", ["attention", "product", "twice"])
def test_broadcasts_of_other_work_stay(why: str) -> None:
    b = BuiltProgram(4)
    mask = b.argument(2, 1, 1, 24, kind="float32")[0]
    work = b.add("sub", mask, b.add("abs", mask))
    wide = b.add("multibroadcast", work, out_lens=[2, 4, 24, 24])
    x = b.argument(2, 4, 24, 24, kind="float32")[0]
    if why == "product":
        x = b.add("dot", x, x)
    made = b.add("add", x, wide)
    made = b.add("softmax", made, axis=3) if why == "attention" else b.add("relu", made)
    if why == "twice":
        made = b.add("concat", made, b.add("dot", b.add("multibroadcast", work, out_lens=[2, 4, 3, 24]), made), axis=2)
    steps = b.checked_steps(made, 1, 1e-4)
    assert any(list(s.outputs[0].lens) == [2, 1, 1, 24] for s in steps), [s.kernel for s in steps]
