"""Sizes and strides of tensors as numbers, and torch's core operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mgx_core
from mgx_core.converting.converters import Converters
from mgx_torch import explain, from_exported, lower_to_mgx
from mgx_torch.backend import Part, compile_graph
from mgx_torch.decompositions import all_converters, converts, traced_table
from mgx_torch.extents import DECIDED
from mgx_torch.node import Node
from mgx_torch.options import TorchOptions


def test_every_core_operator_is_converted_or_decomposed() -> None:
    converters = all_converters()
    others = traced_table(converters)
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    overloads = [getattr(p, o) for p in packets if isinstance(p, torch._ops.OpOverloadPacket) for o in p.overloads()]
    core = [op for op in overloads if torch.Tag.core in op.tags]
    assert len(core) > 150
    assert [str(op) for op in core if not converts(converters, op) and op not in others] == []


def test_sizes_have_the_names_of_their_dims() -> None:
    class Product(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x @ y[::2].T).sum(0) + y[0, 0]

    rows, columns = torch.export.Dim("rows", min=3, max=9), torch.export.Dim("columns")
    sizes = {"x": {0: rows, 1: columns}, "y": {0: 2 * rows, 1: columns}}
    exported = torch.export.export(Product(), (torch.randn(4, 5), torch.randn(8, 5)), dynamic_shapes=sizes)
    program = from_exported(exported)
    assert {n: str(s) for n, s in program.get_parameter_shapes().items()} == {
        "x": "float32[rows, columns]",
        "y": "float32[2*rows, columns]",
    }
    program.compile(mgx_core.get_target("ref"))
    with pytest.raises(mgx_core.ParameterError, match=r"float32\[rows, columns\] with rows in 3\.\.9, got"):
        program.run({"x": torch.randn(10, 5).numpy(), "y": torch.randn(20, 5).numpy()})
    x, y = torch.randn(6, 2), torch.randn(12, 2)
    found = program.run({"x": x.numpy(), "y": y.numpy()})[0].to_numpy()
    torch.testing.assert_close(torch.from_numpy(found), Product()(x, y))


def test_refusals_name_sizes_by_their_dims() -> None:
    class Shrunk(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.interpolate(x, scale_factor=0.123456789)

    sizes = {"x": {2: torch.export.Dim("columns", min=17)}}
    exported = torch.export.export(Shrunk(), (torch.randn(1, 1, 40),), dynamic_shapes=sizes)
    with pytest.raises(mgx_core.UnsupportedError, match=r"the size ToFloat\(columns\) times 0\.123"):
        from_exported(exported)


def test_name_of_a_dim_that_torch_gave_another_size() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    x = torch.randn(4, 5)
    exported = torch.export.export(
        Sum(), (x,), dynamic_shapes={"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    )
    first = str(next(n for n in exported.graph.nodes if n.op == "placeholder").meta["val"].shape[0])
    sizes = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim(first)}}
    program = from_exported(torch.export.export(Sum(), (x,), dynamic_shapes=sizes))
    program.compile(mgx_core.get_target("ref"))
    assert program.run({"x": torch.randn(2, 3).numpy()})[0].to_numpy().shape == (2, 3)


class Resized(nn.Module):
    def __init__(self, size: list[int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.resize_(x.clone(), self.size) + 1


@pytest.mark.parametrize("size", [[2, 2], [5, 4], [2, 3, 2], [12]])
@pytest.mark.parametrize("turned", [False, True])
def test_resized_memory(size: list[int], turned: bool) -> None:
    x = torch.randn(4, 3).t() if turned else torch.randn(3, 4)
    program = from_exported(torch.export.export(Resized(size), (x,)))
    program.compile(mgx_core.get_target("ref"))
    (found,) = program.run({"x": x.numpy()})
    wanted = Resized(size)(x)
    got = torch.from_numpy(found.to_numpy())
    assert got.shape == wanted.shape
    defined = min(12, wanted.numel())
    assert torch.equal(got.reshape(-1)[:defined], wanted.reshape(-1)[:defined])


def test_sizes_are_named_by_their_operators() -> None:
    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x[x > 0]
            return y * torch.ops.aten.sym_numel(y) + torch.ops.aten.sym_stride(x, 0) + torch.ops.aten.sym_size(x, 0)

    sizes = {"x": {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")}}
    program = from_exported(torch.export.export(Counted(), (torch.randn(3, 4),), dynamic_shapes=sizes))
    program.compile(mgx_core.get_target("cpu"))
    x = torch.randn(6, 5)
    assert torch.equal(torch.from_numpy(program.run({"x": x.numpy()})[0].to_numpy()), Counted()(x))


@pytest.mark.parametrize("size", [3, (2, 5)])
def test_cells_of_images_of_any_size(size: object) -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return nn.functional.adaptive_avg_pool2d(x, size), nn.functional.adaptive_max_pool2d(x, size)  # type: ignore[arg-type]

    sizes = {"x": {2: torch.export.Dim("height"), 3: torch.export.Dim("width")}}
    lowered = lower_to_mgx(Pooled(), [torch.randn(2, 3, 8, 6)], dynamic_shapes=sizes)
    for dims in ((8, 6), (5, 9), (2, 3), (13, 7)):
        x = torch.randn(2, 3, *dims)
        torch.testing.assert_close(lowered(x), Pooled()(x))


def test_sizes_are_results_of_lowered_modules() -> None:
    class Sized(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, object]:
            return {"rows": x.shape[0] * 2, "sum": x.sum(0)}

    lowered = lower_to_mgx(Sized(), [torch.ones(3, 4)], dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    found = lowered(torch.ones(5, 4))
    assert found["rows"] == 10
    assert isinstance(found["rows"], int)
    assert torch.equal(found["sum"], torch.full((4,), 5.0))


def test_a_part_accepts_any_strides() -> None:
    """Results of parts run by torch may have other strides than when the part was compiled: no guard of Dynamo checks them."""
    straight = True

    @torch.library.custom_op("mgx_tests::laid", mutates_args=(), schema="(Tensor x) -> Tensor")
    def laid(x: torch.Tensor) -> torch.Tensor:
        return x.clone() if straight else x.t().contiguous().t()

    laid.register_fake(torch.empty_like)

    def function(x: torch.Tensor) -> torch.Tensor:
        return laid(x * 2) + torch.arange(12.0).view(3, 4)

    compiled = torch.compile(function, backend="mgx", dynamic=False)
    x = torch.randn(3, 4)
    for straight in (True, False):  # noqa: B007  # which the operator reads
        assert torch.equal(compiled(x), x * 2 + torch.arange(12.0).view(3, 4))


def test_multiples_of_a_size_of_a_part() -> None:
    """No input of the second part has the rows of x as an extent, and its size is an expression that torch multiplies out."""

    @torch.library.custom_op("mgx_tests::halved", mutates_args=(), schema="(Tensor x) -> Tensor")
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2 - 1].clone()

    halved.register_fake(lambda x: x.new_empty(x.shape[0] // 2 - 1, x.shape[1]))
    compiled = torch.compile(lambda x: halved(x * 2).reshape(-1) + 1, backend="mgx")
    for rows in (9, 12, 7):
        x = torch.randn(rows, 8)
        torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), (x * 2)[: rows // 2 - 1].reshape(-1) + 1)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "overlapping chunks": lambda x: x.as_strided((x.shape[0], 3, 4, 5), (40, 10, 5, 1)),
    "chunks of memory in another order": lambda x: (
        x.transpose(0, 1).contiguous().as_strided((x.shape[0], 3, 4, 5), (5, 10 * x.shape[0], 5 * x.shape[0], 1))
    ),
    "rows as two axes": lambda x: x.as_strided((2 * x.shape[0], 7), (20, 2), 3),
    "without a block": lambda x: x.as_strided((x.shape[0], 8, 5), (40, 5, 1)),
}

COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows written at steps": lambda x: x.slice_scatter(x[1::3] - 9, 0, 1, step=3),
    "distances of rows": lambda x: nn.functional.pdist(x.flatten(1)),
    "rows times a fraction": lambda x: nn.functional.interpolate(x.permute(1, 2, 0), scale_factor=1.6, mode="linear"),
    "windows of rows": lambda x: x.unfold(0, 3, 2),
    "rows in bins": lambda x: torch.histc(x, 5),
}


@pytest.mark.parametrize("name", [*VIEWS, *COMPUTED])
def test_functions_of_any_number_of_rows(name: str) -> None:
    function, tolerance, counts = (VIEWS[name], 0.0, (2, 3, 5)) if name in VIEWS else (COMPUTED[name], 2e-6, (5, 7, 9))
    parts: list[Part] = []
    graphs = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return compile_graph(gm, example_inputs, TorchOptions(), parts)

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: function(x * 2) + 1, backend=backend)
    for rows in counts:
        x = torch.randn(rows, 8, 5)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), function(x * 2) + 1, rtol=tolerance, atol=tolerance)
    assert len(graphs) == 1
    assert [part.reasons for part in parts] == [[]]


@pytest.mark.parametrize(
    ("size", "factor", "mode"), [(170, 0.7, "bilinear"), (29, 0.43, "bicubic"), (50, 1.3, "nearest")]
)
def test_images_resized_by_a_factor_have_the_extents_that_torch_rounds_to(size: int, factor: float, mode: str) -> None:
    def resized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        how = {"mode": "bilinear", "antialias": True, "align_corners": True}
        corners = [nn.functional.interpolate(x, size=size, **how) for size in ((9, 7), (200, 3))]  # type: ignore[arg-type]
        return nn.functional.interpolate(x, scale_factor=(factor, 2.0), mode=mode), *corners

    x = torch.randn(1, 2, size, 5)
    found = torch.compile(resized, backend="mgx", dynamic=False, options={"strict": True})(x)
    torch.testing.assert_close(found, resized(x), rtol=1e-4, atol=1e-4)


def test_nearest_elements_are_those_that_torch_picks() -> None:
    """torch computes positions in float32; on a CPU, one of its two kernels repeats elements if an extent is unchanged or
    doubled.
    """
    cases: list[tuple[torch.Tensor, dict[str, Any]]] = []
    for mode in ("nearest", "nearest-exact"):
        for dims, factor in (
            ((33,), 2.3),
            ((3, 33), 2.7),
            ((60, 33), 2.7),
            ((3, 3, 50), 2.3),
            ((7,), 2.1),
            ((3, 7), 2.1),
        ):
            first = (1.0,) * (len(dims) - 1)
            cases.append((torch.randn(1, 4, *dims), {"scale_factor": (*first, factor), "mode": mode}))
        cases.append((torch.randn(1, 2, 10), {"size": 23, "mode": mode}))
        for dims in ((7, 70), (7, 3, 5)):
            layout = torch.channels_last if len(dims) == 2 else torch.channels_last_3d
            x = torch.randn(1, 4, *dims).contiguous(memory_format=layout)  # type: ignore[call-overload]
            cases += [(given, {"scale_factor": 2.1, "mode": mode}) for given in (x, x.contiguous())]

    def resized(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [nn.functional.interpolate(x, **how) for x, (_, how) in zip(xs, cases, strict=True)]

    xs = [x for x, _ in cases]
    found = torch.compile(resized, backend="mgx", dynamic=False, options={"strict": True})(*xs)
    assert [
        i for i, (got, want) in enumerate(zip(found, resized(*xs), strict=True)) if not torch.equal(got, want)
    ] == []


@pytest.mark.parametrize("axis", [0, 2])
def test_nearest_elements_of_any_number_of_rows(axis: int) -> None:
    def resized(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2.7)

    compiled = torch.compile(resized, backend="mgx", options={"strict": True})
    for count in (33, 63):
        x = torch.randn(count if axis == 0 else 2, 3, count if axis == 2 else 50)
        torch._dynamo.mark_dynamic(x, axis)
        assert torch.equal(compiled(x), resized(x))


def test_view_with_rows_that_overlap_stays_with_torch() -> None:
    compiled = torch.compile(
        lambda x: (x * 2).as_strided((x.shape[0] - 1, 12), (8, 1)) + 1, backend="mgx", dynamic=True
    )
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        assert torch.equal(compiled(x), (x * 2).as_strided((rows - 1, 12), (8, 1)) + 1)


@pytest.mark.skipif(not DECIDED, reason="this version of torch cannot be configured to reject guards")
def test_a_converter_that_specializes_on_a_size_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result would be valid for the first size only, without a guard of Dynamo."""

    @torch.library.custom_op("mgx_tests::rows", mutates_args=(), schema="(Tensor x) -> Tensor")
    def rows(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]

    rows.register_fake(torch.empty_like)
    own = Converters()

    @own.converts("rows", domain="mgx_tests")
    def convert(n: Node, x: Any) -> Any:
        return n.add("mul", x, n.literal(int(n.given(0).shape[0]), n.dtype))

    parts: list[Part] = []
    monkeypatch.setattr("mgx_torch.backend.all_converters", lambda: all_converters() + own)
    compiled = torch.compile(
        lambda x: rows(x) + 1, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts), dynamic=True
    )
    for count in (2, 3):
        x = torch.randn(count, 4)
        assert torch.equal(compiled(x), x * count + 1)
    (reason,) = (why for part in parts for why in part.reasons)
    assert "a size must be static here" in reason


