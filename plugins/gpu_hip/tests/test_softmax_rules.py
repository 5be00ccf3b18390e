"""Softmax runs in one kernel with the pointwise work and the reductions that read it."""

from __future__ import annotations

import numpy as np
import pytest
from built_program import BuiltProgram

waves = pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])


@waves
@pytest.mark.parametrize("name", ["softmax", "logsoftmax"])
@pytest.mark.parametrize("axis", [1, 2])
def test_conversion_of_the_result(name: str, axis: int, device: int) -> None:
    b = BuiltProgram(1)
    x, _ = b.argument(3, 9, 33)
    (step,) = b.checked_steps(b.add("convert", b.add(name, x, axis=axis), target_type="float32"), device, 4e-3)
    assert "reduce" in step.kernel


@waves
def test_expected_value(device: int) -> None:
    """Distances of detectors: the mean of the bins, weighed by their probabilities."""
    b = BuiltProgram(2)
    x, _ = b.argument(2, 4, 16, 21)
    bins = b.add(
        "multibroadcast", b.main.add_literal(np.arange(16, dtype=np.float16)[:, None]), out_lens=[2, 4, 16, 21]
    )
    weighed = b.add("mul", b.add("softmax", x, axis=2), bins)
    assert len(b.checked_steps(b.add("reduce_sum", weighed, axes=[2]), device, 2e-3)) == 1


def test_largest_probability_and_its_place() -> None:
    """Nothing stores the probabilities."""
    b = BuiltProgram(3)
    x, value = b.argument(6, 300, kind="float32")
    chance = b.add("softmax", x, axis=1)
    best = b.add("reduce_max", chance, axes=[1])
    place = b.add("convert", b.add("argmax", chance, axis=1), target_type="float32")
    steps = b.checked_steps(b.add("concat", best, place, axis=1), 1, 1e-5)
    assert not any(v.lens == list(value.shape) for s in steps for v in s.outputs)


def test_softmax_between_products_stays() -> None:
    """Attention has kernels of its own."""
    b = BuiltProgram(4)
    (q, _), (k, _), (v, _) = (b.argument(1, 2, 8, 16) for _ in range(3))
    scores = b.add("dot", q, b.add("transpose", k, permutation=[0, 1, 3, 2]))
    half = b.add("multibroadcast", b.main.add_literal(np.float16(0.5)), out_lens=[1, 2, 8, 8])
    weights = b.add("mul", b.add("softmax", scores, axis=3), half)
    steps = b.checked_steps(b.add("dot", weights, v), 1, 4e-3)
    assert any("softmax" in s.name for s in steps)
