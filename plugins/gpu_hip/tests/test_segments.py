"""Data-dependent extents: continuations run on the device, for every row count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.targets.kernel import op_of
from mgx_core.targets.parts import Part
from mgx_core.types.dim import symbol
from mgx_gpu_hip.compile import build as builder
from mgx_gpu_hip.compile.compiler import CompileError
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.target import GpuTarget

Build = Callable[[mgx.Module], list[mgx.Instruction]]


@pytest.fixture
def target() -> GpuTarget:
    """Waves of 32: these tests concern the cuts, not the lanes of kernels."""
    return GpuTarget("host", 1)


@pytest.fixture(params=[0, 1], ids=["wave64", "wave32"])
def either_wave(request: Any) -> GpuTarget:
    return GpuTarget("host", request.param)


def made(build: Build) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return(build(m))
    return program


def same(results: Any, wanted: Any) -> None:
    for got, right in zip(results, wanted, strict=True):
        found = got.to_numpy()
        assert found.dtype == right.dtype and found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def check(build: Build, target: GpuTarget, feeds: list[dict[str, Any]], whole: bool | None, **options: Any) -> Any:
    """Checks every feed against the reference, without host steps; whole: whether one program serves all row counts."""
    program = made(build)
    plain = program.get_main_module().clone()
    program.compile(target, **options)
    instance = program.executable.instances()[0]
    assert [p for p in instance.placements if p.place == "host"] == []
    runner = instance.runner
    assert not runner.rest and not runner.hosted and runner.continuation is not None
    for feed in [*feeds, feeds[0]]:
        same(program.run(feed), Interpreter().run(plain, list(feed.values())))
    for later in runner.continuation.runners():
        assert not later.rest and not later.hosted
    if whole is not None:
        assert (runner.continuation.whole(runner.continued_whole) is not None) == whole
    return program


def boxes(count: int, classes: int, rng: np.random.Generator) -> dict[str, Any]:
    corners = rng.random((1, count, 2), np.float32) * 8
    return {
        "boxes": np.concatenate([corners, corners + 1 + rng.random((1, count, 2), np.float32)], 2),
        "scores": rng.random((1, classes, count), np.float32),
    }


def suppressed(m: mgx.Module, count: int, classes: int) -> tuple[mgx.Instruction, mgx.Instruction]:
    given = m.add_parameter("boxes", mgx.shape(type="float32", lens=(1, count, 4)))
    scores = m.add_parameter("scores", mgx.shape(type="float32", lens=(1, classes, count)))
    most, overlap, least = (m.add_literal(np.array([v], t)) for v, t in ((5, "i8"), (0.4, "f4"), (0.5, "f4")))
    return given, m.add(mgx.op("nonmaxsuppression"), given, scores, most, overlap, least)


def test_boxes_are_picked_and_gathered(target: GpuTarget) -> None:
    """The tail of a detector: no, one, few and many boxes by one program, which computes the maximum number of rows."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        given, found = suppressed(m, 40, 3)
        number = m.add(mgx.op("squeeze", axes=[1]), m.add(mgx.op("slice", axes=[1], starts=[2], ends=[3]), found))
        picked = m.add(mgx.op("gather", axis=0), m.add(mgx.op("squeeze", axes=[0]), given), number)
        return [given, found, m.add(mgx.op("relu"), m.add(mgx.op("transpose", permutation=[1, 0]), picked)), picked]

    rng = np.random.default_rng(3)
    feeds = [boxes(40, 3, rng) for _ in range(5)]
    feeds[1]["scores"] *= 0.4  # none
    feeds[2]["scores"][:] = 0
    feeds[2]["scores"][0, 1, 7] = 0.9  # one
    program = check(build, target, feeds, True)
    assert len({program.run(f)[1].to_numpy().shape for f in feeds}) >= 3


