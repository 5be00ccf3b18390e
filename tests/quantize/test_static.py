"""Static, dynamic and weight-only quantization of small programs, compared with the float programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.ir.module import nested
from mgx_core.quantize import QuantizeConfig, QuantizeReport, quantize, search
from mgx_core.quantize.ranges import Observer
from mgx_core.quantize.weights import by_groups, compensated

RNG = np.random.default_rng(11)
W1, W2 = (RNG.normal(size=s).astype(np.float32) / 8 for s in ((64, 96), (96, 64)))


def network_in_branches() -> Program:
    """Returns a network with a product in each branch of an `if`, which share their weights."""
    program = Program()
    main = program.get_main_module()
    x, chosen = main.add_parameter("x", Shape("float32", [4, 64])), main.add_parameter("chosen", Shape("bool", [1]))
    weights = main.add_literal(W1)
    sides = [program.create_module(name) for name in ("then", "other")]
    for side, function in zip(sides, ("relu", "neg"), strict=True):
        side.add_return([side.add(op(function), side.add(op("dot"), x, weights))])
    main.add_return([main.add(op("get_tuple_elem", index=0), main.add(op("if"), chosen, modules=sides))])
    return program


def network() -> Program:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [4, 64]))
    hidden = m.add(op("relu"), m.add(op("dot"), x, m.add_literal(W1)))
    m.add_return([m.add(op("dot"), hidden, m.add_literal(W2))])
    return program


def expected(x: Any) -> Any:
    return np.maximum(x @ W1, 0) @ W2


def batches(count: int = 3) -> Iterator[dict[str, Any]]:
    for seed in range(count):
        yield {"x": np.random.default_rng(seed).normal(size=(4, 64)).astype(np.float32)}


def noise(program: Program, x: Any) -> float:
    """Returns the relative error of a program's result on ref."""
    program.compile(mgx.get_target("ref"))
    wanted = expected(x)
    return float(np.linalg.norm(np.asarray(program.run({"x": x})[0]) - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("settings", [{}, {"ranges": "percentile"}, {"ranges": "mse"}, {"ranges": "entropy"},
                                      {"per_channel": False}, {"activations": "int8"}])  # fmt: skip
def test_int8(settings: dict[str, Any]) -> None:
    report = QuantizeReport()
    program = mgx.quantize_int8(network(), mgx.get_target("ref"), batches(), report=report, **settings)
    x = next(batches())["x"]
    assert 0 < noise(program, x) < 0.03
    names = [i.op.name for i in program.executable.module if i.op.name.startswith("quant")]
    assert len(report.layers) == 2
    assert "dot" not in names
    assert report.bytes[1] < 0.3 * report.bytes[0]
    assert "constants" in report.text()
    assert "<table>" in report.html()


def uneven(count: int = 4) -> Iterator[dict[str, Any]]:
    """Batches in which every eighth channel is 60 times as large as the others."""
    for batch in batches(count):
        x = batch["x"].copy()
        x[:, ::8] *= 60
        yield {"x": x}


def error(settings: dict[str, Any], data: list[dict[str, Any]]) -> Any:
    """Returns the error of the quantized network for each row of the data."""
    program = mgx.quantize_int8(network(), mgx.get_target("ref"), data, **settings)
    program.compile(mgx.get_target("ref"))
    return np.concatenate([np.asarray(program.run(b)[0]) - expected(b["x"]) for b in data])


def test_smoothing_of_uneven_channels() -> None:
    data, report = list(uneven()), QuantizeReport()
    rough, smooth = (np.square(error({"smooth": s}, data)).mean() for s in (False, True))
    assert smooth < 0.5 * rough
    mgx.quantize_int8(network(), mgx.get_target("ref"), data, report=report)
    assert report.layers[0].smoothed
    assert "yes" in report.text()


def test_bias_correction() -> None:
    data = [{"x": b["x"] + 3} for b in batches(8)]
    plain, right = (
        np.abs(error({"correct_bias": c, "per_channel": False, "smooth": False}, data).mean(0)).mean()
        for c in (False, True)
    )
    assert right < 0.6 * plain


def test_bias_correction_of_grouped_convolution() -> None:
    rng = np.random.default_rng(3)
    w = rng.normal(size=(6, 2, 3, 3)).astype(np.float32)
    x = (rng.normal(size=(2, 4, 12, 12)) + np.arange(4)[:, None, None]).astype(np.float32)

    def found(correct: bool | None) -> Any:
        program = Program()
        m = program.get_main_module()
        given = m.add_parameter("x", Shape("float32", [2, 4, 12, 12]))
        m.add_return([m.add(op("convolution", group=2), given, m.add_literal(w))])
        if correct is not None:
            settings = {"correct_bias": correct, "per_channel": False}
            mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": x}], **settings)
        program.compile(mgx.get_target("ref"))
        return np.asarray(program.run({"x": x})[0])

    wanted, plain, right = (found(c).mean((0, 2, 3)) for c in (None, False, True))
    assert np.abs(right - wanted).max() < 0.5 * np.abs(plain - wanted).max()


@pytest.mark.parametrize("first", ["convolution", "dot"])
@pytest.mark.parametrize("width", [4, 5])
def test_a_tensor_that_a_convolution_and_a_product_read(first: str, width: int) -> None:
    """Its channels are on different axes for the two, which may have equal extents."""
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(2, 4, 4, width)) + np.arange(4)[:, None, None]).astype(np.float32)
    weights = {"convolution": (3, 4, 1, 1), "dot": (2, 4, width, 3)}
    program = Program()
    m = program.get_main_module()
    given = m.add_parameter("x", Shape("float32", x.shape))
    names = [first, *(n for n in weights if n != first)]
    drawn = [
        m.add_literal(rng.normal(size=weights[n][-2:] if n == "dot" else weights[n]).astype(np.float32)) for n in names
    ]
    drawn = [
        m.add(op("multibroadcast", out_lens=weights[n]), w) if n == "dot" else w
        for n, w in zip(names, drawn, strict=True)
    ]
    m.add_return([m.add(op(n), given, w) for n, w in zip(names, drawn, strict=True)])
    plain = program.clone()
    mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": x}])
    both = []
    for one in (plain, program):
        one.compile(mgx.get_target("ref"))
        both.append([np.asarray(found) for found in one.run({"x": x})])
    for wanted, got in zip(*both, strict=True):
        assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_product_of_no_elements_stays_in_float() -> None:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [2, 0, 4]))
    w = m.add_literal(np.ones([2, 4, 3], np.float32))
    m.add_return([m.add(op("dot"), x, w)])
    report = QuantizeReport()
    mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": np.ones([2, 0, 4], np.float32)}], report=report)
    assert [layer.kept for layer in report.layers] == ["its operands have no elements in the calibration data"]


