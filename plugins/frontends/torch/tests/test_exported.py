"""Exported programs and lowered modules, compared with torch."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mgx_core
from mgx_torch import MgxModule, explain, from_exported, lower_to_mgx
from mgx_torch.decompositions import all_converters, table
from mgx_torch.exported import parse_exported


class Tagger(nn.Module):
    """Layers that torch decomposes and mgx keeps whole."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 5, batch_first=True)
        self.norm = nn.LayerNorm(5)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        y, (h, c) = self.lstm(self.embed(tokens))
        z, _ = self.gru(y)
        return {"states": self.norm(z), "h": h, "c": c}


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, 11, (3, 4))


def test_recurrent_layers_stay_whole(tokens: torch.Tensor) -> None:
    model = Tagger().eval()
    program = from_exported(torch.export.export(model, (tokens,)))
    text = program.text()
    assert "lstm" in text
    assert "gru" in text
    program.compile(mgx_core.get_target("cpu"))
    got = program.run({"tokens": tokens.numpy()})
    for a, b in zip(got, model(tokens).values(), strict=True):
        torch.testing.assert_close(torch.from_numpy(a.to_numpy()), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"bias": False, "bidirectional": True, "num_layers": 2}])
def test_a_projected_lstm_is_refused_with_the_reason(options: dict[str, Any]) -> None:
    layer = nn.LSTM(5, 6, proj_size=3, **options).eval()
    with pytest.raises(mgx_core.UnsupportedError, match="LSTM with proj_size"):
        from_exported(torch.export.export(layer, (torch.randn(4, 2, 5),)))


def test_torchs_metadata_of_unused_results_is_ignored() -> None:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[0]

    converters = all_converters()
    functional = torch.export.export(First().eval(), (torch.randn(5, 2, 4),)).run_decompositions(table(converters))
    (node,) = (n for n in functional.graph.nodes if "lstm" in str(n.target))
    y, h, c = node.meta["val"]
    node.meta["val"] = (y, h.unsqueeze(0), c)  # torch's layout on some devices
    assert "lstm" in str(parse_exported(functional, converters))
    node.meta["val"] = (y.unsqueeze(0), h, c)
    with pytest.raises(mgx_core.PluginError, match="where torch has"):
        parse_exported(functional, converters)


def test_weights_are_torchs_memory() -> None:
    model = nn.Linear(4, 3).eval()
    program = from_exported(torch.export.export(model, (torch.randn(2, 4),)))
    there = {i.literal.value.__array_interface__["data"][0] for i in program.get_main_module() if i.literal is not None}
    assert model.weight.data_ptr() in there


def test_symbols_carry_torchs_ranges() -> None:
    size = torch.export.Dim("n", min=1, max=64)
    exported = torch.export.export(nn.Linear(4, 3), (torch.randn(2, 4),), dynamic_shapes=({0: size},))
    program = from_exported(exported)
    program.compile(mgx_core.get_target("ref"))
    assert program.run({"input": torch.randn(9, 4).numpy()})[0].to_numpy().shape == (9, 3)
    with pytest.raises(mgx_core.ParameterError, match="64"):
        program.run({"input": torch.randn(65, 4).numpy()})


def test_changed_buffer_is_input_and_result() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x)
            return self.count * 2

    program = from_exported(torch.export.export(Counter(), (torch.ones(2),)))
    assert "count" in program.get_parameter_names()
    assert program.get_output_names()[-1] == "count"


def test_an_instance_norm_that_writes_statistics_unsaid_is_refused() -> None:
    module = nn.InstanceNorm1d(3, track_running_stats=True).train()
    exported = torch.export.export(module, (torch.randn(2, 3, 5),))
    with pytest.raises(mgx_core.UnsupportedError, match="instance norm in training mode, which writes its statistics"):
        from_exported(exported)


def test_missing_converter_is_named_with_its_place() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.geqrf(x)[0]

    with pytest.raises(mgx_core.UnsupportedError, match=r"geqrf.*test_exported.py:\d+"):
        from_exported(torch.export.export(Model(), (torch.randn(3, 3),)))


def test_lowered_module_returns_the_modules_results(tokens: torch.Tensor) -> None:
    model = Tagger().eval()
    lowered = lower_to_mgx(model, [tokens])
    assert isinstance(lowered, MgxModule)
    got, want = lowered(tokens), model(tokens)
    assert list(got) == list(want)
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-5)