def test_regions_of_picked_boxes(target: GpuTarget) -> None:
    """The head of a two-stage detector: features of the kept boxes, for the maximum number of rows."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        given, found = suppressed(m, 40, 3)
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(1, 4, 9, 8)))
        column = [m.add(mgx.op("slice", axes=[1], starts=[n], ends=[n + 1]), found) for n in (0, 2)]
        image, number = (m.add(mgx.op("squeeze", axes=[1]), c) for c in column)
        picked = m.add(mgx.op("gather", axis=0), m.add(mgx.op("squeeze", axes=[0]), given), number)
        op = mgx.op("roialign", output_height=3, output_width=3, spatial_scale=0.75)
        parts = m.add(op, m.add(mgx.op("relu"), x), picked, image)
        return [found, m.add(mgx.op("reduce_mean", axes=[2, 3]), parts)]

    rng = np.random.default_rng(8)
    feeds = [{**boxes(40, 3, rng), "x": rng.standard_normal((1, 4, 9, 8), np.float32)} for _ in range(3)]
    feeds[1]["scores"] *= 0.4  # none
    check(build, target, feeds, True)


def test_dependent_rows(either_wave: GpuTarget) -> None:
    """A mean over the rows, and positions from their end, need the actual count; kernels are compiled before it is known."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(6, 8)))
        found = m.add(mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("nonzero"), x))
        total = m.add(mgx.op("reduce_sum", axes=[0]), found)
        last = m.add(mgx.op("gather", axis=0), found, m.add_literal(np.array([-1, 0])))
        return [found, total, last]

    rng = np.random.default_rng(4)
    feeds = [{"x": (rng.random((6, 8)) < p).astype(np.float32)} for p in (0.1, 0.5, 0.9)]
    feeds.append({"x": np.ones((6, 8), np.float32)})
    check(build, either_wave, feeds, False)


def texts_behind(program: mgx.Program, x: Any, counts: range) -> set[str]:
    """Returns the sources of all kernels after the border of a program that keeps the first rows of x, a different number in
    each run.
    """
    runner, texts = program.executable.instances()[0].runner, set[str]()
    for count in counts:
        program.run({"x": x, "keep": np.arange(len(x)) < count})
        texts |= {named.text for later in runner.continuation.runners() for named in later.step_sources}
    return texts


def test_another_number_of_rows_compiles_nothing(target: GpuTarget) -> None:
    """Forty row counts share the sources of a few variants: vector widths, a single row."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(40, 12)))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(40,)))
        rows = m.add(mgx.op("compress", axis=0), x, keep)
        mean = m.add(mgx.op("reduce_mean", axes=[0]), rows)
        return [m.add(mgx.op("tanh"), rows), mean]

    x = np.random.default_rng(5).standard_normal((40, 12)).astype(np.float32)
    feeds = [{"x": x, "keep": np.arange(40) % 7 * 6 + np.arange(40) // 7 < n} for n in (1, 4, 23)]
    program = check(build, target, feeds, False)
    assert len(texts_behind(program, x, range(1, 41))) <= 6


def test_numbers_that_follow_from_others_are_arguments(target: GpuTarget) -> None:
    """Extents computed from a row count without a known rule are not literals in any kernel's source either."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(90, 4)))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(90,)))
        rows = m.add(mgx.op("compress", axis=0), x, keep)
        through_floats = m.add(mgx.op("convert", target_type="float32"), m.add(mgx.op("dimensions_of", end=1), rows))
        number = m.add(mgx.op("convert", target_type="int64"), m.add(mgx.op("floor"), through_floats))
        one, zero = (m.add_literal(np.array([n])) for n in (1, 0))
        given = m.add(
            mgx.op("reshape"), rows, m.add(mgx.op("concat", axis=0), one, number, m.add_literal(np.array([4])))
        )
        column = m.add(mgx.op("gather", axis=1), rows, zero)
        scores = m.add(mgx.op("reshape"), column, m.add(mgx.op("concat", axis=0), one, one, number))
        most, overlap, least = (m.add_literal(np.array([v], t)) for v, t in ((9, "i8"), (0.4, "f4"), (0.1, "f4")))
        return [m.add(mgx.op("nonmaxsuppression"), given, scores, most, overlap, least)]

    rng = np.random.default_rng(6)
    corners = rng.random((90, 2), np.float32) * 8
    x = np.concatenate([corners, corners + 1 + rng.random((90, 2), np.float32)], 1)
    program = check(build, target, [{"x": x, "keep": np.arange(90) % 9 < n} for n in (3, 9, 1)], None)
    assert len(texts_behind(program, x, range(80, 90))) <= 4


