"""Decomposed operators: fused ``torch.nn`` layers, distances, embedding bags, medians, complex tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mgx_torch import explain, lower_to_mgx

Same = Callable[..., None]  # the fixture that compares with eager torch
ROWS = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
LATER = torch.ones(5, 5, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "mask",
    [{}, {"mask": LATER, "is_causal": True}, {"mask": LATER, "is_causal": False}, {"src_key_padding_mask": ROWS}],
)
def test_transformer_encoders_are_converted(norm_first: bool, mask: Any, same: Same) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", norm_first=norm_first, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    same(lambda x: model(x, **mask), torch.randn(2, 5, 16))


def test_padded_positions_are_computed_as_in_exported_programs() -> None:
    """Eager torch packs the other positions into a nested tensor and returns zeros; torch.export does not trace that."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model, x, mask = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 16), {"src_key_padding_mask": ROWS}
    with torch.no_grad():
        want = torch.export.export(model, (x,), mask).module()(x, **mask)
        assert model(x, **mask)[ROWS].count_nonzero() == 0
        assert want[ROWS].count_nonzero() > 0
        for found in (lower_to_mgx(model, [x], mask), torch.compile(model, backend="mgx")):
            torch.testing.assert_close(found(x, **mask), want, rtol=1e-5, atol=1e-5)


def test_encoders_that_inspect_their_mask_are_left_to_torch() -> None:
    """By default, nn.TransformerEncoder tests whether its mask is the causal one: Dynamo then gives no graph to any backend."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        found = explain(model, x, LATER)
    assert (found.graphs, found.parts, found.whole) == (0, [], False)
    assert "the whole model ran in torch\nreason: Unsupported Tensor.item()" in str(found)


def test_numbers_read_only_by_assertions_do_not_prevent_conversion() -> None:
    """With fullgraph Dynamo captures the test of the mask, whose result is unused without gradients."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 16)
    compiled = torch.compile(model, backend="mgx", fullgraph=True, options={"strict": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, LATER), model(x, LATER), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("mask", [{}, {"attn_mask": LATER}, {"key_padding_mask": ROWS}])
def test_multi_head_attention_is_converted(weights: bool, mask: Any, same: Same) -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    same(lambda x: layer(x, x, x, need_weights=weights, **mask)[: 1 + weights], torch.randn(2, 5, 16))


@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_distances(rows: int, p: float, same: Same) -> None:
    same(lambda x, y: torch.cdist(x, y, p), torch.randn(2, rows, 3), torch.randn(2, 5, 3), tolerance=1e-4)
    same(lambda x: F.pdist(x, p), torch.randn(rows, 3))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags(mode: str, last: bool, padding: int | None, same: Same) -> None:
    bag = nn.EmbeddingBag(10, 4, mode=mode, include_last_offset=last, padding_idx=padding)
    same(lambda i, o: bag(i, o), torch.tensor([1, 3, 3, 9, 0, 3]), torch.tensor([0, 0, 3, 4, 6]))


def test_bags_with_weights(same: Same) -> None:
    bag = nn.EmbeddingBag(10, 4, mode="sum")
    same(lambda i, o, w: bag(i, o, w), torch.tensor([1, 3, 9]), torch.tensor([0, 2]), torch.randn(3))


def test_gradients_of_bags_are_eagers() -> None:
    bag, indices, offsets = nn.EmbeddingBag(10, 4, mode="mean"), torch.tensor([1, 3, 3, 9]), torch.tensor([0, 1])
    factor = torch.randn(2, 4)
    found = []
    for call in (bag, torch.compile(bag, backend="mgx")):
        bag.zero_grad()
        (call(indices, offsets) * factor).sum().backward()
        assert bag.weight.grad is not None
        found.append(bag.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0])
    assert found[0].any()


HOLES = torch.tensor([[3.0, 1.0, math.nan, 2.0], [5.0, 4.0, 7.0, 6.0], [math.nan] * 4])


@pytest.mark.parametrize("keep", [False, True])
def test_medians(keep: bool, same: Same) -> None:
    same(lambda x: (x.median(1, keep).values, x.nanmedian(1, keep).values, x[1].median()), HOLES)
    same(lambda x: (x.median(0, keep), x.kthvalue(2, -1, keep), x.long().median(0, keep)), torch.randn(5, 6) * 9)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [False, True])
def test_rows_are_reduced_by_index(reduce: str, include: bool, same: Same) -> None:
    index = torch.tensor([2, 0, 2])
    same(
        lambda x, y: torch.index_reduce(x, 1, index, y, reduce, include_self=include),
        torch.rand(3, 4),
        torch.rand(3, 3),
    )