def test_a_converter_that_needs_a_constant_leaves_changing_numbers_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    @torch.library.custom_op("mgx_tests::scaled", mutates_args=(), schema="(Tensor x, Scalar scale) -> Tensor")
    def scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale

    scaled.register_fake(lambda x, scale: torch.empty_like(x))
    own = Converters()

    @own.converts("scaled", domain="mgx_tests")
    def convert(n: Node, x: Any, scale: Any) -> Any:
        return n.add("mul", x, n.literal(float(scale), n.dtype))

    parts: list[Part] = []
    monkeypatch.setattr("mgx_torch.backend.all_converters", lambda: all_converters() + own)
    compiled = torch.compile(
        scaled, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts), dynamic=True
    )
    x = torch.randn(3)
    for number in (2, 3, -4, 1 << 50):
        assert torch.equal(compiled(x, number), x * number)
    assert all("must be constant here" in why for part in parts for why in part.reasons)
    assert any(part.reasons for part in parts)


@pytest.mark.parametrize("arithmetic", [False, True])
def test_numbers_may_be_negative(arithmetic: bool) -> None:
    def scaled(x: torch.Tensor, s: int) -> tuple[Any, ...]:
        return x * s, x[s:]

    def computed(x: torch.Tensor, s: int) -> tuple[Any, ...]:
        return x + s // 3, x - s % 4, x.new_zeros(s + 5) + s, x * abs(s), x * max(s, 2), s * 3, s // 2

    function = computed if arithmetic else scaled
    compiled = torch.compile(function, backend="mgx", dynamic=True, options={"strict": True})
    x = torch.arange(1.0, 7.0)
    for s in (4, -2, -5, 3):
        torch.testing.assert_close(compiled(x, s), function(x, s), rtol=0, atol=0)


