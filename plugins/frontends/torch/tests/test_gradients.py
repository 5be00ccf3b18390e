"""Gradients under ``torch.compile(backend="mgx")``, compared with eager torch."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from mgx_torch import from_exported
from mgx_torch.backend import Part, compile_graph
from mgx_torch.decompositions import all_converters, differentiable_layers, traced_table
from mgx_torch.foreach import on_lists
from mgx_torch.options import TorchOptions


class LogSigmoid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.logsigmoid(self.linear(x))


class Layers(nn.Module):
    """The results of recurrent layers."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cells = kind(6, 5, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]  # type: ignore[no-any-return]


class Strided(nn.Module):
    """A strided view, whose gradient is a strided scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y.as_strided((y.shape[0], 4, 2, 2), (y.stride(0), y.stride(1), y.stride(2), 1), 3)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)  # type: ignore[no-any-return]


CASES = {
    "log_sigmoid": (LogSigmoid, (4, 8)),
    "lstm": (lambda: Layers(nn.LSTM), (2, 4, 6)),
    "gru": (lambda: Layers(nn.GRU), (2, 4, 6)),
    "as_strided": (Strided, (2, 3, 6, 6)),
    "weight_norm": (Normed, (2, 3, 8)),
    "average_pool": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 2, padding=1, ceil_mode=True)),
        (2, 3, 9, 9),
    ),
    "average_pool_inside": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d((3, 2), (2, 1), padding=1, count_include_pad=False)),
        (2, 3, 9, 8),
    ),
    "average_pool_divisor": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 2, ceil_mode=True, divisor_override=5)),
        (2, 3, 10, 9),
    ),
    "adaptive_pool": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(3)), (2, 3, 9, 10)),
    "max_pool_of_volumes": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.MaxPool3d(2, padding=1)), (2, 2, 5, 6, 7)),
    "adaptive_max_pool": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(3)), (2, 3, 9, 10)),
    "bags": (lambda: nn.EmbeddingBag(7, 3, mode="mean", padding_idx=2), None),
    "group_norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), (2, 3, 5, 5)),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=2), None),
}


RECURRENT = ("lstm", "gru")


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_eagers(name: str) -> None:
    """Recurrent layers are decomposed into steps if the user allows Dynamo to trace them."""
    build, dims = CASES[name]
    module = build()
    x = torch.randint(0, 7, (3, 5)) if dims is None else torch.randn(dims)
    other = copy.deepcopy(module)
    out = module(x)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    parts: list[Part] = []
    compiled = torch.compile(other, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts))
    with torch._dynamo.config.patch(allow_rnn=name in RECURRENT):
        (compiled(x) * weights).sum().backward()
    assert [part.reasons for part in parts] == [[], []]  # forward and backward
    for (path, want), got in zip(module.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5, msg=lambda text, at=path: f"{at}: {text}")


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_have_eagers_gradients_from_torch(name: str) -> None:
    """Unless the user allows Dynamo to trace them."""
    build, dims = CASES[name]
    module = build()
    other, x = copy.deepcopy(module), torch.randn(dims)
    parts: list[Part] = []
    compiled = torch.compile(other, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts))
    compiled(x).square().sum().backward()
    assert not parts
    module(x).square().sum().backward()
    for want, got in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)


def test_scatter_by_strides(overloads: ModuleType) -> None:
    """Replaces elements of a transposed tensor's memory."""
    op = torch.ops.aten.as_strided_scatter.default
    for x in (torch.randn(4, 6), torch.randn(6, 4).T):
        args = (x, torch.randn(2, 3), [2, 3], [9, 2], 1)
        (got,) = overloads.computed(op, args, {}, "ref")
        torch.testing.assert_close(got, op(*args))


