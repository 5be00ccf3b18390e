"""``torch.compile(backend="mgx")``, compared with eager torch."""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import mgx_torch.compiled
from mgx_core import DeviceError, PassError, PluginError, Program, UnsupportedError
from mgx_torch import explain
from mgx_torch.backend import Taken, overwrite
from mgx_torch.compiled import CompiledGraph
from mgx_torch.decompositions import all_converters
from mgx_torch.options import TorchOptions


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)).eval()


def test_backend_is_found_by_its_entry_point() -> None:
    assert "mgx" in torch._dynamo.list_backends()


def test_results_are_fresh_tensors() -> None:
    compiled = torch.compile(torch.sin, backend="mgx")
    x = torch.randn(4)
    first = compiled(x)
    kept = first.clone()
    compiled(x + 1)
    assert torch.equal(first, kept)


def test_later_calls_pass_addresses_of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(lambda x, y: (x @ y, x.sum(1) > 0), backend="mgx")
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    first = compiled(x, y)
    monkeypatch.setattr(mgx_torch.compiled, "host_array", None)
    found = compiled(x + 1, y)
    close(found[0], (x + 1) @ y)
    assert torch.equal(found[1], (x + 1).sum(1) > 0)
    close(first[0], x @ y)


def test_tensors_that_are_not_plain_or_contiguous_are_passed_as_arrays() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="mgx", dynamic=False)
    negative = torch.randn(4, dtype=torch.complex64).conj().imag
    for x in (negative, torch.randn(4, 2)[:, 0], torch.randn(1 << 15)):
        for _ in range(3):
            close(compiled(x), x * 2)


@pytest.mark.parametrize("gradients", [False, True])
def test_memory_of_arguments_can_be_released(gradients: bool) -> None:
    """Sharded training releases gathered weights after each layer."""
    layer, x = nn.Linear(300, 200), torch.randn(100, 300)
    compiled = torch.compile(layer, backend="mgx")
    for _ in range(2):
        with torch.set_grad_enabled(gradients):
            close(compiled(x), layer(x))
    for tensor in (x, layer.weight, layer.bias):
        storage = tensor.untyped_storage()
        size = storage.size()
        storage.resize_(0)
        storage.resize_(size)
        tensor.data.fill_(0.5)
    with torch.set_grad_enabled(gradients):
        close(compiled(x), torch.full((100, 200), 75.5))


class Image(torch.Tensor):
    """A subclass without operators of its own, as torchvision's are."""


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [torch.sin, lambda x: torch.linalg.matrix_exp(x.sin()) + 1, lambda x: x.mul_(2)])
def test_subclasses_that_dispatch_as_tensors(function: Any, gradients: bool) -> None:
    layer = torch.nn.Linear(3, 3).requires_grad_(gradients)
    compiled = torch.compile(lambda x: function(layer(x)), backend="mgx")
    for _ in range(2):
        x = torch.randn(3, 3).as_subclass(Image)
        found = compiled(x)
        assert type(found) is Image
        close(found, function(layer(x)))


def test_a_subclass_is_written_in_place() -> None:
    first, second = torch.arange(6.0).as_subclass(Image), torch.arange(6.0)
    torch.compile(lambda x: x.mul_(3), backend="mgx")(first)
    close(first.as_subclass(torch.Tensor), second * 3)


def test_a_whole_network_is_converted() -> None:
    with torch.no_grad():
        found = explain(mlp(), torch.randn(2, 8))
    assert found.whole, str(found)


def test_weights_follow_writes_of_all_kinds() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="mgx")
    x = torch.randn(5, 8)
    with torch.no_grad():
        close(compiled(x), model(x))
        model[0].weight.mul_(2)
        close(compiled(x), model(x))
        model[0].weight.data.mul_(2)  # not counted by torch's version counter
        close(compiled(x), model(x))
        x = torch.randn(9, 8)  # another graph on the same weights
        close(compiled(x), model(x))
        other = mlp()
        model.load_state_dict(other.state_dict())
        close(compiled(x), other(x))