def test_many_boxes_in_tiles(either_wave: GpuTarget) -> None:
    """More boxes than a tile holds and than shared memory sorts, with equal scores and NaN, as the reference selects them."""
    rng = np.random.default_rng(9)
    feed = boxes(2300, 1, rng)
    feed["boxes"] = feed["boxes"] * np.float32(4)
    feed["scores"] = np.round(feed["scores"], 2)
    feed["scores"][0, 0, 5::700] = np.nan
    feed["scores"][0, 0, 6::500] = -0.0
    for overlap, most, least in ((0.3, 2300, None), (0.9, 70, 0.25), (0.0, 3, 0.5), (1.0, 1000, 0.6)):
        program = mgx.Program()
        m = program.get_main_module()
        given = m.add_parameter("boxes", mgx.shape(type="float32", lens=(1, 2300, 4)))
        scores = m.add_parameter("scores", mgx.shape(type="float32", lens=(1, 1, 2300)))
        options = [
            m.add_literal(np.array([v], t)) for v, t in ((most, "i8"), (overlap, "f4"), (least, "f4")) if v is not None
        ]
        m.add_return([m.add(mgx.op("nonmaxsuppression"), given, scores, *options)])
        wanted = Interpreter().run(program.get_main_module().clone(), list(feed.values()))
        program.compile(either_wave)
        assert [p for p in program.executable.instances()[0].placements if p.place == "host"] == []
        same(program.run(feed), wanted)


def test_compressed_columns(target: GpuTarget) -> None:
    """Rows are counted along an inner axis; later kernels use its strides."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(5, 9)))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(9,)))
        columns = m.add(mgx.op("compress", axis=1), x, keep)
        return [columns, m.add(mgx.op("reduce_max", axes=[0]), columns)]

    rng = np.random.default_rng(6)
    x = rng.standard_normal((5, 9)).astype(np.float32)
    check(build, target, [{"x": x, "keep": rng.random(9) < p} for p in (0.5, 0.0, 1.0)], True)


def test_consecutive_cuts(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(4, 10)))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(4,)))
        rows = m.add(mgx.op("compress", axis=0), x, keep)
        found = m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), rows))
        return [found, m.add(mgx.op("reduce_sum", axes=[1]), found), x]

    rng = np.random.default_rng(7)
    x = rng.standard_normal((4, 10)).astype(np.float32)
    check(build, target, [{"x": x, "keep": np.arange(4) < n} for n in (3, 1, 4)], False)


def test_a_cut_next_to_a_symbolic_axis(target: GpuTarget) -> None:
    """The other axes have the symbols of the program's parameters."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 1, 9), 3, 4]))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(4,)))
        kept = m.add(mgx.op("compress", axis=2), x, keep)
        return [m.add(mgx.op("tanh"), m.add(mgx.op("transpose", permutation=[0, 2, 1]), kept))]

    program = made(build)
    plain = program.get_main_module().clone()
    program.compile(target)
    rng = np.random.default_rng(11)
    for n, p in ((5, 0.5), (2, 1.0), (5, 0.0), (9, 0.5), (2, 0.5)):
        feed = {"x": rng.standard_normal((n, 3, 4)).astype(np.float32), "keep": rng.random(4) < p}
        same(program.run(feed), Interpreter().run(plain, list(feed.values())))


def test_a_cut_that_follows_from_another(target: GpuTarget) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(4, 6)))
        keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(2,)))
        kept = m.add(mgx.op("compress", axis=0), m.add(mgx.op("nonzero"), x), keep)
        return [m.add(mgx.op("neg"), kept)]

    rng = np.random.default_rng(12)
    feeds = [
        {"x": (rng.random((4, 6)) < p).astype(np.float32), "keep": np.array(keep)}
        for p, keep in ((0.5, [True, False]), (1.0, [True, True]), (0.2, [True, True]), (0.5, [False, False]))
    ]
    check(build, target, feeds, None)