def test_lowering_keeps_the_mode_of_each_layer() -> None:
    """A frozen normalization inside a module in training stays frozen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    model[1].eval()
    x = torch.randn(3, 4)
    got = lower_to_mgx(model, [x])(x)
    assert [m.training for m in model.modules()] == [True, True, False, True]
    torch.testing.assert_close(got, model.eval()(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_exported_modules_are_lowered(nested: bool) -> None:
    """Their `eval` raises an error; quantizers return such modules."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).eval()
    x = torch.randn(3, 4)
    exported = torch.export.export(model, (x,)).module()
    module = nn.Sequential(exported, nn.Dropout(0.5)) if nested else exported
    modes = [m.training for m in module.modules()]
    torch.testing.assert_close(lower_to_mgx(module, [x])(x), model(x), rtol=1e-5, atol=1e-5)
    assert [m.training for m in module.modules()] == modes


def test_lowered_module_checks_its_call(tokens: torch.Tensor) -> None:
    lowered = lower_to_mgx(nn.Linear(4, 3), [torch.randn(2, 4)])
    with pytest.raises(mgx_core.ParameterError, match=r"it takes \(input\), got \(Tensor, Tensor\)"):
        lowered(torch.randn(2, 4), torch.randn(2, 4))
    with pytest.raises(mgx_core.ParameterError, match="float32"):
        lowered(torch.randn(2, 4, dtype=torch.float64))
    with pytest.raises(mgx_core.ParameterError, match="input"):
        lowered(torch.randn(3, 4))


def test_lowered_module_moves_and_rejects_unsupported_devices(tokens: torch.Tensor) -> None:
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    lowered = lower_to_mgx(layer, [x])
    whole = nn.Sequential(lowered).to("cpu")
    torch.testing.assert_close(whole(x), layer(x))
    assert lowered.device == torch.device("cpu")
    with pytest.raises(mgx_core.ParameterError, match="must be on cpu"):
        lowered(x.to("meta"))
    with pytest.raises(mgx_core.ParameterError, match="fp16=True"):
        lowered.half()
    with pytest.raises(mgx_core.ParameterError, match="no target for the device meta"):
        lowered.to("meta")