@pytest.mark.parametrize("layer", [nn.Conv2d(16, 128, 3), nn.Linear(128, 128), nn.BatchNorm2d(16), nn.LSTM(64, 64)])
def test_one_element_written_unseen_by_torch_is_found(layer: nn.Module) -> None:
    sizes = {nn.Conv2d: (2, 16, 9, 9), nn.Linear: (3, 128), nn.BatchNorm2d: (2, 16, 4, 4), nn.LSTM: (4, 3, 64)}
    layer, x = copy.deepcopy(layer).eval(), torch.randn(sizes[type(layer)])
    compiled = torch.compile(layer, backend="mgx")
    weight = next(layer.parameters())
    with torch.no_grad():
        compiled(x)
        for position in (weight.numel() // 3, -1):
            weight.data.view(-1)[position] += 3.0
            for got, want in zip(tree_leaves(compiled(x)), tree_leaves(layer(x)), strict=True):
                close(got, want, 1e-4)


def test_filters_that_change_places_are_found() -> None:
    layer, x = nn.Conv2d(512, 64, 1).eval(), torch.randn(1, 512, 3, 3)
    compiled = torch.compile(layer, backend="mgx")
    with torch.no_grad():
        compiled(x)
        layer.weight.data.copy_(layer.weight.data.flip(0))
        close(compiled(x), layer(x), 1e-4)


def test_frozen_weights_follow_what_torch_counts() -> None:
    model, x = mlp(), torch.randn(5, 8)
    compiled = torch.compile(model, backend="mgx", options={"freeze": True})
    with torch.no_grad():
        close(compiled(x), model(x))
        model[0].weight.mul_(2)
        close(compiled(x), model(x))


def test_second_instance_of_a_class_has_its_own_weights() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    first, second = Net(), Net()
    one, two = torch.compile(first, backend="mgx"), torch.compile(second, backend="mgx")
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(2):
            close(one(x), first(x))
            close(two(x), second(x))


def test_one_compilation_for_all_sizes() -> None:
    model = mlp()
    counts = []
    for backend in ("aot_eager", "mgx"):
        torch._dynamo.reset()
        counted = torch._dynamo.testing.CompileCounterWithBackend(backend)
        compiled = torch.compile(model, backend=counted, dynamic=True)
        with torch.no_grad():
            for rows in (2, 3, 7, 30):
                x = torch.randn(rows, 8)
                close(compiled(x), model(x))
        counts.append(counted.frame_count)
    assert counts[1] <= counts[0] <= 2


def test_training_step_is_eagers() -> None:
    ours = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 2)
    )
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="mgx")
    mine = torch.optim.SGD(ours.parameters(), 0.01)
    other = torch.optim.SGD(theirs.parameters(), 0.01)
    x = torch.randn(2, 3, 8, 8)
    for step in range(3):
        for model, optimizer in ((compiled, mine), (theirs, other)):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        close(a, b, 1e-4)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_running_statistics_are_eagers(layer: Any, kind: torch.dtype, gradients: bool) -> None:
    ours = layer(3, affine=True, track_running_stats=True).to(kind)
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="mgx")
    with torch.set_grad_enabled(gradients):
        for mode in (True, True, False):
            ours.train(mode)
            theirs.train(mode)
            x = torch.randn(4, 3, 5, 5, dtype=kind) + 2
            close(compiled(x), theirs(x), 1e-5 if kind is torch.float32 else 5e-2)
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert a.dtype is b.dtype
        close(a, b, 1e-5 if kind is torch.float32 else 1e-2)


def test_random_numbers_are_torchs() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand_like(x) + torch.sin(x)

    compiled = torch.compile(model, backend="mgx")
    x = torch.randn(5, 3)
    torch.manual_seed(3)
    got = compiled(x)
    torch.manual_seed(3)
    close(got, model(x))


def test_cache_written_in_place() -> None:
    def step(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache[:, 2:3] = new
        return cache.sum(1)

    mine, theirs = torch.zeros(2, 5), torch.zeros(2, 5)
    new = torch.randn(2, 1)
    close(torch.compile(step, backend="mgx")(mine, new), step(theirs, new))
    close(mine, theirs)


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_results_without_elements_have_the_same_strides_in_every_call(target: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, :0] * 2, x[:0] + 1, x[:0] > 0, (x[:, :0] * 2).bfloat16()

    compiled = torch.compile(function, backend="mgx", options={"target": target, "strict": True})
    x = torch.randn(4, 5)
    for _ in range(3):
        for found, wanted in zip(compiled(x), function(x), strict=True):
            assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())