def test_extents_that_vary_before_the_cut(target: GpuTarget) -> None:
    """Programs with symbolic extents are also cut: the maximum number of rows follows from each instance's extents."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(symbol("n"), 6)))
        found = m.add(mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), x)))
        return [found, m.add(mgx.op("gathernd", batch_dims=0), x, found)]

    program = made(build)
    plain = program.get_main_module().clone()
    program.compile(target)
    rng = np.random.default_rng(10)
    for n in (3, 8, 1, 3):
        feed = {"x": rng.standard_normal((n, 6)).astype(np.float32)}
        same(program.run(feed), Interpreter().run(plain, list(feed.values())))
    for instance in program.executable.instances():
        assert [p for p in instance.placements if p.place == "host"] == []
        runner = instance.runner
        assert not runner.rest and runner.continuation.whole(runner.continued_whole) is not None


def test_extents_that_are_computed(target: GpuTarget) -> None:
    """The operands of a Reshape and of a Slice are read back."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(24,)))
        n = m.add_parameter("n", mgx.shape(type="int64", lens=(1,)))
        twice = m.add(mgx.op("add"), n, n)
        dims = m.add(mgx.op("concat", axis=0), m.add_literal(np.array([-1])), twice)
        table = m.add(mgx.op("reshape"), m.add(mgx.op("relu"), x), dims)
        zero, axis = m.add_literal(np.array([0])), m.add_literal(np.array([0]))
        part = m.add(mgx.op("slice"), x, zero, twice, axis)
        return [m.add(mgx.op("reduce_sum", axes=[0]), table), m.add(mgx.op("tanh"), part)]

    x = np.linspace(-1, 1, 24, dtype=np.float32)
    check(build, target, [{"x": x, "n": np.array([n])} for n in (2, 3, 6)], None)


def test_ranges_of_computed_length(target: GpuTarget) -> None:
    """A range is evaluated on the host, as its placement reports; its users run on the device."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        n = m.add_parameter("n", mgx.shape(type="int64", lens=(1,)))
        zero, one = m.add_literal(np.array(0)), m.add_literal(np.array(1))
        limit = m.add(mgx.op("squeeze", axes=[0]), m.add(mgx.op("add"), n, n))
        steps = m.add(mgx.op("dynamic_range"), zero, limit, one)
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(12, 3)))
        return [m.add(mgx.op("relu"), m.add(mgx.op("gather", axis=0), x, steps))]

    program = made(build)
    plain = program.get_main_module().clone()
    program.compile(target)
    x = np.linspace(-1, 1, 36, dtype=np.float32).reshape(12, 3)
    instance = program.executable.instances()[0]
    host = [p.op for p in instance.placements if p.place == "host"]
    assert len(host) == 1 and host[0].startswith("dynamic_range")
    for n in (2, 5, 0, 2):
        feed = {"n": np.array([n]), "x": x}
        same(program.run(feed), Interpreter().run(plain, list(feed.values())))
    for later in instance.runner.continuation.runners():
        assert later.whole and not later.hosted


def test_numbers_that_are_read_serve_the_host_too(target: GpuTarget) -> None:
    """They determine the extents of a reshape, and lengths of parts, which the host reads."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(12,)))
        n = m.add_parameter("n", mgx.shape(type="int64", lens=(2,)))
        lens = m.add(mgx.op("add"), n, n)
        parts = m.add(
            mgx.op("split_to_sequence", axis=0), m.add(mgx.op("slice", axes=[0], starts=[0], ends=[8]), x), lens
        )
        first = m.add(mgx.op("sequence_at"), parts, m.add_literal(np.array(0)))
        return [m.add(mgx.op("reshape"), x, lens), m.add(mgx.op("neg"), first)]

    program = made(build)
    plain = program.get_main_module().clone()
    program.compile(target)
    feed = {"x": np.linspace(-1, 1, 12, dtype=np.float32), "n": np.array([1, 3])}
    same(program.run(feed), Interpreter().run(plain, list(feed.values())))