@pytest.mark.parametrize("rows", [2, 3])
def test_bias_correction_of_batched_weights(rows: int) -> None:
    """Each batch has its own weights and hence its own bias, even if there are as many rows as batches."""
    rng = np.random.default_rng(4)
    w = rng.normal(size=(2, 8, 16)).astype(np.float32)
    x = (rng.normal(size=(2, rows, 8)) / 4 + 3 * np.ones(8)).astype(np.float32)

    def missed(correct: bool) -> Any:
        program = Program()
        m = program.get_main_module()
        m.add_return([m.add(op("dot"), m.add_parameter("x", Shape("float32", [2, rows, 8])), m.add_literal(w))])
        mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": x}], correct_bias=correct, per_channel=False)
        program.compile(mgx.get_target("ref"))
        return np.abs((np.asarray(program.run({"x": x})[0]) - x @ w).mean(1)).mean()

    assert missed(True) < 0.5 * missed(False)


def test_noise_of_narrow_types_and_outliers() -> None:
    values = np.random.default_rng(0).normal(size=(100000, 1)).astype(np.float32)
    values[0] = 100
    observer = Observer("x")
    observer.see(values.min(0), values.max(0), values)
    assert observer.range("entropy", 99.9, dt.int8)[1] < 50
    float8 = (values * 4.48).astype(dt.float8_e4m3fn.numpy).astype(np.float32) / 4.48
    ratio = 10 * np.log10((values**2).sum() / ((float8 - values) ** 2).sum())
    assert observer.noise(*observer.range("max", 100, dt.float8_e4m3fn), dt.float8_e4m3fn) == pytest.approx(
        ratio, abs=1
    )