def test_results_keep_torchs_strides() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).transpose(1, 2)

    x = torch.randn(2, 3, 4)
    assert torch.compile(model, backend="mgx")(x).stride() == model(x).stride()


@torch.compiler.disable
def left_to_python(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: left_to_python(x.sin()), "1 graph, 1 part\n0: mgx: 1 operator ("),
        (lambda x: x, "0 graphs: nothing was compiled"),
    ],
)
def test_programs_with_python_steps_are_not_whole(model: Any, words: str) -> None:
    found = explain(model, torch.randn(3))
    assert not found.whole
    assert str(found).startswith(words)
    assert not found.breaks or found.breaks[0] in str(found)


def test_views_of_inputs_are_returned_without_a_copy() -> None:
    """As the weights that a forward graph keeps for the backward one."""

    def forward(w: torch.Tensor, x: torch.Tensor) -> Any:
        return x @ w.t(), w.t(), x[1:, None], x.real

    w, x = torch.randn(5, 4), torch.randn(3, 4)
    graph = CompiledGraph(make_fx(forward)(w, x), all_converters(), TorchOptions(target="cpu"))
    for _ in range(2):
        found = graph(w, x)
        close(found, list(forward(w, x)))
        assert [f.untyped_storage().data_ptr() for f in found[1:]] == [t.data_ptr() for t in (w, x, x)]


def test_views_of_inputs_to_sizes_that_are_arguments() -> None:
    """Autograd makes them anew from the strides of the results, where memory is repeated without a copy."""

    def forward(x: torch.Tensor) -> Any:
        rows = x.unsqueeze(0).expand(2 * x.shape[0] - x.shape[1], *x.shape)
        return x * 2, x.expand(2, *x.shape), x.unsqueeze(1).expand(x.shape[0], 3, x.shape[1]), rows

    compiled = torch.compile(forward, backend="mgx", dynamic=True, options={"target": "cpu"})
    for dims in ((5, 4), (6, 7)):
        x = torch.randn(dims, requires_grad=True)
        found = compiled(x)
        close(list(found), list(forward(x)))
        assert [f.stride() for f in found] == [f.stride() for f in forward(x)]
        assert [f.untyped_storage().data_ptr() for f in found[1:]] == [x.untyped_storage().data_ptr()] * 3
        (gradient,) = torch.autograd.grad(sum(f.sum() for f in found), x)
        close(gradient, torch.full(dims, 7.0 + found[3].shape[0]))


def test_arguments_and_results_are_passed_in_the_order_of_their_memory() -> None:
    def turned(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x * 2).permute(1, 2, 0), x + y, torch.complex(x, x).transpose(0, 1)

    x, y = torch.randn(2, 3, 4).permute(2, 0, 1), torch.randn(4, 2, 3)
    gm = make_fx(turned, tracing_mode="fake")(x, y)
    graph = CompiledGraph(gm, all_converters(), TorchOptions(target="cpu"))
    for a, b in ((x, y), (x + 1, y), (torch.randn(4, 2, 3), torch.randn(3, 4, 2).permute(1, 2, 0))):
        found = graph(a, b)
        close(found, list(turned(a, b)))
        assert [f.stride() for f in found] == [f.stride() for f in turned(x, y)]
    (variant,) = graph._variants.values()
    assert sorted(s.lens() for s in variant.executable.parameters.values()) == [[2, 3, 4], [4, 2, 3]]
    assert {tuple(s.lens()) for s in variant.executable.module.output_shapes()} == {(2, 3, 4)}


def test_unknown_operator_stays_with_torch_and_is_named() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(torch.sin(x))[1] + 1

    x = torch.randn(3, 3)
    close(torch.compile(model, backend="mgx")(x), model(x))
    found = explain(model, x)
    assert not found.whole
    assert any("linalg_qr" in why for part in found.parts for why in part.reasons)


