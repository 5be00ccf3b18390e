"""Linear attention over many steps becomes a scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.ops.linear_attention import MOST_UNROLLED
from mgx_core.passes.step_linear_attention import StepLinearAttention

RNG = np.random.default_rng(3)


def text(steps: str, batch: str = "2", past: bool = True) -> str:
    state = f'  %s = @param["s"] -> float32[{batch}, 2, 3, 4]\n' if past else ""
    return f"""\
symbol N in 1..8
symbol T in 1..64
module main
  %q = @param["q"] -> float32[{batch}, {steps}, 12]
  %k = @param["k"] -> float32[{batch}, {steps}, 6]
  %v = @param["v"] -> float32[{batch}, {steps}, 8]
{state}  %d = @param["d"] -> float32[{batch}, {steps}, 2]
  %b = @param["b"] -> float32[{batch}, {steps}, 2]
  %1 = linear_attention[q_num_heads=4, kv_num_heads=2](%q, %k, %v, {"%s" if past else "-"}, %d, %b)
  %2 = get_tuple_elem[index=0](%1)
  %3 = get_tuple_elem[index=1](%1)
  @return(%2, %3)"""


def values(batch: int, steps: int, past: bool = True) -> dict[str, Any]:
    dims = {"q": (steps, 12), "k": (steps, 6), "v": (steps, 8), "d": (steps, 2), "b": (steps, 2)}
    dims |= {"s": (2, 3, 4)} if past else {}
    return {n: RNG.normal(size=(batch, *d)).astype(np.float32) / 2 for n, d in dims.items()}


def ops(module: Module) -> list[str]:
    return [i.op.name for i in module if not (i.is_param or i.is_literal or i.is_return or i.is_absent)]


@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize(("batch", "steps"), [("2", "9"), ("N", "T")])
def test_many_steps_become_a_scan(batch: str, steps: str, past: bool) -> None:
    module = parse_module(text(steps, batch, past), STANDARD)
    assert StepLinearAttention().apply(module)
    module.sweep()
    assert verify(module) == []
    assert ops(module)[-3:] == ["scan", "get_tuple_elem", "get_tuple_elem"]
    literals = [i.get_literal().to_numpy() for i in module if i.is_literal]  # tensors, which targets copy
    assert [v.shape for v in literals] == ([] if past else [()])
    wanted = parse_module(text("9", "2", past), STANDARD)
    given = values(2, 9, past)
    for one, other in zip(run(module, given), run(wanted, given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def run(module: Module, given: dict[str, Any]) -> list[Any]:
    return [np.asarray(x) for x in evaluate_module(module, [given[n] for n in module.parameters])]


def test_few_steps_are_left_to_the_decomposition() -> None:
    module = parse_module(text(str(MOST_UNROLLED)), STANDARD)
    assert not StepLinearAttention().apply(module)


@pytest.mark.parametrize("past", [True, False])
def test_a_narrow_state_is_rounded_once(past: bool) -> None:
    """Sums beyond 2048, to which float16 cannot add 1, and a state that is returned in float16."""
    batch, steps = 1, 3000
    shape = "1, 2, 3, 4"
    text_of = f"""\
module main
  %q = @param["q"] -> float16[1, {steps}, 12]
  %k = @param["k"] -> float16[1, {steps}, 6]
  %v = @param["v"] -> float16[1, {steps}, 8]
  %s = @param["s"] -> float16[{shape}]
  %1 = linear_attention[q_num_heads=4, kv_num_heads=2, update_rule="linear"](%q, %k, %v{", %s" if past else ""})
  %2 = get_tuple_elem[index=0](%1)
  %3 = get_tuple_elem[index=1](%1)
  @return(%2, %3)"""
    dims = {"q": (steps, 12), "k": (steps, 6), "v": (steps, 8), "s": (2, 3, 4)}
    given = {n: np.ones((batch, *d), np.float16) for n, d in dims.items()}
    module, wanted = (parse_module(text_of, STANDARD) for _ in range(2))
    assert StepLinearAttention().apply(module)
    module.sweep()
    assert verify(module) == []
    for one, other in zip(run(module, given), run(wanted, given), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-3)