def test_device_arrays(target: GpuTarget) -> None:
    """Without copies to the host, results are device arrays with the actual extents, which outlive the next run."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        given, found = suppressed(m, 16, 2)
        return [found, m.add(mgx.op("transpose", permutation=[1, 0]), found), m.add(mgx.op("relu"), given)]

    rng = np.random.default_rng(8)
    feeds = [boxes(16, 2, rng) for _ in range(3)]
    program = check(build, target, feeds, True, offload_copy=False)
    first = program.run(feeds[0])
    assert all(isinstance(r.value, DeviceArray) for r in first)
    wanted = Interpreter().run(made(build).get_main_module(), list(feeds[0].values()))
    for feed in feeds[1:]:
        program.run(feed)
    same(first, wanted)


def test_saved_programs_contain_the_code_after_segments(target: GpuTarget, tmp_path: Any, monkeypatch: Any) -> None:
    def build(m: mgx.Module) -> list[mgx.Instruction]:
        _, found = suppressed(m, 16, 2)
        return [m.add(mgx.op("tanh"), m.add(mgx.op("convert", target_type=mgx.shape(type="float32").dtype), found))]

    program = made(build)
    program.compile(target)
    feed = boxes(16, 2, np.random.default_rng(9))
    wanted = program.run(feed)[0].to_numpy()
    program.save(tmp_path / "boxes.mxr")

    def never(*args: Any, **kwargs: Any) -> Any:
        raise CompileError("nobody", "nothing", "nothing should be compiled")

    monkeypatch.setattr(builder, "compiler_for", never)
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("MGX_GPU_DEVICE", f"host:{target.device_id}")
    loaded = mgx.load(tmp_path / "boxes.mxr", trust=True)
    np.testing.assert_array_equal(loaded.run(feed)[0].to_numpy(), wanted)


@pytest.mark.parametrize("opened", [False, True])
def test_results_that_have_no_memory_of_their_own(target: GpuTarget, opened: bool) -> None:
    """Tuples returned or read by control flow; an absent result; arguments and constants; next to data-dependent extents."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 2]))
    top = m.add(mgx.op("topk", axis=0, k=2), x)
    branches = [mgx.Module("then"), mgx.Module("else")]
    for branch, op in zip(branches, ("neg", "relu"), strict=True):
        branch.add_return([branch.add(mgx.op(op), branch.add(mgx.op("get_tuple_elem", index=0), top))])
    chosen = m.add(mgx.op("if"), m.add_parameter("c", mgx.Shape("bool", [])), modules=branches)
    first = m.add(mgx.op("get_tuple_elem", index=0), chosen)
    found = [m.add(mgx.op("nonzero"), x)] if opened else []
    m.add_return([top, first, x, m.add_absent(), m.add_literal(np.float32([5])), m.add(mgx.op("neg"), x), *found])
    program.compile(target)
    given = np.arange(8, dtype=np.float32).reshape(4, 2)
    (values, places), negated, same, absent, five, less, *rest = [
        r.value for r in program.run({"x": given, "c": np.array(True)})
    ]
    assert values.tolist() == [[6, 7], [4, 5]] and places.tolist() == [[3, 3], [2, 2]]
    assert negated.tolist() == [[-6, -7], [-4, -5]] and less.tolist() == (-given).tolist()
    assert absent is None and five.tolist() == [5] and same.tolist() == given.tolist() and same is not given
    assert [r.tolist() for r in rest] == [np.stack(np.nonzero(given)).tolist()] * opened


