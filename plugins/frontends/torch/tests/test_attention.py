"""Attention: all masks that torch broadcasts, and functions of scores and positions."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from mgx_torch import lower_to_mgx

OP = torch.ops.aten.scaled_dot_product_attention.default


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("shape", [(5, 7), (5, 1), (1, 7), (1, 1), (2, 1, 1, 7), (2, 4, 5, 1), (4, 5, 1)])
def test_masks_of_every_form(shape: tuple[int, ...], dtype: torch.dtype, target: str, overloads: ModuleType) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 3)
    mask = torch.rand(shape) > 0.2 if dtype is torch.bool else torch.randn(shape)
    (found,) = overloads.computed(OP, (q, k, v, mask), {}, target)
    torch.testing.assert_close(found, OP(q, k, v, mask), rtol=1e-5, atol=1e-5)


def test_one_column_masks_all_keys_without_heads(overloads: ModuleType) -> None:
    q, k, mask = torch.randn(3, 5, 8), torch.randn(3, 7, 8), torch.arange(5)[:, None] > 1
    (found,) = overloads.computed(OP, (q, k, k, mask), {}, "ref")
    torch.testing.assert_close(found, OP(q, k, k, mask), rtol=1e-5, atol=1e-5)


BATCHES = [
    ((1, 1, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (2, 3, 7, 8)),
    ((2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
    ((2, 1, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
    ((2, 4, 5, 8), (2, 4, 7, 8), (2, 1, 7, 8)),
    ((2, 4, 5, 8), (4, 7, 8), (7, 8)),
    ((4, 5, 8), (2, 4, 7, 8), (2, 1, 7, 8)),
    ((3, 5, 8), (1, 7, 8), (3, 7, 8)),
    ((5, 8), (7, 8), (7, 8)),
    ((2, 1, 4, 5, 8), (1, 3, 4, 7, 8), (2, 3, 1, 7, 8)),
]


@pytest.mark.parametrize("dims", BATCHES, ids=str)
def test_batch_axes_are_broadcast(dims: tuple[tuple[int, ...], ...]) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(d) for d in dims)
    with torch.no_grad():
        compiled = torch.compile(functional.scaled_dot_product_attention, backend="mgx", options={"strict": True})
        torch.testing.assert_close(compiled(q, k, v), functional.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize(
    ("masked", "heads"), [("", 4), ("bool", 4), ("float", 4), ("float", 2), ("", 1), ("rows", 4), ("column", 2)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_gradients_of_attention(dtype: torch.dtype, masked: str, heads: int) -> None:
    """Its log-sum-exp, which the backward graph takes, is float32 for narrower types; heads of keys may be shared."""
    given = [
        torch.randn(2, h, rows, 8, dtype=dtype, requires_grad=True) for h, rows in ((4, 5), (heads, 7), (heads, 7))
    ]
    masks = {"bool": torch.rand(2, 1, 5, 7) > 0.3, "float": torch.randn(2, 1, 5, 7, dtype=dtype)}
    masks |= {"rows": (torch.arange(5) > 1).reshape(5, 1).expand(5, 7), "column": torch.randn(5, 1, dtype=dtype)}
    mask = masks.get(masked)

    def total(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        causal = mask is None
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True).square().sum()

    def gradients(function: Callable[..., Any]) -> Any:
        return torch.autograd.grad(function(*given, mask), given)

    found, eager = gradients(torch.compile(total, backend="mgx", options={"strict": True})), gradients(total)
    given = [x.detach().double().requires_grad_() for x in given]
    mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    for got, theirs, want in zip(found, eager, gradients(total), strict=True):
        assert got.dtype is dtype
        error, allowed = ((x.double() - want).abs().max() for x in (got, theirs))
        assert error <= 2 * allowed


SLOPES, BORDERS = torch.tensor([0.5, -0.25, 0.1, 0.0]), torch.tensor([3, 0])


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 9)


def border(b: Any, h: Any, i: Any, j: Any) -> Any:
    return j < BORDERS[b]  # allows nothing in the second element of the batch


def sloped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return torch.tanh(score / 2) * 2 + (i - j) * SLOPES[h]


FLEX: list[Callable[..., Any]] = [
    lambda q, k, v, masks: flex_attention(q, k, v, block_mask=masks[window], scale=0.3, enable_gqa=True),
    lambda q, k, v, masks: flex_attention(q, k, v, sloped, enable_gqa=True),
    lambda q, k, v, masks: flex_attention(q, k, v, sloped, masks[border], enable_gqa=True),
    lambda q, k, v, masks: flex_attention(
        q, k, v, block_mask=masks[window], enable_gqa=True, return_aux=AuxRequest(lse=True)
    ),
]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("function", FLEX)
def test_flex_attention(function: Callable[..., Any], same: Callable[..., None], called: Callable[..., Any]) -> None:
    given = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 20, 8), torch.randn(2, 2, 20, 6)
    masks = {
        f: create_block_mask(f, batch, None, 20, 20, device="cpu", BLOCK_SIZE=16)
        for f, batch in ((window, None), (border, 2))
    }

    def attend(*args: torch.Tensor) -> Any:
        found = function(*args, masks)
        return found if isinstance(found, torch.Tensor) else (found[0], found[1].lse)

    same(attend, *given)
    module = called(attend)
    torch.testing.assert_close(lower_to_mgx(module, list(given))(*given), module(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_over_any_number_of_rows(called: Callable[..., Any]) -> None:
    module = called(lambda q, k, v: flex_attention(q, k, v, sloped, enable_gqa=True))
    rows = {2: torch.export.Dim("rows", min=4, max=64)}
    given = torch.randn(1, 4, 20, 8), torch.randn(1, 2, 20, 8), torch.randn(1, 2, 20, 8)
    lowered = lower_to_mgx(module, list(given), dynamic_shapes=((rows, rows, rows),))
    for count in (20, 7):
        x = [t[:, :, :count] for t in given]
        torch.testing.assert_close(lowered(*x), module(*x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_by_functions_that_read_sizes() -> None:
    def attend(x: torch.Tensor, kept: int) -> torch.Tensor:
        def weighted(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.where(j < kept - 1, score * kept, score - x.shape[2])

        def allowed(b: Any, h: Any, i: Any, j: Any) -> Any:
            return i - j < x.shape[2] - kept

        mask = create_block_mask(allowed, None, None, x.shape[2], x.shape[2], device="cpu")
        return flex_attention(x, x, x, weighted, mask)

    compiled = torch.compile(attend, backend="mgx", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for rows, kept in ((12, 5), (9, 7)):
            x = torch.randn(1, 2, rows, 8)
            torch.testing.assert_close(compiled(x, kept), attend(x, kept), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_that_cannot_be_vectorized_is_left_to_torch() -> None:
    x = torch.randn(1, 2, 12, 8)

    def attend(x: torch.Tensor) -> torch.Tensor:
        return flex_attention(x, x, x, lambda score, b, h, i, j: score + x[b, h, i, 0])

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(attend, backend="mgx")(x), attend(x), rtol=1e-5, atol=1e-5)