@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_diagonals_are_replaced(offset: int, same: Same) -> None:
    def replaced(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.diagonal(offset, 0, 2).mul_(3)
        return y

    same(replaced, torch.randn(4, 2, 5))


@pytest.mark.parametrize("accumulate", [False, True])
def test_elements_are_inserted_by_index(accumulate: bool, same: Same) -> None:
    index = torch.tensor([[0, 7], [3, 11]])
    same(lambda x, y: torch.put(x, index, y, accumulate), torch.randn(3, 4), torch.randn(2, 2))


def test_masked_places_take_values_in_order() -> None:
    def put(x: torch.Tensor, w: torch.Tensor) -> Any:
        rows, columns, places = x[:, 0] > 0, x[0] > 0, x > 0.5
        first, second, third, fourth = x.clone(), x.clone(), x.clone(), x.clone()
        first[places] -= 1
        second[rows] = second[rows].flip(0) * 2
        third[:, columns] += w[:, columns]
        third[rows, 1] = third[rows, 1] * 3
        fourth[x > 100] = x[x > 100]
        return first, second, third, fourth, torch.index_put(x, (places,), w[0, 0], True)

    compiled = torch.compile(put, backend="mgx")
    for x in (torch.randn(3, 4).abs(), -torch.randn(3, 4).abs(), torch.randn(5, 4)):
        torch.testing.assert_close(compiled(x, x + 1), put(x, x + 1))


def test_triangles_are_indexed(same: Same) -> None:
    def triangles(x: torch.Tensor) -> Any:
        lower, upper = torch.tril_indices(4, 5, -1), torch.triu_indices(4, 5, 2)
        return x[lower[0], lower[1]], x[upper[0], upper[1]]

    same(triangles, torch.randn(4, 5))


def test_complex_inputs_and_weights_are_accepted(same: Same) -> None:
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat))

        def forward(self, x: torch.Tensor, turn: torch.Tensor) -> Any:
            spectrum = torch.fft.rfft(x)
            out = torch.zeros_like(spectrum)
            out[:, :, :5] = torch.einsum("bix,iox->box", spectrum[:, :, :5], self.weight)
            out[:, 1] = spectrum[:, 0] * turn
            return torch.fft.irfft(out, n=x.shape[-1]), turn.conj() * 2

    model = Filter().eval()
    same(model, torch.randn(2, 4, 32), torch.randn(17, dtype=torch.cfloat).conj())


def test_products_of_three_operands_in_a_chosen_order(same: Same) -> None:
    """torch passes the order of products if opt_einsum is installed."""

    def product(x: Any, y: Any, z: Any) -> Any:
        return torch.ops.aten.einsum("ijk,bj,bk->bi", [x, y, z], path=[1, 2, 0, 1])

    same(product, torch.randn(4, 4, 4), torch.randn(2, 4), torch.randn(2, 4))


def test_view_by_einsum_shares_memory() -> None:
    function = torch.compile(lambda x: (torch.einsum("ii->i", x), torch.einsum("ij,jk->ik", x, x)), backend="mgx")
    x = torch.randn(3, 3)
    with torch.no_grad():
        diagonal, product = function(x)
    torch.testing.assert_close(product, x @ x)
    x[1, 1] = 7
    assert torch.equal(diagonal, x.diagonal())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of the polynomial in eager
def test_functions_without_converters_are_left_to_torch_with_their_callers() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def attend(q: torch.Tensor) -> torch.Tensor:
        def score(s: torch.Tensor, *place: torch.Tensor) -> torch.Tensor:
            return torch.special.chebyshev_polynomial_t(s, place[1])

        return flex_attention(q + 1, q, q, score_mod=score) * 2

    q = torch.randn(1, 2, 16, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(attend, backend="mgx")(q), attend(q))
        found = explain(attend, q)
    assert found.graphs == 1
    assert [p.target for p in found.parts] == ["mgx", "torch", "mgx"]


def test_numbers_that_change_are_converted() -> None:
    function = torch.compile(lambda x, a: x.half() * a + a, backend="mgx", dynamic=True)
    x = torch.randn(4)
    for a in (0.5, 0.7, 3):
        torch.testing.assert_close(function(x, a), x.half() * a + a)