def test_each_refusal_keeps_one_operator_with_torch() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):  # rejected only by the converter: interpolation between corners of one element
            x = torch.sin(x) + nn.functional.interpolate(x, (4, 1), mode="bilinear", antialias=True, align_corners=True)
        return x

    x = torch.randn(1, 1, 4, 1)
    close(torch.compile(model, backend="mgx")(x), model(x))
    found = explain(model, x)
    assert [op for p in found.parts if p.target == "torch" for op in p.operators] == [
        "aten._upsample_bilinear2d_aa.vec"
    ] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quick": True}, "no option 'quick'; known are target, fp16"),
        ({"fp_16": True}, "no option 'fp_16'; did you mean 'fp16'"),
        ({"fp16": 3}, "must be a bool"),
        ({"threads": "2"}, "must be an int, got '2'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        torch.compile(torch.sin, backend="mgx", options=options)(torch.randn(3))


def test_unknown_target_is_refused() -> None:
    compiled = torch.compile(torch.sin, backend="mgx", options={"target": "cpuu"})
    with pytest.raises(RuntimeError, match=r"no target 'cpuu'.*did you mean 'cpu'"):
        compiled(torch.randn(3))


def test_fp16_computes_in_halves() -> None:
    model, x = mlp(), torch.randn(2, 8)
    with torch.no_grad():
        want, got = model(x), torch.compile(model, backend="mgx", options={"fp16": True})(x)
    assert got.dtype == torch.float32
    close(got, want, 1e-2)
    assert not torch.equal(got, want)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_converted_whole(kind: Any) -> None:
    layer, x = kind(8, 6, 2, bidirectional=True).eval(), torch.randn(5, 2, 8)
    with torch.no_grad():
        close(torch.compile(layer, backend="mgx")(x)[0], layer(x)[0])
        found = explain(layer, x)
    assert found.whole, str(found)
    assert len(found.parts) == 1
    assert any(kind.__name__.lower() in op for op in found.parts[0].operators)
    assert not torch._dynamo.config.allow_rnn


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_recurrent_layers_run_on_mgx(monkeypatch: pytest.MonkeyPatch, fullgraph: bool) -> None:
    ran: list[Any] = []
    attempt = Taken._attempt
    monkeypatch.setattr(Taken, "_attempt", lambda self, args: ran.append(self) or attempt(self, args))
    layer, x = nn.LSTM(8, 6).eval(), torch.randn(5, 2, 8)
    with torch.no_grad():
        close(torch.compile(layer, backend="mgx", fullgraph=fullgraph)(x)[0], layer(x)[0])
    assert [part.target for taken in ran for part in taken.parts] == ["mgx"]
    assert not torch._dynamo.config.allow_rnn


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_that_torch_misdescribes_stay_with_torch(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    attempt = Taken._attempt
    ran: list[Taken] = []

    def misdescribed(self: Taken, args: Any) -> Any:
        for node in self.gm.graph.nodes:
            if kind.__name__.lower() in str(node.target) and node.meta["val"][1].dim() == 3:
                y, *lasts = node.meta["val"]
                node.meta["val"] = (y, *(v.unsqueeze(0) for v in lasts))
                ran.append(self)
        return attempt(self, args)

    monkeypatch.setattr(Taken, "_attempt", misdescribed)
    layer, x = kind(8, 6).eval(), torch.randn(5, 2, 8)
    with torch.no_grad():
        got, want = torch.compile(layer, backend="mgx")(x), layer(x)
    (taken,) = ran
    assert any("last state has 4 axes instead of 3" in why for part in taken.parts for why in part.reasons)
    for one, other in zip(tree_leaves(got), tree_leaves(want), strict=True):
        close(one, other)


@pytest.mark.parametrize("inside", [False, True])
def test_recurrent_layers_with_gradients_stay_with_torch(inside: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(8, 6)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x.relu())

    model, x = Model() if inside else nn.LSTM(8, 6), torch.randn(5, 2, 8)
    found = explain(model, x)
    assert not found.parts
    assert "LSTM" in str(found)
    close(torch.compile(model, backend="mgx")(x)[0], model(x)[0])


def failing(error: Exception) -> Any:
    def attempt(self: Any, args: Any) -> Any:
        raise error

    return attempt


@pytest.mark.parametrize("error", [DeviceError("lost"), PluginError("no target"), PassError("broken")])
def test_errors_that_are_no_refusals_are_raised(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr("mgx_torch.backend.Taken._attempt", failing(error))
    with pytest.raises(type(error)), torch.no_grad():
        torch.compile(mlp(), backend="mgx")(torch.randn(2, 8))


def test_a_graph_that_is_left_to_torch_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mgx_torch.backend.Taken._attempt", failing(UnsupportedError("a quantum tensor")))
    model, x = mlp(), torch.randn(2, 8)
    with torch.no_grad(), caplog.at_level("WARNING", "mgx"):
        close(torch.compile(model, backend="mgx")(x), model(x))
    assert "falls back to torch: a quantum tensor" in caplog.text


class Deep(nn.Module):
    """A convolution with constant filters, and a product whose matrix is passed in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x)).flatten(1)))


def test_compiled_programs_are_loaded_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    model, x, compiles = Deep().eval(), torch.randn(2, 3, 8, 8), []
    real = Program.compile
    monkeypatch.setattr(Program, "compile", lambda self, *args, **more: compiles.append(1) or real(self, *args, **more))

    def run() -> None:
        torch._dynamo.reset()
        with torch.no_grad():
            close(torch.compile(model, backend="mgx", options={"cache": True})(x), model(x), 1e-4)

    run()
    run()
    assert len(compiles) == 1
    model.first.weight.data[0, 0, 0, 0] += 1.0  # other filters need another program
    run()
    assert len(compiles) == 2
    model.second.weight.data[0, 0] += 1.0  # which are not part of the program
    run()
    assert len(compiles) == 2
    for entry in (tmp_path / "torch").iterdir():  # damage is detected
        entry.write_bytes(entry.read_bytes()[:-9])
    run()
    assert len(compiles) == 3


def test_parts_know_sizes_that_only_the_whole_can_distinguish() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.geqrf(x.reshape(-1, 4))[0]  # which torch runs: the code after it sees s0 * s1 rows
        return rows.masked_fill(rows[:, :1] > 0.7, 0.0).sum(1).view(-1, 2) + rows.repeat(2, 1).sum()

    compiled = torch.compile(function, backend="mgx", dynamic=True)
    for sizes in ((2, 6, 4), (3, 8, 4)):
        x = torch.randn(sizes)
        close(compiled(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_broadcast_results_have_memory_of_their_own(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> Any:
        wide = torch.ones(3, 4).cumsum(0).expand(x.shape[0], 3, 4).contiguous()
        return wide, wide.view(-1, 12), x[:, :1].expand(-1, 4).clone()

    compiled = torch.compile(function, backend="mgx", dynamic=dynamic)
    for rows in (2, 5):
        x = torch.randn(rows, 2)
        got, want = compiled(x), function(x)
        close(got, want)
        got[0][0] += 1
        assert torch.equal(got[1][0].view(3, 4), want[0][0] + 1)
        assert torch.equal(got[0][1], want[0][1])
        assert got[2].is_contiguous()


class Cached(nn.Module):
    """Attention over a cache that each call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 4))
        self.register_buffer("values", torch.zeros(1, 2, 16, 4))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.keys[:, :, places] = k
        self.values[:, :, places] = v
        mask = torch.arange(16) <= places[:, None]
        return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)