def scaled_elu(x: torch.Tensor, scale: int) -> torch.Tensor:
    return torch.ops.aten.elu(x, 1, scale, 2)


@pytest.mark.parametrize(
    "function", [F.leaky_relu, F.elu, scaled_elu, F.celu, F.softplus, lambda x, n: F.softplus(x, 1, n)]
)
def test_numbers_of_activations_may_change(function: Any) -> None:
    compiled = torch.compile(function, backend="mgx", dynamic=True)
    x = torch.randn(5)
    for number in (3, 2, 5):
        torch.testing.assert_close(compiled(x, number), function(x, number), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("number", "dynamic"), [(3, False), (2.5, False), (3, True)])
def test_numbers_among_boundaries(number: float, dynamic: bool) -> None:
    compiled = torch.compile(torch.bucketize, backend="mgx", dynamic=dynamic, options={"strict": True})
    boundaries = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for right in (False, True):
        assert (
            compiled(number, boundaries, right=right).item() == torch.bucketize(number, boundaries, right=right).item()
        )


def test_numbers_may_exceed_all_sizes() -> None:
    def function(x: torch.Tensor, time: int) -> tuple[torch.Tensor, int]:
        return x + time % 7 - (5 - time) // 3 * 2, time + 1

    compiled = torch.compile(function, backend="mgx", dynamic=True, options={"strict": True})
    x = torch.tensor([1, 2])
    for time in (5, 1 << 40, 1732950000000012345, -1732950000000012345):  # nanoseconds of a clock
        torch.testing.assert_close(compiled(x, time), function(x, time), rtol=0, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: torch.full((2,), n),
        lambda x, n: torch.full_like(x, n - 3, dtype=torch.float64),
        lambda x, n: x.new_full((2,), n) + x,
        lambda x, n: x.clone().fill_(n),
        lambda x, n: torch.tensor(n) + x,
        lambda x, n: torch.where(x > 1, x, n),
        lambda x, n: torch.arange(n, n + 3),
    ],
)
def test_elements_may_exceed_all_sizes(function: Any) -> None:
    compiled = torch.compile(function, backend="mgx", dynamic=True, options={"strict": True})
    x = torch.tensor([1, 2])
    for number in (5, 1 << 40, -(1 << 51) - 1, (1 << 52) + 1):
        torch.testing.assert_close(compiled(x, number), function(x, number), rtol=0, atol=0)