def test_autocast_applies_within_composite_operators() -> None:
    """torch does not cast einsum and recurrent cells, but the products in them."""
    cell, weight = nn.GRUCell(8, 8), torch.randn(8, 6)

    def run(x: torch.Tensor) -> Any:
        return torch.einsum("ij,jk->ik", x, weight), cell(x)

    def cast(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(x)

    x = torch.randn(4, 8)
    with torch.no_grad():
        want, bounds = cast(x), {"rtol": 1e-2, "atol": 1e-2}
        assert want[0].dtype is torch.bfloat16
        # without AVX-512, torch rounds intermediate sums: compare with float32
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            want = tuple(e.to(w.dtype) for e, w in zip(run(x), want, strict=True))
            bounds = {"rtol": 2e-2, "atol": 3e-2}
        torch.testing.assert_close(torch.compile(cast, backend="mgx", fullgraph=True)(x), want, **bounds)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(torch.compile(run, backend="mgx")(x), want, **bounds)


def test_gradients_of_bilinear_layers_are_supported() -> None:
    layer, x = nn.Bilinear(5, 4, 3), torch.randn(6, 5, requires_grad=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        return layer(x, x[:, :4].sin()).square().sum()

    assert explain(run, x).whole
    want = torch.autograd.grad(run(x), [x, *layer.parameters()])
    got = torch.autograd.grad(torch.compile(run, backend="mgx")(x), [x, *layer.parameters()])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_autocast_within_a_part_that_is_computed_again_reaches_them() -> None:
    weight, x = torch.randn(8, 6), torch.randn(4, 8)

    def cast(y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.einsum("ij,jk->ik", y, weight)

    def again(y: torch.Tensor) -> Any:
        return checkpoint(cast, y, use_reentrant=False)

    with torch.no_grad():
        want = cast(x)
        assert want.dtype is torch.bfloat16
        torch.testing.assert_close(torch.compile(again, backend="mgx")(x), want, rtol=1e-2, atol=1e-2)


def test_products_may_be_wider_than_their_operands() -> None:
    """torch itself computes these on devices only."""
    a, b, c = torch.randn(3, 40).half(), torch.randn(40, 5).half(), torch.randn(3, 5)

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return (
            torch.mm(a, b, out_dtype=torch.float32),
            torch.bmm(a[None], b[None], out_dtype=torch.float32),
            torch.addmm(c, a, b, out_dtype=torch.float32, beta=0.5, alpha=2),
        )

    product = a.float() @ b.float()
    got = torch.compile(run, backend="mgx")(a, b, c)
    torch.testing.assert_close(got, (product, product[None], 0.5 * c + 2 * product), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "window", "sizes"),
    [((2, 3, 11, 12), (2, 3), (4, 5)), ((3, 11, 12), 2, (1, 10)), ((2, 3, 7, 8, 9), (2, 3, 2), (3, 2, 4))],
)
def test_fractional_pooling_with_given_samples(size: Any, window: Any, sizes: Any, same: Same) -> None:
    pool = F.fractional_max_pool3d if len(sizes) == 3 else F.fractional_max_pool2d
    samples = torch.rand(*(size[:2] if len(size) - len(sizes) == 2 else (1, size[0])), len(sizes))
    same(lambda x, s: pool(x, window, sizes, return_indices=True, _random_samples=s), torch.randn(size), samples)


def test_samples_of_more_images_than_there_are_to_pool() -> None:
    x, samples = torch.randn(4, 5, 5, 5), torch.rand(2, 4, 3)

    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.fractional_max_pool3d(x, 2, output_size=(2, 2, 2), _random_samples=samples)

    torch.testing.assert_close(torch.compile(pool, backend="mgx")(x), pool(x))


def test_fake_quantization(same: Same) -> None:
    scales, zeros = torch.rand(3) / 9, torch.tensor([0, 1, -2], dtype=torch.int32)

    def quantized(x: torch.Tensor) -> Any:
        yield torch.fake_quantize_per_tensor_affine(x, 0.013, 3, -20, 31)
        yield torch.fake_quantize_per_tensor_affine(x, scales[:1], zeros[:1], -20, 31)
        yield torch.fake_quantize_per_tensor_affine(x, scales[:1], zeros[2:] + 0.5, -20, 31)
        yield torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -128, 127)
        yield torch.fake_quantize_per_channel_affine(x, scales, zeros + 0.3, 0, -8, 7)

    for kind in (torch.float32, torch.float16, torch.float64):
        same(lambda x: tuple(quantized(x)), torch.randn(3, 50, dtype=kind))


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_norms_of_embeddings_are_limited_in_place(norm: float) -> None:
    layer, x = nn.Embedding(6, 4, max_norm=1.0, norm_type=norm), torch.tensor([[0, 2], [2, 5]])
    other = nn.Embedding(6, 4, max_norm=1.0, norm_type=norm)
    other.load_state_dict(layer.state_dict())
    with torch.no_grad():
        found = torch.compile(layer, backend="mgx", options={"strict": True})(x)
        torch.testing.assert_close(found, other(x))
    torch.testing.assert_close(layer.weight, other.weight)


def test_random_slopes_are_their_mean_in_inference(same: Same) -> None:
    layer, x = nn.RReLU(0.1, 0.4).eval(), torch.randn(3, 4)
    same(layer, x)
    torch.testing.assert_close(lower_to_mgx(layer, [x])(x), layer(x))