def test_caches_are_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = []

    def seen(tensor: torch.Tensor, value: torch.Tensor) -> None:
        apart.append(value.data_ptr() != tensor.data_ptr())
        overwrite(tensor, value)

    monkeypatch.setattr("mgx_torch.backend.overwrite", seen)
    eager = Cached().eval()
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="mgx")
    with torch.no_grad():
        for place in range(3):
            x, places, version = torch.randn(1, 1, 8), torch.tensor([place]), model.keys._version
            close(compiled(x, places), eager(x, places))
            close(model.keys, eager.keys)
            close(model.values, eager.values)
            assert model.keys._version > version
    assert apart == [True, True, False, False, False, False]  # the results of the first run are validated


def test_memory_in_any_order_is_written_to() -> None:
    def step(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[1:3] += x
        return cache.sum(0)

    compiled = torch.compile(step, backend="mgx")
    for _ in range(3):
        want = torch.randn(4, 6).t()
        got = want.clone()
        assert not got.is_contiguous()
        x = torch.randn(2, 4)
        close(compiled(got, x), step(want, x))
        close(got, want)


def test_a_tensor_is_overwritten_with_another_order_of_itself() -> None:
    x = torch.arange(4.0)
    overwrite(x, x.flip(0))
    assert x.tolist() == [3.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("operator", [lambda x: torch.geqrf(x)[0] + 1, lambda x: x.sin() + torch.rand_like(x)])
def test_strict_leaves_no_operator_to_torch(operator: Any) -> None:
    compiled = torch.compile(operator, backend="mgx", options={"strict": True})
    with pytest.raises(
        UnsupportedError, match=r"strict leaves nothing to torch: .*(geqrf|rand_like).*test_backend.py:\d+"
    ):
        compiled(torch.randn(3, 3))


def test_strict_lets_results_share_memory() -> None:
    x = torch.randn(4, 3)
    got = torch.compile(lambda x: (x.T, x + 1), backend="mgx", options={"strict": True})(x)
    assert got[0].data_ptr() == x.data_ptr()
    close(got[1], x + 1)


def test_one_of_many_threads_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []
    attempt = Taken._attempt

    def slow(taken: Taken, args: Any) -> Any:
        attempts.append(1)
        time.sleep(0.1)
        return attempt(taken, args)

    monkeypatch.setattr(Taken, "_attempt", slow)
    x = torch.randn(4)
    taken = Taken(make_fx(lambda v: [torch.relu(v) + 1])(x), all_converters(), TorchOptions(), (), [])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: taken([x])[0], range(4)))
    assert len(attempts) == 1
    for y in found:
        torch.testing.assert_close(y, torch.relu(x) + 1)


