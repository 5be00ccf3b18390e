"""Decompositions of caches and rotary embeddings of grouped query attention, for targets without kernels for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module
from mgx_core.errors import ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.rotary import GqaRotaryEmbedding
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of


def parts_alone(op: Any, inputs: list[Any]) -> Any:
    """Returns the result of an op's decomposition."""
    module = Module("main")
    args = [module.add_parameter(f"x{i}", shape_of(x)) for i, x in enumerate(inputs)]
    whole = module.add(op, *args)
    parts = op.decompose(Builder(module, whole), *args)
    module.add_return([parts])
    assert parts.shape.dims == whole.shape.dims
    module.sweep()
    return Interpreter().run(module, inputs)[0]


def both(op: Any, inputs: list[Any]) -> tuple[Any, Any]:
    """Returns the op's own result and that of its decomposition."""
    return op.evaluate(inputs), parts_alone(op, inputs)


def rows(*dims: int) -> Any:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("tokens", [[4, 9], [0, 1], [9, -1]])
@pytest.mark.parametrize("new", [1, 3])
def test_rotary_by_lengths(new: int, tokens: list[int], interleaved: bool) -> None:
    op = GqaRotaryEmbedding(interleaved=interleaved)
    one, other = both(op, [rows(2, 3, new, 6), np.array(tokens, np.int32), rows(10, 2), rows(10, 2)])
    np.testing.assert_allclose(other, one, atol=1e-6)


@pytest.mark.parametrize("tokens", [10, -2])
@pytest.mark.parametrize("new", [1, 3])
def test_rotary_refuses_lengths_outside_the_tables(new: int, tokens: int) -> None:
    inputs = [rows(1, 1, new, 4), np.array([tokens]), rows(10, 2), rows(10, 2)]
    with pytest.raises(ShapeError, match="seqlens_k must lie in"):
        GqaRotaryEmbedding().evaluate(inputs)
    with pytest.raises(ShapeError):
        parts_alone(GqaRotaryEmbedding(), inputs)


@pytest.mark.parametrize("tokens", [[4, 6], [0, 2], [-1, 5]])
@pytest.mark.parametrize("new", [1, 2, 4])
@pytest.mark.parametrize("length", [None, 7, 9, 11])
def test_caches(length: int | None, new: int, tokens: list[int]) -> None:
    past = rows(2, 3, 9, 4)
    op = ConcatPastPresent(length=length)
    one, other = both(op, [rows(2, 3, new, 4), np.array(tokens, np.int32), past])
    np.testing.assert_array_equal(other, one)


def test_caches_refuse_tokens_without_a_place() -> None:
    inputs = [rows(1, 1, 1, 4), np.array([9]), rows(1, 1, 9, 4)]
    with pytest.raises(ShapeError, match="a sample has 10 tokens, the cache holds 9"):
        ConcatPastPresent().evaluate(inputs)
    with pytest.raises(ShapeError):
        parts_alone(ConcatPastPresent(), inputs)