def test_joined_numbers_of_rows_must_be_equal(target: GpuTarget) -> None:
    """Two counts: equal ones are joined, others are rejected, even if the result is empty."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        given = [m.add_parameter(name, mgx.shape(type="float32", lens=(4,))) for name in "xy"]
        return [m.add(mgx.op("concat", axis=0), *[m.add(mgx.op("nonzero"), x) for x in given])]

    rows = np.eye(4, dtype=np.float32)
    program = check(build, target, [{"x": rows[1], "y": rows[3]}, {"x": rows[0] * 0, "y": rows[0] * 0}], False)
    for x, y in ((rows[0], rows[1] + rows[2]), (rows[0] * 0, rows[1])):
        with pytest.raises(mgx.ShapeError, match="extents off axis 0 must be equal"):
            program.run({"x": x, "y": y})


def test_the_first_of_the_found_rows(target: GpuTarget) -> None:
    """As in detectors: the best of the rows found, at most as many as there are, and a branch on their number."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(8,)))
        found = m.add(mgx.op("gather", axis=0), x, m.add(mgx.op("squeeze", axes=[0]), m.add(mgx.op("nonzero"), x)))
        # the number is computed in a way that no rule of extents covers
        number = m.add(mgx.op("bitwise_and"), m.add(mgx.op("dimensions_of"), found), m.add_literal(np.int64([255])))
        k = m.add(mgx.op("min"), number, m.add_literal(np.int64([3])))
        best = m.add(mgx.op("get_tuple_elem", index=0), m.add(mgx.op("topk", axis=0), found, k))
        branches = [mgx.Module("many"), mgx.Module("few")]
        for branch, op in zip(branches, ("neg", "exp"), strict=True):
            branch.add_return([branch.add(mgx.op(op), best)])
        many = m.add(mgx.op("greater"), k, m.add_literal(np.int64([2])))
        many = m.add(mgx.op("squeeze", axes=[0]), many)
        return [m.add(mgx.op("get_tuple_elem", index=0), m.add(mgx.op("if"), many, modules=branches))]

    rng = np.random.default_rng(0)
    feeds = []
    for found in (8, 5, 2, 1, 0):
        x = np.zeros(8, np.float32)
        x[rng.permutation(8)[:found]] = rng.standard_normal(found)
        feeds.append({"x": x})
    check(build, target, feeds, None)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[mgx.Module]:
    """Collects the parts after borders that runs lower."""
    found: list[mgx.Module] = []
    plain = Part.lowered

    def recording(self: Part[Any], *args: Any) -> mgx.Module:
        found.append(self.module)
        return plain(self, *args)

    monkeypatch.setattr(Part, "lowered", recording)
    return found


def softmax_of_nonzeros(m: mgx.Module, x: mgx.Instruction) -> mgx.Instruction:
    """Keeps the non-zero elements; a softmax reads all of them."""
    at = m.add(mgx.op("squeeze", axes=[0]), m.add(mgx.op("nonzero"), x))
    return m.add(mgx.op("softmax", axis=0), m.add(mgx.op("gather", axis=0), x, at))


def test_a_run_lowers_nothing_twice(target: GpuTarget, lowered: list[mgx.Module]) -> None:
    """The code between two counting ops is lowered separately, and not again with the code before it."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = m.add_parameter("x", mgx.shape(type="float32", lens=(8,)))
        for _ in range(3):
            x = softmax_of_nonzeros(m, x)
        return [x]

    program = made(build)
    program.compile(target)
    for found in (8, 5):
        lowered.clear()
        program.run({"x": np.arange(8, dtype=np.float32) * (np.arange(8) < found)})
        names = [op_of(i).name for part in lowered for i in part if not (i.is_param or i.is_return)]
        assert names.count("nonzero") == 2 and len(lowered) == 3


def test_other_numbers_that_lead_to_equal_extents_lower_nothing(target: GpuTarget, lowered: list[mgx.Module]) -> None:
    """The best three of any number found: the code after them is already compiled."""

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x = softmax_of_nonzeros(m, m.add_parameter("x", mgx.shape(type="float32", lens=(8,))))
        best = m.add(mgx.op("slice", axes=[0], starts=[0], ends=[3]), x)
        return [softmax_of_nonzeros(m, best)]

    program = made(build)
    program.compile(target)
    counts = []
    for found in (8, 5, 4):
        lowered.clear()
        x = np.arange(1, 9, dtype=np.float32) * (np.arange(8) < found)
        program.run({"x": x})
        counts.append(len(lowered))
    assert counts == [2, 1, 1]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_results_are_reshaped_to_extents_of_run_time(device: int) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float32", [2, 3, 4])))
    turned = m.add(mgx.op("exp"), m.add(mgx.op("transpose", permutation=(0, 2, 1)), x))
    shaped = m.add(mgx.op("reshape"), turned, m.add_parameter("dims", mgx.Shape("int64", [2])))
    m.add_return([m.add(mgx.op("neg"), shaped)])
    program.compile(GpuTarget("host", device))
    given = np.random.default_rng(3).random((2, 3, 4), np.float32)
    (found,) = program.run({"x": given, "dims": np.array([4, 6])})
    np.testing.assert_allclose(found.to_numpy(), -np.exp(given.transpose(0, 2, 1)).reshape(4, 6), rtol=1e-6)