def test_histogram_over_growing_batches() -> None:
    values = np.random.default_rng(0).normal(size=(40, 100)).astype(np.float32)
    observer = Observer("x")
    for n in range(40):
        part = values[n, :, None] * (n + 1)
        observer.see(part.min(0), part.max(0), part)
    wide = (values * np.arange(1, 41)[:, None]).reshape(-1)
    counts = np.histogram(wide, 64, (-observer.top, observer.top))[0]
    assert sum(observer.histogram()) == wide.size
    assert np.abs(observer.counts.reshape(64, -1).sum(1).cumsum() - counts.cumsum()).max() < 25


def test_call_forms_agree() -> None:
    one = mgx.quantize_int8(network(), list(batches()))
    target = mgx.get_target(mgx.best_target())  # like the convenience function calibrates
    other = mgx.quantize_int8(network(), target, calibration=list(batches()), ins_names={"dot"})
    assert one.text(full=True) == other.text(full=True)


def test_fp8() -> None:
    program = mgx.quantize_fp8(network(), mgx.get_target("ref"), batches())
    assert 0 < noise(program, next(batches())["x"]) < 0.08


def test_products_in_branches(caplog: pytest.LogCaptureFixture) -> None:
    x = next(batches())["x"]
    for quantizer, size, limit in ((mgx.quantize_dynamic, 0.29, 0.03), (mgx.quantize_int4_weights, 0.17, 0.2)):
        report = QuantizeReport()
        program = quantizer(network_in_branches(), report=report)
        assert [layer.kept for layer in report.layers] == ["", ""]
        assert report.bytes[0] == W1.nbytes
        assert report.bytes[1] < size * W1.nbytes
        program.compile(mgx.get_target("ref"))
        for chosen, exact in ((True, np.maximum(x @ W1, 0)), (False, -x @ W1)):
            error = np.asarray(program.run({"x": x, "chosen": np.array([chosen])})[0]) - exact
            assert 0 < np.linalg.norm(error) < limit * np.linalg.norm(exact)
    assert not caplog.messages
    data = [{"x": x, "chosen": np.array([True])}]
    mgx.quantize_int8(network_in_branches(), mgx.get_target("ref"), data, report=report)
    assert ["in a branch" in layer.kept for layer in report.layers] == [True, True]
    mgx.quantize_int8(network_in_branches(), mgx.get_target("ref"), data, ins_names=["convolution"], report=report)
    assert [layer.kept for layer in report.layers] == ["dot is not in `ops`"] * 2
    (message,) = caplog.messages
    assert "2 products stay in float" in message


def test_dynamic() -> None:
    program = mgx.quantize_dynamic(network())
    assert 0 < noise(program, next(batches())["x"]) < 0.03


@pytest.mark.parametrize("quantizer", [mgx.quantize_int8, mgx.quantize_fp8, lambda p, _: mgx.quantize_dynamic(p)])
def test_products_in_groups_of_a_program_that_was_saved_compiled(quantizer: Any) -> None:
    program = network()
    program.compile(mgx.get_target("ref"))
    saved = mgx.save_buffer(program)
    assert any(i.op.fused for i in mgx.load_buffer(saved).get_main_module())
    found = {i.op.name for i in quantizer(mgx.load_buffer(saved), batches()).get_main_module()}
    assert found & {"quantizelinear", "quant_dot"}
    assert found == {i.op.name for i in quantizer(network(), batches()).get_main_module()}


