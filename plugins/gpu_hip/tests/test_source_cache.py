"""The source cache: kernels for other extents equal newly generated ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernel_trial import tensor, traits

import mgx_core as mgx
from mgx_core.types.dim import symbol
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen import source_cache
from mgx_gpu_hip.codegen.extents import SymbolicInt, arguments
from mgx_gpu_hip.codegen.generators import source_of
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
from mgx_gpu_hip.codegen.source_cache import SourceCache
from mgx_gpu_hip.codegen.tracing import Trace, Traced
from mgx_gpu_hip.target import GpuTarget


def traced(value: int = 80) -> tuple[Trace, Any]:
    trace = Trace()
    return trace, trace.root(SymbolicInt.symbol("t", value))


def test_numbers_follow_for_other_extents() -> None:
    trace, t = traced()
    numbers = [-(-t // 32), (t * t + 3) % 7, t << 2, math.ceil(t / 3), 5 - t, 2.5 * t, abs(-t), t.bit_length(), 9]
    follow = trace.follow(numbers)
    for n in (80, 1, 33):
        assert follow(n) == (
            -(-n // 32),
            (n * n + 3) % 7,
            n << 2,
            math.ceil(n / 3),
            5 - n,
            2.5 * n,
            n,
            n.bit_length(),
            9,
        )


@pytest.mark.parametrize(
    ("ask", "alike", "unlike"),
    [
        (lambda t: t < 96, 95, 96),
        (lambda t: t % 16 == 0, 96, 81),
        (lambda t: bool(t - 80), 80, 81),
        (lambda t: max(t, 64), 64, 63),
        (lambda t: t in (1, 7, 81), 82, 81),
        (lambda t: int(t / 8), 87, 88),
        (lambda t: [0] * t, 80, 81),
        (lambda t: range(t), 80, 81),
        (lambda t: {81: "x"}.get(t), 80, 81),
        (lambda t: 0.5 * float(t), 80, 81),
        (lambda t: math.gcd(t, 6), 80, 81),
        (lambda t: f"{t:d}" + f"{t}" + repr(t) + "%d" % t, 80, 81),  # noqa: UP031
        (lambda t: np.zeros(t), 80, 81),
    ],
)
def test_every_query_is_recorded(ask: Any, alike: int, unlike: int) -> None:
    trace, t = traced()
    ask(t)
    follow = trace.follow([t])
    assert follow(80) == (80,) and follow(alike) == (alike,) and follow(unlike) is None


def test_a_traced_number_is_written_as_an_argument() -> None:
    trace, t = traced()
    with arguments() as recorder:
        assert f"{t * 2}" == "«0»" and f"{t + t}" == "«0»" and f"{t}" == "«1»"
    values: list[Any] = recorder.values
    assert all(type(x) is Traced for x in values) and trace.follow(recorder.values)(5) == (10, 5)
    assert isinstance(t, SymbolicInt) and isinstance(t, int) and not isinstance(t / 2, int)


def test_a_power_has_the_sign_of_what_is_raised() -> None:
    trace, t = traced(3)
    assert trace.follow([(-2) ** t, -(t**2)])(4) == (16, -16)


def test_bounds_that_are_no_numbers_are_compared() -> None:
    trace, t = traced()
    assert t < math.inf and t != math.nan
    assert trace.follow([t])(7) == (7,)


@pytest.mark.parametrize(
    "pair",
    [
        lambda t, u: (t * (1 << (u - 1).bit_length()), t * 32),
        lambda t, u: (t + (1 << (u - 1).bit_length()), t + 32),
        lambda t, u: (t * 32, t * (1 << (u - 1).bit_length())),
    ],
)
def test_an_argument_that_two_numbers_share_is_one_while_they_are_equal(pair: Any) -> None:
    trace = Trace()
    t, u = (trace.root(SymbolicInt.symbol(name, value)) for name, value in (("t", 5), ("u", 32)))
    with arguments() as recorder:
        one, other = (f"{x}" for x in pair(t, u))
    assert one == other
    follow = trace.follow(recorder.values)
    assert follow(7, 30) is not None and follow(7, 64) is None


def test_numbers_of_another_trace_count_by_their_values() -> None:
    (_, other), (trace, t) = traced(7), traced(80)
    assert trace.follow([t * (other + 1), other, t > other])(9) == (72, 7, True)


def test_errors_in_later_code_are_not_an_answer() -> None:
    trace, t = traced()
    assert 7 // (t - 79) == 7
    assert source_cache._replay(trace.follow([t]), [SymbolicInt.symbol("t", 79)]) is None


def opened(lens: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    made = tuple(SymbolicInt.symbol(s, n) if s else n for s, n in zip(names, lens, strict=True))
    found: Tensor = tensor("float32", lens)._replace(lens=made, strides=row_major(made))
    return found


def test_kernels_without_a_key_are_generated_each_time() -> None:
    class Form:
        """The value that plans pass to generators instead of an op."""

    written: list[Any] = []

    def write(form: Any, xs: Any, ys: Any, *given: Any) -> mgx.No:
        written.append(form)
        return mgx.No("not now")

    kept, x = SourceCache(), opened((7, 8), ("n", ""))
    for _ in range(3):
        answer = kept.generate(write, Form(), [x], [x], traits(32), [])  # type: ignore[arg-type]
        assert isinstance(answer, mgx.No) and answer.why == "not now"
    assert [type(form) for form in written] == [Form] * 3


def test_a_text_for_the_same_extents_is_written_once() -> None:
    from mgx_gpu_hip.plans.loops import write_pointwise

    kept, op, written = SourceCache(), mgx.op("add"), []

    def write(op: Any, xs: Any, *given: Any) -> Any:
        written.append(xs[0].lens[0])
        return write_pointwise(op, xs, *given)

    made = []
    for n in (70, 70, 90, 90):
        x = opened((n, 8), ("n", ""))
        made.append(kept.generate(write, op, [x, x], [x], traits(32), []))
    assert [n for n in written if type(n) is SymbolicInt] == [70, 90]
    assert made[0] is made[1] and made[2] is made[3] and made[0] != made[2]


def test_no_set_of_extents_waits_for_many_traces() -> None:
    from mgx_gpu_hip.plans.loops import write_pointwise

    kept, traces = SourceCache(), []

    def write(op: Any, xs: Any, *given: Any) -> Any:
        if type(xs[0].lens[0]) is Traced:
            traces.append(op)
        return write_pointwise(op, xs, *given)

    names = ["add", "sub", "mul", "div", "min", "max", "pow", "equal"]
    counts = []
    for n in (100, 110, 120, 130, 140):
        x = opened((n, 8), ("n", ""))
        for name in names:
            kept.generate(write, mgx.op(name), [x, x], [x], traits(32), [])
        counts.append(len(traces))
    assert counts == [0, 4, 5, 6, 7]


@pytest.mark.parametrize("wave", [32, 64])
def test_a_text_is_written_again_for_other_answers_alone(wave: int) -> None:
    from mgx_gpu_hip.plans.loops import write_pointwise

    written: list[int] = []

    def write(*given: Any) -> Any:
        written.append(given[1][0].lens[0])
        return write_pointwise(*given)

    kept, op, rng = SourceCache(), mgx.op("add"), np.random.default_rng(3)
    for n in [int(n) for n in rng.integers(1, 4000, 60)]:
        x = opened((n, 8), ("n", ""))
        made = kept.generate(write, op, [x, x], [x], traits(wave), [])
        assert isinstance(made, KernelSource) and made == source_of(write_pointwise, op, [x, x], [x], traits(wave))
    assert len(written) < 30


def test_an_attribute_that_equals_an_extent_once_is_no_extent_elsewhere() -> None:
    from mgx_gpu_hip.codegen.movement import concat

    def write(op: Any, xs: Any, ys: Any, traits: Any, modules: Any) -> Any:
        return concat(op, xs, ys[0], traits)

    kept, op = SourceCache(), mgx.op("concat", axis=0)
    for n, end in [(8, 4), (9, 4), (10, 4), (11, 4), (4, 4), (11, 11), (12, 12), (13, 13), (14, 14), (15, 4), (16, 16)]:
        xs, y = [opened((n, 3), ("n", "")), opened((end, 3), ("", ""))], opened((n + end, 3), ("m", ""))
        made = kept.generate(write, op, xs, [y], traits(32), [])
        assert made == source_of(write, op, xs, [y], traits(32))


def weight(m: Any, *lens: int) -> Any:
    return m.add_literal((np.random.default_rng(sum(lens)).standard_normal(lens) / 6).astype(np.float32))


def encoder(m: Any) -> list[Any]:
    """Layers of attention and products for a text of symbolic length with a masked end."""
    t, width, heads = symbol("t", 1), 32, 2
    x = m.add_parameter("x", mgx.Shape("float32", [1, t, width]))
    mask = m.add_parameter("mask", mgx.Shape("float32", [1, 1, 1, t]))
    for _ in range(2):
        parts = []
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            y = m.add(mgx.op("dot"), x, m.add(mgx.op("unsqueeze", axes=[0]), weight(m, width, width)))
            y = m.add(mgx.op("reshape", dims=[1, -1, heads, width // heads]), y)
            parts.append(m.add(mgx.op("transpose", permutation=order), y))
        scores = m.add(mgx.op("dot"), *parts[:2])
        seen = m.add(mgx.op("multibroadcast", out_lens=[1, heads, t, t]), mask)
        scores = m.add(mgx.op("softmax", axis=3), m.add(mgx.op("add"), scores, seen))
        y = m.add(mgx.op("transpose", permutation=[0, 2, 1, 3]), m.add(mgx.op("dot"), scores, parts[2]))
        x = m.add(mgx.op("tanh"), m.add(mgx.op("add"), x, m.add(mgx.op("reshape", dims=[1, -1, width]), y)))
    return [x, m.add(mgx.op("reduce_mean", axes=[1]), x)]


def images(m: Any) -> list[Any]:
    """Convolutions, pooling and a mean over an image of symbolic extents, and its upper left part next to the rest."""
    h, w = symbol("h", 4), symbol("w", 4)
    x = m.add_parameter("x", mgx.Shape("float32", [1, 3, h, w]))
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[2, 2]), x, weight(m, 8, 3, 3, 3))
    y = m.add(mgx.op("relu"), y)
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[1, 1], group=8), y, weight(m, 8, 1, 3, 3))
    y = m.add(mgx.op("pooling", mode="max", lengths=[2, 2], stride=[2, 2]), m.add(mgx.op("sigmoid"), y))
    part = m.add(mgx.op("slice", axes=[2, 3], starts=[0, 0], ends=[3, 3]), x)
    return [m.add(mgx.op("reduce_mean", axes=[2, 3]), y), y, m.add(mgx.op("concat", axis=2), part, part)]


def rows(m: Any) -> list[Any]:
    """Sums along rows and columns, gathered and scaled, with two symbolic extents."""
    n, k = symbol("n", 1), symbol("k", 1)
    x = m.add_parameter("x", mgx.Shape("float32", [n, k]))
    at = m.add_parameter("at", mgx.Shape("int64", [k]))
    total = m.add(mgx.op("reduce_sum", axes=[0]), x)
    scaled = m.add(mgx.op("div"), x, m.add(mgx.op("multibroadcast", out_lens=[n, k]), m.add(mgx.op("exp"), total)))
    picked = m.add(mgx.op("gather", axis=1), scaled, at)
    return [picked, m.add(mgx.op("concat", axis=1), x, picked), m.add(mgx.op("softmax", axis=0), x)]


def some(rng: Any, name: str, lens: list[int]) -> Any:
    if name == "at":
        return rng.integers(0, lens[0], lens)
    return rng.standard_normal(lens).astype(np.float32) * (name != "mask")


EXTENTS = [1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 65]


@pytest.mark.parametrize("make", [encoder, images, rows])
@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_programs_agree_with_new_ones_for_any_extents(make: Any, device: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced sources are compared with generated ones, and the results with those of other executables."""
    served: list[bool] = []
    found = source_cache._Entry.lookup

    def noted(self: Any, roots: Any) -> Any:
        made = found(self, roots)
        served.append(made is not None)
        return made

    monkeypatch.setattr(source_cache._Entry, "lookup", noted)
    monkeypatch.setattr(source_cache, "SOURCES_PER_TRACE", 1)
    answer = SourceCache.generate

    def compared(self: SourceCache, *given: Any) -> Any:
        made = answer(self, *given)
        assert made == source_of(*given)
        return made

    monkeypatch.setattr(SourceCache, "generate", compared)

    def compiled(target: Any) -> mgx.Program:
        program = mgx.Program()
        m = program.get_main_module()
        m.add_return(make(m))
        program.compile(target)
        return program

    # a program that takes changing extents as arguments has other kernels
    target = GpuTarget("host", device)
    target.opens_programs = False
    program, reference = compiled(target), compiled(mgx.get_target("ref"))
    assert program.executable is not None
    rng = np.random.default_rng(7)
    for _ in range(14):
        names = {name: int(rng.choice([rng.choice(EXTENTS), rng.integers(1, 99)])) for name in "tnkhw"}
        names |= {name: max(4, names[name]) for name in "hw"}
        shapes: list[Any] = [s.substitute(names) for s in program.executable.parameters.values()]
        values = {n: some(rng, n, s.lens()) for n, s in zip(program.executable.parameters, shapes, strict=True)}
        results = program.run(values)
        for one, fresh, want in zip(
            results, compiled(GpuTarget("host", device)).run(values), reference.run(values), strict=True
        ):
            assert one.to_numpy().tobytes() == fresh.to_numpy().tobytes()
            np.testing.assert_allclose(one.to_numpy(), want.to_numpy(), rtol=2e-4, atol=2e-5)
    assert sum(served) > len(served) // 10  # a new program has no traces