@pytest.mark.parametrize("function", [torch.baddbmm, torch.addbmm])
def test_a_summand_whose_changing_factor_is_zero_is_not_read(function: Any) -> None:
    compiled = torch.compile(
        lambda x, y, beta: function(x, y, y, beta=beta, alpha=beta + 1),
        backend="mgx",
        dynamic=True,
        options={"strict": True},
    )
    y = torch.randn(2, 3, 3)
    x = torch.full((2, 3, 3) if function is torch.baddbmm else (3, 3), torch.inf)
    x[..., 0] = torch.nan
    for beta in (3, 0, -2):
        torch.testing.assert_close(compiled(x, y, beta), function(x, y, y, beta=beta, alpha=beta + 1), equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: torch.eye(n),
        lambda x, n: torch.eye(n, 3, dtype=torch.int64),
        lambda x, n: torch.eye(x[:n].shape[0], dtype=torch.bool),
        lambda x, n: x.std(0, correction=n),
        lambda x, n: torch.var_mean(x, correction=n)[0],
        lambda x, n: torch.bincount(x.abs().long(), minlength=n),
    ],
)
def test_numbers_of_creations_and_reductions_may_change(function: Any) -> None:
    compiled = torch.compile(function, backend="mgx", dynamic=True, options={"strict": True})
    x = torch.randn(7)
    for number in (4, 2, 5, 6):
        torch.testing.assert_close(compiled(x, number), function(x, number), rtol=1e-5, atol=1e-5)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_sizes_from_floating_point_numbers_are_left_to_torch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(int(x.sum().item())) + x[0]

    compiled = torch.compile(function, backend="mgx")
    for x in (torch.tensor([1.0, 2.5]), torch.tensor([2.0, 0.5, 4.0])):
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    found = explain(function, torch.tensor([1.0, 2.5]))
    assert "floating-point number" in str(found)