@pytest.mark.parametrize("method", ["max", "mse", "gptq"])
def test_int4_weights(method: str) -> None:
    data = list(batches(20))
    program = mgx.quantize_int4_weights(network(), 32, method, data, mgx.get_target("ref"))
    assert {i.op.name for i in program.get_main_module()} >= {"dequant_dot"}
    assert 0.01 < noise(program, data[0]["x"]) < 0.2


def test_compensated_rounding_loses_less_on_calibration_data() -> None:
    x = RNG.normal(size=(400, 64)) @ RNG.normal(size=(64, 64))
    rows = RNG.normal(size=(16, 64)).astype(np.float32)

    def error(found: tuple[Any, Any, Any]) -> float:
        codes, scale, zero = found
        wide = (codes - np.repeat(zero, 32, 1)) * np.repeat(scale, 32, 1)
        return float(((x @ (wide - rows).T) ** 2).sum())

    assert error(compensated(rows, x.T @ x, 32, False)) < 0.8 * error(by_groups(rows, 32, False, True))


def test_weights_that_are_parameters(caplog: pytest.LogCaptureFixture) -> None:
    program, report = Program(), QuantizeReport()
    m = program.get_main_module()
    x, w = (m.add_parameter(n, Shape("float32", [1, 2, 3, 3])) for n in "xw")
    m.add_return([m.add(op("convolution"), x, w)])
    ones = np.ones((1, 2, 3, 3), np.float32)
    mgx.quantize_int8(program, mgx.get_target("ref"), [{"x": ones, "w": ones}], report=report)
    assert report.layers[0].kept == "its weights are not constant"
    assert caplog.messages == ["convolution stays in float: its weights are not constant"]


def test_skipped_and_searched() -> None:
    data = list(batches())

    def metric(program: Program) -> float:
        x = data[0]["x"]
        return -float(np.abs(np.asarray(program.run({"x": x})[0]) - expected(x)).max())

    report = QuantizeReport()
    ref = mgx.get_target("ref")
    quantize(network(), QuantizeConfig(), data, ref, report, metric, budget=1e-6)
    assert all(x.kept for x in report.layers)
    report = QuantizeReport()
    quantize(network(), QuantizeConfig(), data, ref, report, metric, budget=10.0)
    assert not any(x.kept for x in report.layers)


def test_metric_that_is_not_a_number() -> None:
    report = QuantizeReport()
    metrics = iter([1.0])
    quantize(
        network(), QuantizeConfig(), batches(), mgx.get_target("ref"), report, lambda _: next(metrics, float("nan"))
    )
    assert all(x.kept for x in report.layers)


def test_report_used_twice() -> None:
    report, ref = QuantizeReport(accuracy=(1.0, 0.5)), mgx.get_target("ref")
    for _ in range(2):
        mgx.quantize_int8(network(), ref, batches(), report=report)
        assert (len(report.layers), report.accuracy) == (2, None)
    mgx.quantize_dynamic(network(), report=report)
    assert len(report.layers) == 2
    mgx.quantize_int4_weights(network(), 32, report=report)
    assert len(report.layers) == 2


def named_network() -> Program:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [4, 64]))
    hidden = m.add(op("dot"), x, m.add_literal(W1), sources=["/encoder/layer.0/MatMul"])
    m.add_return([m.add(op("dot"), hidden, m.add_literal(W2), sources=["/encoder/layer.1/MatMul"])])
    return program