def test_setting_of_onednn_survives_two_graphs_at_once() -> None:
    """The second one to begin ends last: it must restore the user's setting, not the first one's."""
    first_is_in, first_may_go, second_is_in = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with differentiable_layers():
            first_is_in.set()
            assert first_may_go.wait(60)

    def second() -> None:
        assert first_is_in.wait(60)
        with differentiable_layers():
            second_is_in.set()
            threads[0].join(60)

    threads = [threading.Thread(target=run, daemon=True) for run in (first, second)]
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(True)
    try:
        for thread in threads:
            thread.start()
        second_is_in.wait(0.2)  # for long if it must wait for the first
        first_may_go.set()
        for thread in threads:
            thread.join(60)
        assert second_is_in.is_set()
        assert torch._C._get_mkldnn_enabled()
    finally:
        first_may_go.set()
        torch._C._set_mkldnn_enabled(before)


def _by_autograd(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf)[0]


DERIVED = {
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "autograd": _by_autograd,
}


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("how", DERIVED)
def test_derivatives_within_the_graph_are_eagers(how: str, enabled: bool) -> None:
    weight, x = torch.randn(3, 4), torch.randn(2, 4)

    def energy(y: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(nn.functional.linear(y, weight) @ weight, (4,)).tanh().pow(2).sum()

    with torch.set_grad_enabled(enabled):
        found, want = torch.compile(DERIVED[how], backend="mgx")(energy, x), DERIVED[how](energy, x)
    assert float(want.abs().max()) > 1e-3
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_weights_without_windows_are_products(stride: int, called: Callable[..., Any]) -> None:
    def weight_gradient(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        masks = [False, True, False]
        steps = [stride, stride], [0, 0], [1, 1], False, [0, 0]
        return torch.ops.aten.convolution_backward(grad, x, w, None, *steps, 1, masks)[1]  # type: ignore[no-any-return]

    x, w = torch.randn(2, 3, 6, 8), torch.randn(5, 3, 1, 1)
    grad = torch.randn(2, 5, 6 // stride, 8 // stride)
    program = from_exported(torch.export.export(called(weight_gradient), (grad, x, w)))
    assert "dot(" in str(program)
    assert "= convolution" not in str(program)
    found = torch.compile(weight_gradient, backend="mgx", options={"strict": True})(grad, x, w)
    torch.testing.assert_close(found, weight_gradient(grad, x, w))


def test_means_over_any_number_of_rows() -> None:
    """Their gradients divide by a product of sizes, in Python numbers."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    other = copy.deepcopy(module)
    parts: list[Part] = []
    compiled = torch.compile(other, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts))
    for rows in (5, 7):
        x = torch.randn(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        for run in (module, compiled):
            found = run(x)
            nn.functional.cross_entropy(found, torch.zeros(rows, dtype=torch.int64), label_smoothing=0.1).backward()
    assert not [part.reasons for part in parts if part.reasons]
    for want, got in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)


def written(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:3, :2] = x[:3, :2] * 1j
    return out


IMAGES = torch.linspace(-1, 1, 2 * 3 * 7 * 8).sin().view(2, 3, 7, 8)
PLACES, MASK = torch.tensor([3, 0, 3, 5]), torch.arange(30).reshape(6, 5) % 3 > 0
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "average pooling": (lambda x: F.avg_pool3d(x, 2, 2, 1, ceil_mode=True), (2, 2, 5, 4, 6)),
    "average pooling without padding": (lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False), (2, 2, 5, 4, 6)),
    "average pooling with a divisor": (lambda x: F.avg_pool3d(x, (1, 2, 3), divisor_override=5), (2, 2, 5, 4, 6)),
    "average pooling with a rest": (lambda x: F.avg_pool3d(x, (2, 1, 3)), (2, 2, 5, 4, 7)),
    "adaptive pooling": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), (2, 2, 5, 4, 6)),
    "adaptive pooling of two axes": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 2, 5, 4)),
    "adaptive pooling into equal cells": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 2, 6, 4)),
    "weights of adjoining windows": (lambda w: F.conv2d(IMAGES, w, stride=(3, 2)), (4, 3, 3, 2)),
    "weights of strided windows per channel": (lambda w: F.conv2d(IMAGES, w, stride=2, padding=1, groups=3), (6, 1, 3, 2)),
    "transposed windows beyond the last stride": (
        lambda w: F.conv_transpose2d(IMAGES * w.mean(), w, None, (1, 2), (0, 1), (1, 2), 1, (2, 3)), (3, 4, 3, 2)
    ),
    "reflection": (lambda x: F.pad(x, (1, 0, 2, 1), mode="reflect"), (2, 3, 3, 4)),
    "cropped reflection": (lambda x: F.pad(x, (2, -1, -2, 1), mode="reflect"), (2, 5, 4)),
    "replication of one axis": (lambda x: F.pad(x, (2, 3), mode="replicate"), (2, 3, 4)),
    "replication of two axes": (lambda x: F.pad(x, (1, 0, 2, 1), mode="replicate"), (2, 3, 1, 4)),
    "replication of three axes": (lambda x: F.pad(x, (1, 0, 2, 1, 0, 3), mode="replicate"), (1, 2, 3, 2, 4)),
    **{f"distances {p}": (lambda x, p=p: torch.cdist(x, x[:4] * 2, p), (6, 5)) for p in (0.0, 1.0, 1.5, 2.0, 3.0, torch.inf)},
    "distances of a point from itself": (lambda x: torch.cdist(x, x), (2, 4, 5)),
    "distances of each pair": (lambda x: F.pdist(x, 3.0), (6, 5)),
    "scattered by a mask": (lambda x: torch.ones(6, 5).masked_scatter(MASK, x), (6, 5)),
    "factors of bags": (lambda x: F.embedding_bag(PLACES[None], x, mode="sum", per_sample_weights=x[:1, :4].sin()), (6, 5)),
    "factors of padded bags": (
        lambda x: F.embedding_bag(PLACES[None], x, mode="sum", per_sample_weights=x[:1, :4].sin(), padding_idx=3), (6, 5)
    ),
    "a written part of a spectrum": (lambda x: torch.fft.irfft(written(torch.fft.fft(x))), (6, 5)),
    "a summed ellipsis": (lambda x: torch.einsum("...ik,...j->ij", x[None], x[:, 0]), (6, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions_are_converted(name: str) -> None:
    function, dims = FUNCTIONS[name]
    compiled = torch.compile(function, backend="mgx", options={"strict": True})
    x = torch.randn(dims)
    found = []
    for called in (compiled, function):
        given = x.clone().requires_grad_()
        result = called(given)
        (result * torch.linspace(0.5, 1.5, result.numel()).view_as(result)).sum().backward()
        found.append(given.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_gradients_that_are_not_finite_stay_in_their_windows(value: float) -> None:
    found = []
    for pool in (nn.AvgPool2d(2), torch.compile(nn.AvgPool2d(2), backend="mgx")):
        x = torch.randn(1, 2, 5, 6, requires_grad=True)
        grad = torch.randn(1, 2, 2, 3, generator=torch.Generator().manual_seed(0))
        grad[0, 1, 0, 2] = value
        pool(x).backward(grad)
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


def _argument(schema: Any) -> Any:
    """Returns an argument of an operator on lists of two tensors."""
    kind = str(schema.type)
    if kind == "List[Tensor]":
        return [torch.rand(3, 3) + 0.5, torch.rand(3, 3) + 1.5]
    if kind == "List[number]":
        return [0.5, 2.0]
    if kind == "Tensor":
        return torch.tensor([0.5, 2.0]) if schema.name == "scalars" else torch.tensor(2.5)
    return 1.5 if kind == "number" else None


@pytest.mark.parametrize("op", on_lists(), ids=str)
def test_operators_on_lists(op: Any) -> None:
    given = [_argument(a) for a in op._schema.arguments if not a.kwarg_only]
    given = [v for v in given if v is not None]
    for got, want in zip(on_lists()[op](*given), op(*given), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_gradients_are_clipped_and_applied_by_operators_on_lists() -> None:
    modules = [nn.Linear(4, 3), nn.Linear(4, 3)]
    modules[1].load_state_dict(modules[0].state_dict())
    x = torch.randn(5, 4)
    for module, strict in zip(modules, (False, True), strict=True):
        steps = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=0.1, foreach=True)

        def step(module: nn.Module = module, steps: Any = steps) -> None:
            nn.utils.clip_grad_norm_(module.parameters(), 0.5, foreach=True)
            steps.step()

        run = torch.compile(step, backend="mgx", options={"strict": True}) if strict else step
        for _ in range(3):
            steps.zero_grad()
            module(x).square().sum().backward()
            run()
    for want, got in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.RMSprop])
def test_steps_of_optimizers_are_converted(kind: Any) -> None:
    parts: list[Part] = []
    modules = [nn.Linear(4, 3), nn.Linear(4, 3)]
    modules[1].load_state_dict(modules[0].state_dict())
    steps = [kind(m.parameters(), 1e-2) for m in modules]
    compiled = torch.compile(steps[1].step, backend=lambda gm, given: compile_graph(gm, given, TorchOptions(), parts))
    x = torch.randn(5, 4)
    for _ in range(3):
        for module, step, run in zip(modules, steps, (steps[0].step, compiled), strict=True):
            step.zero_grad()
            module(x).square().sum().backward()
            run()
    assert parts
    assert not [part.reasons for part in parts if part.reasons]
    for want, got in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


class Solved(nn.Module):
    """The graph does not read one of its inputs, for which AOTAutograd passes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(3))
        self.register_buffer("points", torch.randn(6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return (-0.5 * ((a[:, None] - b[None]) / self.scale.exp()).square().sum(-1)).exp()

        lower = torch.linalg.cholesky(kernel(self.points, self.points) + torch.eye(6))
        return torch.linalg.solve_triangular(lower, kernel(self.points, x), upper=False)


def test_inputs_that_no_graph_reads() -> None:
    module = Solved()
    other, x = copy.deepcopy(module), torch.randn(4, 3)
    torch.compile(other, backend="mgx")(x).square().sum().backward()
    module(x).square().sum().backward()
    torch.testing.assert_close(other.scale.grad, module.scale.grad, rtol=1e-4, atol=1e-5)


def test_activations_are_kept_once() -> None:
    """As in torch, what gradients need of one value shares its memory: here a result and a view of it."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    x = torch.randn(3, 4)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        torch.compile(model, backend="mgx")(x)
    found = [t.data_ptr() for t in kept if t.shape == x.shape and t.data_ptr() != x.data_ptr()]
    assert len(found) > len(set(found)) == 1


def test_gradients_do_not_share_memory() -> None:
    """Callers write to gradients one by one, also to those that are views of one value."""
    a, b = (torch.randn(*dims, requires_grad=True) for dims in ((2, 6), (3, 4)))
    grads = torch.compile(lambda a, b: (a.view(-1) + b.view(-1)).sin(), backend="mgx")(a, b).sum()
    grads.backward()
    assert a.grad is not None
    assert b.grad is not None
    want = b.grad.clone()
    a.grad.zero_()
    assert torch.equal(b.grad, want)
    assert bool(want.any())


@pytest.mark.parametrize("padding", [-1, 2])
def test_gradients_of_embeddings_select_rows_only_beside_padding(padding: int) -> None:
    def gradient(grad: torch.Tensor, indices: torch.Tensor) -> Any:
        return torch.ops.aten.embedding_dense_backward(grad, indices, 7, padding, False)

    grad, indices = torch.randn(3, 4, 5), torch.tensor([[0, 2, 2, 6], [2, 1, 0, 0], [5, 5, 2, 1]])
    graph = make_fx(gradient, decomposition_table=traced_table(all_converters()))(grad, indices)
    torch.testing.assert_close(torch.compile(gradient, backend="mgx")(grad, indices), gradient(grad, indices))
    called = [str(n.target) for n in graph.graph.nodes]
    assert ("aten.where.self" in called) == (padding >= 0)
    assert not any("masked" in c for c in called)