@pytest.mark.parametrize("function", [torch.tril, torch.triu])
def test_triangles_of_a_fixed_matrix_from_any_diagonal(function: Any) -> None:
    matrix = torch.randn(4, 6)

    def cut(x: torch.Tensor, past: int) -> torch.Tensor:
        return x * function(matrix, past - 3)

    compiled = torch.compile(cut, backend="mgx", dynamic=True, options={"strict": True})
    for past in (2, 3, 5, 9):
        torch.testing.assert_close(compiled(matrix, past), cut(matrix, past))


def written(x: torch.Tensor, place: int) -> torch.Tensor:
    return torch.select_scatter(x, x[0] * 2, 0, place)


@pytest.mark.parametrize("function", [lambda x, place: x[place] + x[0], written], ids=["read", "written"])
def test_rows_counted_from_either_end(function: Any) -> None:
    compiled = torch.compile(function, backend="mgx", dynamic=True, options={"strict": True})
    x = torch.randn(4, 6)
    for place in (2, -1, 3, -4, 0):
        torch.testing.assert_close(compiled(x, place), function(x, place))


def test_rounding_of_negative_numbers_toward_zero_stays_with_torch() -> None:
    def halved(x: torch.Tensor, s: int) -> torch.Tensor:
        return x * int(s / 2)

    compiled, x = torch.compile(halved, backend="mgx", dynamic=True), torch.arange(3.0)
    for s in (5, -5, 4):
        assert torch.equal(compiled(x, s), halved(x, s))