@pytest.mark.parametrize("use", ["names", "skip"])
def test_names_of_products(use: str) -> None:
    def kept(*parts: str) -> list[bool]:
        report = QuantizeReport()
        mgx.quantize_int8(named_network(), mgx.get_target("ref"), batches(), report=report, **{use: list(parts)})
        return [bool(layer.kept) for layer in report.layers]

    assert kept("layer.0") == [use == "skip", use == "names"]
    for quantizing in (kept, lambda part: mgx.quantize_dynamic(named_network(), **{use: [part]})):
        with pytest.raises(
            ParameterError, match=rf"{use}: no product .* has 'encodr' in its name; did you mean 'encoder'\?"
        ):
            quantizing("encodr")
    with pytest.raises(ParameterError, match=r"names, none of them empty, got frozenset\(\{''\}\)"):
        kept("")
    with pytest.raises(ParameterError, match=rf"{use} must be a list of names, got 'layer'; did you mean \['layer'\]"):
        mgx.quantize_int8(named_network(), mgx.get_target("ref"), batches(), **{use: "layer"})
    with pytest.raises(ParameterError, match="no product of this program has a name"):
        mgx.quantize_int8(network(), mgx.get_target("ref"), batches(), **{use: ["layer"]})


def test_settings_and_ops_that_do_not_exist() -> None:
    with pytest.raises(ParameterError, match="there is no setting 'skp'; did you mean 'skip'"):
        mgx.quantize_int8(network(), mgx.get_target("ref"), batches(), skp=["a"])
    with pytest.raises(ParameterError, match="ins_names must be a list of names, got 'dot'"):
        mgx.quantize_int8(network(), mgx.get_target("ref"), batches(), "dot")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ranges": "median"}, "ranges must be max, percentile, entropy or mse, got 'median'"),
        ({"percentile": 50}, "percentile must be above 50 and at most 100, got 50"),
        ({"percentile": 101}, "percentile must be above 50 and at most 100, got 101"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        QuantizeConfig(**settings)


def test_an_unknown_method_for_weights() -> None:
    method: Any = "min"
    with pytest.raises(ParameterError, match="method must be max, mse or gptq, got 'min'"):
        mgx.quantize_int4_weights(network(), 32, method)


def test_bad_input() -> None:
    ref = mgx.get_target("ref")
    with pytest.raises(ParameterError, match="calibration data is required"):
        mgx.quantize_int8(network(), ref)
    with pytest.raises(ParameterError, match="calibration data is empty"):
        mgx.quantize_int8(network(), ref, [])
    with pytest.raises(
        ParameterError, match=r"parameter 'x' must be finite, got values from nan .*leave this batch out"
    ):
        mgx.quantize_int8(network(), ref, [{"x": np.full((4, 64), np.nan, np.float32)}])
    one = {"x": np.zeros((4, 64), np.float32)}
    with pytest.raises(ParameterError, match=r"one mapping \('x'\).*pass it in a list"):
        mgx.quantize_int8(network(), ref, one)
    with pytest.raises(ParameterError, match=r"one mapping \('x'\).*pass it in a list"):
        mgx.quantize_int4_weights(network(), 32, "gptq", one)
    with pytest.raises(
        ParameterError, match="must be mappings from parameter names to values, got an element of type ndarray"
    ):
        mgx.quantize_int8(network(), ref, [one["x"]])
    with pytest.raises(ParameterError, match="no value of 'x'; a batch has 'image', 'mask'"):
        mgx.quantize_int8(network(), ref, [{"image": np.zeros((4, 64), np.float32), "mask": np.zeros(4, np.float32)}])
    with pytest.raises(ParameterError, match="no value of 'x'; a batch has no names at all"):
        mgx.quantize_int8(network(), ref, [{}])
    with pytest.raises(ParameterError, match="power of two"):
        mgx.quantize_int4_weights(network(), 48)
    with pytest.raises(ParameterError, match="needs calibration"):
        mgx.quantize_int4_weights(network(), 32, "gptq")
    for settings in ({"weights": "int4"}, {"activations": "int16"}):
        with pytest.raises(ParameterError, match=f"{next(iter(settings))} must be"):
            mgx.quantize_int8(network(), ref, batches(), **settings)
    with pytest.raises(ParameterError, match="ops must be"):
        QuantizeConfig(ops=frozenset({"add"}))


def test_constant_zero_input_is_safe() -> None:
    program = mgx.quantize_int8(network(), mgx.get_target("ref"), [{"x": np.zeros((4, 64), np.float32)}])
    program.compile(mgx.get_target("ref"))
    assert np.isfinite(np.asarray(program.run({"x": np.ones((4, 64), np.float32)})[0])).all()


def test_percentile_clips_outliers() -> None:
    observer = Observer("x")
    values = np.random.default_rng(0).normal(size=100000).astype(np.float32)
    values[0] = 1000.0
    for part in (values[:50000, None], values[50000:, None]):
        observer.see(part.min(0), part.max(0), part)
    assert observer.range("percentile", 99.9, dt.int8)[1] < 10
    assert observer.range("max", 99.9, dt.int8)[1] == 1000.0


def scripted(monkeypatch: pytest.MonkeyPatch, slow: set[tuple[int, ...]], fast: set[tuple[int, ...]]) -> None:
    """Scripted run times of programs: 10 seconds, more for narrow products with `slow` weights, less for those with `fast`
    ones.
    """

    def seconds(program: Any, inputs: Any) -> float:
        assert set(inputs) == {"x"}
        module = program.executable.module
        found = [i.inputs[1].shape.dims for inner in nested(module) for i in inner if i.op.name == "quant_dot"]
        return 10.0 + sum((f in slow) - (f in fast) for f in found)

    monkeypatch.setattr(search, "seconds", seconds)


def test_products_that_are_no_faster_stay_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, {(64, 96)}, {(96, 64)})
    report, program = QuantizeReport(), network()
    mgx.quantize_int8(program, mgx.get_target("ref"), batches(), report=report, only_faster=True)
    assert [bool(x.kept) for x in report.layers] == [True, False]
    assert report.layers[0].kept == "the program is faster with products of this shape in float"
    assert report.seconds == (10.0, 9.0)
    assert noise(program, next(batches())["x"]) < 0.03