def checked_element(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x < 5).all(), "an element of 5 or more")
    return x * 2


def checked_number(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.sum().item() < 9, lambda: "a sum of 9 or more")
    return x * 2


def checked_size(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    torch._check(y.shape[0] == 2, lambda: "not two positive elements")
    return y * 2


def checked_both(x: torch.Tensor) -> torch.Tensor:
    y, z = x[x > 0], x[x < 5]
    torch._check(torch.sym_not((y.shape[0] > 2) | (z.shape[0] < 3)), lambda: "too many elements")
    return y * 2


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (checked_element, "an element of 5 or more"),
        (checked_number, "a sum of 9 or more"),
        (checked_size, "not two positive elements"),
        (checked_both, "u0 <= 2"),  # which torch asserts beside the function's own message
    ],
)
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_assertions_on_elements_are_checked(function: Any, words: str, gradients: bool) -> None:
    good, bad = (torch.tensor(x, requires_grad=gradients) for x in ([-1.0, 2.0, 3.0], [4.0, 2.0, 5.0]))
    with torch.set_grad_enabled(gradients):
        found = explain(function, good)
        assert found.whole, str(found)
        compiled = torch.compile(function, backend="mgx", fullgraph=True)
        for _ in range(2):
            close(compiled(good), function(good))
            with pytest.raises(RuntimeError, match=words):
                compiled(bad)


def test_branches_with_assertions_are_left_to_torch() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "not positive")
        return x * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, checked, lambda x: x + 1, (x,))

    found = explain(function, torch.ones(3))
    assert any("checks an assertion inside a branch" in why for part in found.parts for why in part.reasons)
    compiled = torch.compile(function, backend="mgx")
    close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    close(compiled(torch.tensor([1.0, -2.0])), torch.tensor([2.0, -1.0]))
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(torch.tensor([3.0, -2.0]))


@pytest.mark.parametrize("drops", [False, True])
def test_regions_that_are_compiled_once_run_on_mgx(drops: bool) -> None:
    """Those that draw random numbers are left to torch as a whole."""

    @torch.compiler.nested_compile_region
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(torch.tanh(x @ w), 0.5, training=drops) + x

    def stacked(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for w in weights:
            x = block(x, w)
        return x

    x, weights = torch.randn(3, 4), [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    found = explain(stacked, x, weights)
    assert found.whole is not drops, str(found)
    torch.manual_seed(3)
    got = torch.compile(stacked, backend="mgx")(x, weights)
    torch.manual_seed(3)
    want = torch.compile(stacked, backend="aot_eager")(x, weights)
    close(got, want)
    for one, other in zip(
        torch.autograd.grad(got.sum(), weights), torch.autograd.grad(want.sum(), weights), strict=True
    ):
        close(one, other)