def test_lowered_module_travels(tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    lowered = lower_to_mgx(nn.Linear(4, 3), [x])
    want = lowered(x)
    assert torch.equal(pickle.loads(pickle.dumps(lowered))(x), want)
    assert torch.equal(copy.deepcopy(lowered)(x), want)
    other = lower_to_mgx(nn.Linear(4, 3), [x])
    other.load_state_dict(lowered.state_dict())
    assert torch.equal(other(x), want)
    lowered.save(tmp_path / "linear.mxr")
    program = mgx_core.load(tmp_path / "linear.mxr")
    program.compile(mgx_core.get_target("cpu"))
    assert torch.equal(torch.from_numpy(program.run({"input": x.numpy()})[0].to_numpy()), want)


def test_torchs_own_deprecation_warnings_are_suppressed() -> None:
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    exported = torch.export.export(layer, (x,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_exported(exported)
        lowered = lower_to_mgx(layer, [x], target="ref")
        for module in (lowered, copy.deepcopy(lowered), pickle.loads(pickle.dumps(lowered))):
            torch.testing.assert_close(module(x), layer(x))


def test_lowered_module_inside_a_compiled_function() -> None:
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    lowered = lower_to_mgx(layer, [x])

    def function(x: torch.Tensor) -> torch.Tensor:
        return lowered(x.relu()) + 1

    with torch.no_grad():
        for _ in range(2):
            got = torch.compile(function, backend="mgx")(x)
            torch.testing.assert_close(got, layer(x.relu()) + 1, rtol=1e-5, atol=1e-5)
    found = explain(function, x)
    assert (found.graphs, [p.target for p in found.parts]) == (2, ["mgx", "mgx"])
    assert "a lowered module runs on mgx" in str(found)


def test_lowered_module_from_many_threads() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    lowered = lower_to_mgx(model, [torch.randn(2, 16)])
    xs = [torch.randn(2, 16) for _ in range(8)]
    found: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        for _ in range(20):
            found[i] = lowered(xs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, x in enumerate(xs):
        torch.testing.assert_close(found[i], model(x), rtol=1e-5, atol=1e-5)


def test_released_weights_leave_one_owner() -> None:
    model = nn.Linear(4, 3)
    x = torch.randn(2, 4)
    want = model(x)
    lowered = lower_to_mgx(model, [x], release_weights=True)
    assert model.weight.numel() == 0
    torch.testing.assert_close(lowered(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("release", [False, True])
def test_lowered_module_keeps_weights_as_they_were(called: bool, release: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    x = torch.randn(2, 4)
    want = model(x)
    lowered = lower_to_mgx(model, [x], release_weights=release)
    if called:
        lowered(x)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(1)
    torch.testing.assert_close(lowered(x), want, rtol=1e-5, atol=1e-5)


def test_lowered_module_has_one_copy_of_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    model, x = Tied(), torch.randn(2, 4)
    lowered = lower_to_mgx(model, [x])
    assert str(lowered.program).count("@literal") == 1
    torch.testing.assert_close(lowered(x), model(x), rtol=1e-5, atol=1e-5)


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, own: bool) -> torch.Tensor:
        (self.calls if own else x).add_(1)
        return x * 2


@pytest.mark.parametrize("own", [False, True])
def test_module_that_writes_is_not_lowered(own: bool) -> None:
    with pytest.raises(mgx_core.ParameterError, match="the module changes calls " if own else "the module changes x "):
        lower_to_mgx(Writes(), [torch.randn(3), own])


class Turns(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, spare: torch.Tensor) -> dict[str, Any]:
        return {"turned": x * 1j + y, "size": x.abs(), "nothing": None, "spectrum": torch.fft.rfft(y), "same": x}


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_complex_arguments_and_results_of_a_lowered_module(kind: torch.dtype) -> None:
    x, y = torch.randn(3, dtype=kind.to_complex()), torch.randn(3, dtype=kind)
    module = lower_to_mgx(Turns(), [x, y, x])
    for given in (x, x.conj(), torch.stack([x, x], 1)[:, 0]):
        torch.testing.assert_close(module(given, y, given), Turns()(given, y, given))
    names = module.program.get_output_names()
    assert [n.rpartition(".")[2] for n in names[:2]] == ["real", "imag"]
    copied = pickle.loads(pickle.dumps(module))
    torch.testing.assert_close(copied(x, y, x), Turns()(x, y, x))
    with pytest.raises(mgx_core.ParameterError, match=f"input 'x' must be a tensor of {kind.to_complex()}, got {kind}"):
        module(y, y, x)


class ImaginaryOfConjugates(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.conj().imag, x.conj().imag * 2, torch._neg_view(x)


def test_negated_views_of_complex_tensors_are_converted() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    module = ImaginaryOfConjugates()
    torch.testing.assert_close(lower_to_mgx(module, [x], target="ref")(x), module(x))


class StableOrders(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.argsort(x, stable=True),
            torch.argsort(x, dim=0, descending=True, stable=True),
            torch.argsort(x[0, 0], stable=True),
        )


def test_stable_orders_are_converted() -> None:
    x, module = torch.randint(0, 3, (40, 50)).float(), StableOrders()
    torch.testing.assert_close(lower_to_mgx(module, [x], target="ref")(x), module(x), rtol=0, atol=0)


class Chooses(nn.Module):
    def forward(self, x: torch.Tensor, doubled: bool, *, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x * (2 if doubled else 1) + a - b


def test_lowered_module_binds_arguments_by_name() -> None:
    x, a, b = torch.randn(3), torch.randn(3), torch.randn(3)
    lowered = lower_to_mgx(Chooses(), (x, True), {"a": a, "b": b}, target="ref")
    for module in (lowered, pickle.loads(pickle.dumps(lowered))):
        torch.testing.assert_close(module(x, True, a=a, b=b), x * 2 + a - b)
        torch.testing.assert_close(module(x, True, b=b, a=a), x * 2 + a - b)
        torch.testing.assert_close(module(b=b, doubled=True, a=a, x=x), x * 2 + a - b)


def test_lowered_module_refuses_other_arguments() -> None:
    x = torch.randn(3)
    lowered = lower_to_mgx(Chooses(), (x, True), {"a": x, "b": x}, target="ref")
    with pytest.raises(mgx_core.ParameterError, match="constant True, got False"):
        lowered(x, False, a=x, b=x)
    with pytest.raises(
        mgx_core.ParameterError, match=r"it takes \(x, True, a=a, b=b\), got \(Tensor, bool, a=Tensor, c=Tensor\)"
    ):
        lowered(x, True, a=x, c=x)
    with pytest.raises(mgx_core.ParameterError, match=r"got \(Tensor, a=Tensor, b=Tensor\)"):
        lowered(x, a=x, b=x)
    with pytest.raises(mgx_core.ParameterError, match="must be a tensor"):
        lowered(x, True, a=x, b=1.0)
    with pytest.raises(mgx_core.ParameterError, match=r"got \(Tensor, bool, x=Tensor, a=Tensor, b=Tensor\)"):
        lowered(x, True, x=x, a=x, b=x)


def test_lowered_module_accepts_keywords_by_position() -> None:
    class Weighs(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return x + 2 * y + 4 * z

    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    lowered = lower_to_mgx(Weighs(), [x], {"z": z, "y": y}, target="ref")
    for got in (lowered(x, y, z), lowered(x, y, z=z), lowered(x, z=z, y=y), lowered(z=z, y=y, x=x)):
        torch.testing.assert_close(got, x + 2 * y + 4 * z)
    with pytest.raises(mgx_core.ParameterError, match=r"got \(Tensor, Tensor, Tensor, Tensor\)"):
        lowered(x, y, z, z)


def test_lowered_module_of_any_number_of_arguments() -> None:
    class Sums(nn.Module):
        def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            return first - sum(others)

    x, y, z = torch.randn(3), torch.randn(3), torch.randn(3)
    torch.testing.assert_close(lower_to_mgx(Sums(), [x, y, z], target="ref")(x, y, z), x - y - z)


def test_lowered_module_reports_the_number_of_tensors_in_an_argument() -> None:
    class Joins(nn.Module):
        def forward(self, parts: list[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
            return torch.cat([*parts, y])

    x = torch.randn(3)
    lowered = lower_to_mgx(Joins(), ([x, x], x), target="ref")
    with pytest.raises(mgx_core.ParameterError, match=r"it takes \(list of 2, y\), got \(list of 1, Tensor\)"):
        lowered([x], x)


def test_other_types_than_modules_and_exported_programs_are_rejected() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(mgx_core.ParameterError, match=r"\(\[x\] for one\), got Tensor"):
        lower_to_mgx(nn.Linear(4, 3), x)  # type: ignore[arg-type]
    with pytest.raises(mgx_core.ParameterError, match=r"takes a torch.nn.Module, got builtin_function_or_method"):
        lower_to_mgx(torch.sin, [x])  # type: ignore[arg-type]
    with pytest.raises(mgx_core.ParameterError, match=r"got Linear; lower_to_mgx takes modules"):
        from_exported(nn.Linear(4, 3))  # type: ignore[arg-type]


def test_lowered_module_returns_constants_among_its_results() -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
            return x * 2, x.shape[0], "name", None, 0.1, True, x.sum()

    x = torch.randn(3, 4)
    doubled, *constants, total = lower_to_mgx(Mixed(), [x])(x)
    assert constants == [3, "name", None, 0.1, True]
    torch.testing.assert_close([doubled, total], [x * 2, x.sum()])


def test_positions_by_axis_are_accepted() -> None:
    class Routed(nn.Module):
        def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
            rows, columns = torch.where(chosen)
            return torch.zeros_like(x).index_add(0, rows, x[rows] * (columns + 1)[:, None])

    x, chosen = torch.randn(4, 3), torch.rand(4, 2) > 0.5
    lowered = lower_to_mgx(Routed(), [x, chosen])
    for mask in (chosen, ~chosen, torch.zeros_like(chosen)):
        torch.testing.assert_close(lowered(x, mask), Routed()(x, mask))


def test_constants_without_data_are_refused(called: Callable[..., Any]) -> None:
    """What torch.export records for torch.func.grad: its own module returns a FakeTensor."""
    exported = torch.export.export(called(torch.func.grad(lambda x: (x.sin() ** 2).sum())), (torch.randn(4),))
    with pytest.raises(mgx_core.UnsupportedError, match=r"the constant 'lifted_tensor_0' has no data.*torch\.compile"):
        from_exported(exported)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.linalg.lstsq(x, x)[0], "the sizes of results of aten.linalg_lstsq.default depend on"),
        (lambda x: torch.cov(x), "aten.equal.default returns a Python number that depends on"),
        (
            lambda x: x + 1 if x.sum().item() > 0 else x,
            r"Python code needs the value of z?u\w+ > 0.*, which depends on",
        ),
    ],
)
def test_code_that_depends_on_elements_is_refused(function: Any, reason: str, called: Callable[..., Any]) -> None:
    where = r"cannot capture the module at \S+\.py:\d+: "
    with pytest.raises(
        mgx_core.UnsupportedError, match=f"{where}{reason} elements of tensors; run it with torch.compile"
    ):
        lower_to_mgx(called(function), [torch.randn(4, 4)])


def test_errors_of_the_module_itself_are_raised_as_they_are(called: Callable[..., Any]) -> None:
    def strict(x: torch.Tensor) -> torch.Tensor:
        raise LookupError("no such layout")

    with pytest.raises(LookupError, match="no such layout"):
        lower_to_mgx(called(strict), [torch.randn(2, 3)])