def test_a_program_without_a_faster_variant_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, {(64, 96), (96, 64)}, set())
    report, program = QuantizeReport(), network()
    mgx.quantize_int8(program, mgx.get_target("ref"), batches(), report=report, only_faster=True)
    assert all(x.kept for x in report.layers)
    assert report.seconds == (10.0, 10.0)
    assert noise(program, next(batches())["x"]) < 1e-6


def test_a_program_without_products_is_not_timed() -> None:
    report, program = QuantizeReport(), mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add(mgx.op("relu"), main.add_parameter("x", mgx.Shape("float32", [2, 4])))])
    data = [{"x": np.ones((2, 4), np.float32)}]
    mgx.quantize_int8(program, mgx.get_target("ref"), data, report=report, only_faster=True)
    assert report.layers == []
    assert report.seconds is None


def test_runs_are_timed_by_the_clock_where_a_target_has_no_other() -> None:
    report = QuantizeReport()
    mgx.quantize_int8(network(), mgx.get_target("ref"), batches(), report=report, only_faster=True)
    assert report.seconds is not None
    assert 0 < report.seconds[1] <= report.seconds[0]


def test_no_rule_fires_any_more_on_products_of_one_tensor_in_bytes() -> None:
    """Scales become constants once the products are joined; the ops after them then apply to the joined product."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [4, 64]))
    bias = m.add(op("multibroadcast", out_lens=(4, 96)), m.add_literal(W1[0]))
    sums = [m.add(op("add"), m.add(op("dot"), x, m.add_literal(w)), bias) for w in (W1, -W1)]
    m.add_return([m.add(op("sigmoid"), s) for s in sums])
    mgx.quantize_int8(program, mgx.get_target("ref"), list(batches()))
    program.compile(mgx.get_target("ref"), validate=True, aggressiveness=2)
    (given,) = batches(1)
    for found, product in zip(program.run(given), (given["x"] @ W1, -given["x"] @ W1), strict=True):
        np.testing.assert_allclose(np.asarray(found), 1 / (1 + np.exp(-product - W1[0])), atol=0.02)