@pytest.mark.parametrize("lowest", [0, -3])
def test_elements_become_sizes(lowest: int) -> None:
    def taken(x: torch.Tensor, n: torch.Tensor) -> tuple[Any, ...]:
        k = n.item()
        torch._check(k >= lowest)
        torch._check(k <= 5)
        rows = k - lowest
        return torch.arange(rows) * 2, torch.zeros(rows, 3) + k, x[:rows].sum(0), x * k, k * 2 + 1, x.roll(rows, 0)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(taken, backend="mgx", fullgraph=True, options={"strict": True})
        x = torch.randn(8, 3)
        for k in (3, lowest, 5, 1):
            torch.testing.assert_close(compiled(x, torch.tensor(k)), taken(x, torch.tensor(k)))


def test_elements_that_only_scale_are_no_sizes() -> None:
    def scaled(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n.item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled, x = torch.compile(scaled, backend="mgx", fullgraph=True, options={"strict": True}), torch.randn(3)
        for k in (3, 1 << 60, -7):
            assert torch.equal(compiled(x, torch.tensor(k)), x * k)


def test_ragged_tensors_are_supported() -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged, requires_grad=True)
    layer = nn.Linear(3, 5)
    compiled = torch.compile(lambda x: layer(x).relu() * 2, backend="mgx", options={"strict": True})
    got, want = compiled(rows), layer(rows).relu() * 2
    torch.testing.assert_close(list(got.unbind()), list(want.unbind()))
    grads = [torch.autograd.grad(out.values().pow(2).sum(), rows)[0].values() for out in (got, want)]
    torch.testing.assert_close(*grads)


def test_layers_that_are_kept_whole_take_ragged_tensors() -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(5, 4)], layout=torch.jagged)
    layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU())
    with torch.no_grad():
        got, want = torch.compile(layers, backend="mgx", options={"strict": True})(rows), layers(rows)
    torch.testing.assert_close(list(got.unbind()), list(want.unbind()))


def test_tensors_without_data_stay_so() -> None:
    def described(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.to("meta"), x * 2

    x = torch.randn(3)
    empty, doubled = torch.compile(described, backend="mgx")(x)
    assert empty.device.type == "meta"
    assert torch.equal(doubled, x * 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x * (k == 2),
        lambda x, k: (x / k + k / 2) * 1.5,
        lambda x, k: torch.full((2, 3), k / 3) + x.sum(),
    ],
)
def test_numbers_computed_by_torch_between_parts_are_accepted(function: Any) -> None:
    def scaled(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return function(x + 1, n.item())

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled, x = torch.compile(scaled, backend="mgx"), torch.randn(4, 3)
        for k in (2, 3, 5):
            torch.testing.assert_close(compiled(x, torch.tensor(k)), scaled(x, torch.tensor(k)))


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect", "circular"])
def test_padding_of_one_end_that_crops_the_other(mode: str) -> None:
    """What is cropped may be repeated at the other end, even if nothing else is left."""

    class Pads(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            pads = ((-2, 3), (3, -1), (-1, -1)) + (((-4, 3),) if mode in ("constant", "replicate") else ())
            return tuple(torch.nn.functional.pad(x, pad, mode=mode) for pad in pads)

    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(lower_to_mgx(Pads(), [x])(x), Pads()(x), rtol=0, atol=0)
