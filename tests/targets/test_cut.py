"""Cuts where extents depend on data: segments and the code between them, borders, continuations, kernels that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Instruction, Kernel, Kernels, MgxError, Module, Shape
from mgx_core.compile.lower import Lower
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.select import Compress, Nonzero
from mgx_core.targets.continuation import Continuation
from mgx_core.targets.cut import border, cut, emitted_at_run_time
from mgx_core.targets.host_runner import HostRunner
from mgx_core.targets.kernel import Launch, Reference, op_of
from mgx_core.targets.parts import PermutedValue
from mgx_core.targets.segment import Segment
from mgx_core.targets.segment_interpreter import SegmentInterpreter
from mgx_core.targets.static_part import split

COUNTED = {Nonzero: 1, Compress: 0, Nonmaxsuppression: 0}


class Marks(Kernel):
    """Computes what the definition does not."""

    added = 100
    name = "marks"

    def __init__(self, op: Any) -> None:
        self.op = op

    def run(self, args: Sequence[Any], modules: Sequence[Module] = (), run: Any = None) -> Any:
        return self.op.compute(*args) + np.float32(self.added)


class Emits(Kernel):
    def __init__(self, op: Any) -> None:
        self.name = f"emits {op.name}"
        self.open_axis = COUNTED.get(type(op))
        self.op = op
        self.emit = lambda e, op, modules, args: None

    def run(self, args: Sequence[Any], modules: Sequence[Module] = (), run: Any = None) -> Any:
        return self.op.evaluate(args, modules, run)


KERNELS = Kernels("stub")


@KERNELS.plan()
def emits(op: Any, shapes: Any, context: Any, modules: Any = ()) -> Kernel:
    return Emits(op)


def lower(module: Module) -> None:
    Lower(KERNELS, None).apply(module)


def lowered(module: Module) -> Module:
    lower(module)
    return module


def detector(limit: Any) -> tuple[Module, Instruction, Instruction]:
    """Selected boxes, and a mean over them."""
    m = Module("main")
    boxes, scores = m.add_parameter("b", Shape("float32", [1, 9, 4])), m.add_parameter("s", Shape("float32", [1, 2, 9]))
    most = m.add_parameter("most", Shape("int64", [1])) if limit is None else m.add_literal(np.array([limit]))
    found = m.add(mgx.op("nonmaxsuppression"), boxes, scores, most)
    after = m.add(mgx.op("neg"), found)
    m.add_return([after])
    return m, found, after


@pytest.mark.parametrize(("limit", "rows"), [(4, 8), (0, 0), (-1, 0), (100, 18), (None, 18)])
def test_rows_are_bounded_by_known_limits(limit: Any, rows: int) -> None:
    """A constant limit of 4 boxes for each of 2 classes; a computed limit leaves all."""
    module, found, _ = detector(limit)
    lower(module)
    cutting = border(module, split(module).static)
    assert cutting.counted == {found: (0, rows)} and cutting.read == []
    assert emitted_at_run_time(found)


def test_an_absent_limit_gives_no_boxes() -> None:
    shapes = [Shape("float32", [1, 9, 4]), Shape("float32", [1, 2, 9])]
    assert Nonmaxsuppression().bounded(shapes, [None, None]) == Shape("int64", [0, 3])


def test_computations_with_a_data_dependent_extent_are_not_static() -> None:
    """A number repeated to a data-dependent number of columns, and from there to ten: only its result has fixed extents."""
    m = Module("main")
    found = m.add(mgx.op("nonzero"), m.add_parameter("x", Shape("float32", [12])))
    body = Module("body")
    number = body.add_parameter("v", Shape("float32", [1, 1]))
    columns = body.add(mgx.op("multibroadcast", out_lens=found.shape.dims), number)
    body.add_return([body.add(mgx.op("multibroadcast", out_lens=[1, 10]), columns)])
    number = m.add_parameter("v", Shape("float32", [1, 1]))
    row = m.add(mgx.op("group", tag="pointwise"), number, modules=[body])
    m.add_return([row])
    assert row.shape.dims == (1, 10)
    assert split(lowered(m)).static == {}


def test_values_that_decide_extents_are_read() -> None:
    m = Module("main")
    x, n = m.add_parameter("x", Shape("float32", [12])), m.add_parameter("n", Shape("int64", [1]))
    twice = m.add(mgx.op("add"), n, n)
    table = m.add(mgx.op("reshape"), x, m.add(mgx.op("concat", axis=0), m.add_literal(np.array([-1])), twice))
    total = m.add(mgx.op("reduce_sum", axes=[0]), table)
    m.add_return([total])
    static = split(lowered(m)).static
    cutting = border(m, static)
    assert cutting.counted == {} and [str(i.shape) for i in cutting.read] == ["int64[2]"]
    after = Continuation(m, static, cutting, lower, lambda declared, given: given)
    assert after.outputs == [total] and after.rows is None and after.dynamic() == set()
    module = after.lowered([], [np.array([-1, 4])])
    assert [str(o.shape) for o in module.outputs] == ["float32[1, 4]"]
    assert after.largest() is None


def row_by_row(value: Any) -> PermutedValue:
    return PermutedValue(value, tuple(range(value.ndim)), value.shape)


def rows_of(build: Any) -> tuple[Module, Continuation[HostRunner]]:
    m = Module("main")
    x = m.add_parameter("x", Shape("float32", [6, 3]))
    found = m.add(mgx.op("compress", axis=0), x, m.add_parameter("keep", Shape("bool", [6])))
    m.add_return([build(m, found), found])
    static = split(lowered(m)).static
    return m, Continuation(m, static, border(m, static), lower, lambda declared, given: given)


def test_independent_rows_run_on_the_maximum_number_of_rows() -> None:
    _, after = rows_of(lambda m, found: m.add(mgx.op("exp"), found))
    ((axis, symbol),) = after.rows or []
    assert (axis, [symbol], after.most) == (0, after.symbols, [6])
    whole = after.whole(HostRunner)
    assert whole is not None and after.whole(HostRunner) is whole
    (result,) = whole.run([np.zeros((6, 3), np.float32)])
    assert result.shape == (6, 3)


def test_dependent_rows_wait_for_their_count() -> None:
    _, after = rows_of(lambda m, found: m.add(mgx.op("reduce_mean", axes=[0]), found))
    assert after.rows is None and after.whole(HostRunner) is None
    rows = np.array([[1, 2, 3], [3, 4, 5]], np.float32)
    for _ in range(2):
        (result,) = after.run([rows], [], HostRunner, row_by_row)
        assert result.tolist() == [[2, 3, 4]]
    assert len(after.runners()) == 1


def test_rows_whose_number_is_declared_as_an_expression_wait_for_it() -> None:
    m = parse_module(
        """\
symbol n in 0..4
module main
  %x = @param["x"] -> float32[6, 3]
  %keep = @param["keep"] -> bool[6]
  %1 = compress[axis=0](%x, %keep) -> float32[n+1, 3]
  %2 = exp(%1)
  @return(%2)""",
        STANDARD,
    )
    static = split(lowered(m)).static
    after: Continuation[HostRunner] = Continuation(m, static, border(m, static), lower, lambda declared, given: given)
    assert after.symbols == ["n+1"] and after.rows is None
    (result,) = after.run([np.zeros((2, 3), np.float32)], [], HostRunner, row_by_row)
    assert result.tolist() == [[1, 1, 1]] * 2


def column_by_column(value: Any) -> PermutedValue:
    """A value whose memory has its axes in reverse."""
    order = tuple(reversed(range(value.ndim)))
    return PermutedValue(np.ascontiguousarray(value.T), order, value.shape)


@pytest.mark.parametrize("layout_of", [row_by_row, column_by_column])
def test_what_counts_again_runs_in_parts(layout_of: Any) -> None:
    """Places of what is positive among the rows that are kept, and of what is not zero among these; beside a sum of the rows."""

    def build(m: Module, found: Instruction) -> Instruction:
        places = m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), found))
        again = m.add(mgx.op("convert", target_type="float32"), m.add(mgx.op("nonzero"), places))
        sums = [m.add(mgx.op("reduce_sum", axes=[0, 1]), x) for x in (again, m.add(mgx.op("neg"), found))]
        return m.add(mgx.op("add"), *sums)

    module, after = rows_of(build)
    for rows in (np.array([[1, -2, 3], [3, 4, -5]], np.float32), np.ones((5, 3), np.float32)):
        (result,) = after.run([rows], [], HostRunner, layout_of)
        padded = np.concatenate([rows, np.zeros((6 - len(rows), 3), np.float32)])
        wanted, _ = Interpreter().run(module, [padded, np.arange(6) < len(rows)])
        np.testing.assert_array_equal(result, wanted)
    stages = [sum(isinstance(op_of(i), Nonzero) for i in part.module) for part in after.parts.parts]
    assert stages == [1, 1, 0]


def test_a_failed_whole_program_is_not_requested_again() -> None:
    _, after = rows_of(lambda m, found: m.add(mgx.op("exp"), found))
    asked: list[Module] = []
    assert after.whole(asked.append) is None and after.whole(asked.append) is None  # type: ignore[arg-type,func-returns-value]
    assert len(asked) == 1 and after.rows is None


@pytest.mark.parametrize("make", [None, HostRunner])
def test_segments_between_ops_that_are_decided_at_run_time(make: Any) -> None:
    m = Module("main")
    x = m.add_parameter("x", Shape("float32", [5]))
    found = m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), x))
    wide = m.add(mgx.op("convert", target_type="float32"), found)
    again = m.add(mgx.op("nonzero"), m.add(mgx.op("neg"), wide))
    m.add_return([again, wide])
    given = np.array([3, -1, 0, 2, 5], np.float32)
    expected = Interpreter().run(m, [given])
    parts = split(lowered(m))
    items = cut(m, parts.static)
    kinds = ["segment" if isinstance(i.what, Segment) else "op" for i in items]
    assert kinds == ["op", "segment", "op"]
    assert [i.what.results for i in items if isinstance(i.what, Segment)] == [[wide, m.outputs[0].inputs[0]]]
    interpreter = SegmentInterpreter(make)
    seen: list[Any] = []
    made = {i: np.maximum(given, 0) for i in parts.wanted}
    results = interpreter.finish(m, items, [given], made, lambda what, part, args, seconds: seen.append(part))
    for got, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, right)
    assert sum(s is not None for s in seen) == (make is not None)


def test_an_op_on_strings_is_no_part_of_the_segment_that_reads_its_numbers() -> None:
    """A segment with a string among its operands has no runner: all its members would run one by one."""
    m = Module("main")
    x = m.add_parameter("x", Shape("string", [2]))
    numbers = m.add(mgx.op("convert", target_type="float32"), x)
    m.add_return([m.add(mgx.op("neg"), m.add(mgx.op("sqrt"), numbers))])
    lower(m)
    items = cut(m, split(m).static)
    kinds = ["segment" if isinstance(i.what, Segment) else op_of(i.what).name for i in items]
    assert kinds == ["convert", "segment"]
    seen: list[Any] = []
    interpreter = SegmentInterpreter(HostRunner)
    words = np.array(["4", "9"], object)
    results = interpreter.finish(m, items, [words], {}, lambda what, part, args, seconds: seen.append(part))
    assert results[0].tolist() == [-2, -3]
    assert sum(s is not None for s in seen) == 1


def test_ops_that_only_their_definition_computes_are_called_directly(monkeypatch: Any) -> None:
    """The first run checks the type of the result; later ones call the definition, and errors still name the instruction."""
    m = Module("main")
    x = m.add_parameter("x", Shape("string", [2]))
    made = m.add(mgx.op("convert", target_type="float32"), x)
    made.op = Launch(Reference(made.op), made.op, made.result)
    m.add_return([made])
    items, interpreter = cut(m, {}), SegmentInterpreter(HostRunner)
    checked: list[Any] = []
    evaluate = Launch.evaluate
    monkeypatch.setattr(Launch, "evaluate", lambda *args: checked.append(args) or evaluate(*args))
    for words in (["4", "9"], ["1", "2"], ["5", "6"]):
        (found,) = interpreter.finish(m, items, [np.array(words, object)], {})
        assert found.tolist() == [float(w) for w in words]
    assert len(checked) == 1
    with pytest.raises(MgxError, match=r"launch\[.*convert.*\].*four"):
        interpreter.finish(m, items, [np.array(["four", "9"], object)], {})


@pytest.mark.parametrize("kernel", [Emits, Marks])
def test_kernels_of_ops_on_strings_are_called_in_every_run(kernel: Any) -> None:
    m = Module("main")
    x = m.add_parameter("x", Shape("string", [2]))
    made = m.add(mgx.op("convert", target_type="float32"), x)
    made.op = Launch(kernel(made.op), made.op, made.result)
    m.add_return([made])
    items, interpreter = cut(m, {}), SegmentInterpreter(HostRunner)
    for words in (["4", "9"], ["1", "2"], ["5", "6"]):
        (found,) = interpreter.finish(m, items, [np.array(words, object)], {})
        assert found.tolist() == [float(w) + Marks.added * (kernel is Marks) for w in words]


def test_views_of_strings_that_are_constant_are_computed_once(monkeypatch: Any) -> None:
    m = Module("main")
    x = m.add_parameter("x", Shape("string", [2, 3]))
    row = m.add(mgx.op("unsqueeze", axes=[0]), m.add_literal(np.array(["a", "b", "c"], object)))
    spread = m.add(mgx.op("multibroadcast", out_lens=[2, 3]), row)
    m.add_return([m.add(mgx.op("equal"), x, spread), spread])
    lower(m)
    items, interpreter = cut(m, {}), SegmentInterpreter(HostRunner)
    computed: list[Any] = []
    compute = Multibroadcast.compute
    monkeypatch.setattr(Multibroadcast, "compute", lambda *args: computed.append(args) or compute(*args))
    for words in (["a", "c", "b"], ["b", "b", "b"]):
        same, whole = interpreter.finish(m, items, [np.array([words, words], object)], {})
        assert same.tolist() == [[w == c for w, c in zip(words, "abc", strict=True)]] * 2
        assert whole.tolist() == [["a", "b", "c"]] * 2
    assert len(computed) == 1


def test_an_op_that_finds_extents_again_is_no_part_of_a_segment() -> None:
    """The second reshape reads its operand, though the first one has determined the same extents."""
    m = lowered(
        parse_module(
            """\
symbol d?0
symbol d?1
module main
  %x = @param["x"] -> float32[6]
  %d = @param["d"] -> int64[2]
  %1 = reshape(%x, %d) -> float32[d?0, d?1]
  %2 = neg(%x) -> float32[6]
  %3 = reshape(%2, %d) -> float32[d?0, d?1]
  %4 = relu(%3) -> float32[d?0, d?1]
  @return(%1, %4)""",
            STANDARD,
        )
    )
    items = cut(m, split(m).static)
    kinds = ["segment" if isinstance(i.what, Segment) else i.what.name for i in items]
    assert kinds == ["launch", "launch", "segment"]


@pytest.mark.parametrize("make", [None, HostRunner])
@pytest.mark.parametrize("returned", [False, True])
def test_a_view_of_a_literal_is_within_the_segments_that_read_it(returned: bool, make: Any) -> None:
    """As a result of the static part it would be copied in each run: a weight that is broadcast over the batch."""
    m = Module("main")
    x, weight = m.add_parameter("x", Shape("float32", [2, 3])), m.add_literal(np.arange(3, dtype=np.float32))
    row = m.add(mgx.op("unsqueeze", axes=[0]), weight)
    spread = m.add(mgx.op("multibroadcast", out_lens=[2, 3]), row)
    found = m.add(mgx.op("nonzero"), x)
    longer = m.add(mgx.op("convert", target_type="float32"), found)
    total = m.add(mgx.op("reduce_sum", axes=[1]), longer)
    first = m.add(mgx.op("add"), m.add(mgx.op("multibroadcast", out_lens=[2, 3]), total), spread)
    again = m.add(mgx.op("nonzero"), first)
    count = m.add(mgx.op("reduce_sum", axes=[1]), m.add(mgx.op("convert", target_type="float32"), again))
    second = m.add(mgx.op("sub"), m.add(mgx.op("multibroadcast", out_lens=[2, 3]), count), spread)
    m.add_return([first, second, *([spread] if returned else [])])
    before = m.clone()
    lower(m)
    parts = split(m)
    names = [op_of(i).name for i in parts.static]
    assert names == (["unsqueeze", "multibroadcast"] if returned else [])
    segments = [item.what for item in cut(m, parts.static) if isinstance(item.what, Segment)]
    if not returned:
        assert not any(
            n.literal is None and n.inputs and n.inputs[0].literal is not None for s in segments for n in s.needs
        )
        assert sum(op_of(i).name == "unsqueeze" for s in segments for i in s.members) == 2
    items = cut(m, parts.static)
    for drawn in ([[0, 1, 2], [3, 0, 0]], [[0, 0, 0], [0, 0, 0]]):
        given = np.array(drawn, np.float32)
        made = dict.fromkeys(parts.wanted, np.broadcast_to(np.arange(3, dtype=np.float32), (2, 3)))
        results = SegmentInterpreter(make).finish(m, items, [given], made)
        for got, right in zip(results, Interpreter().run(before, [given]), strict=True):
            np.testing.assert_array_equal(got, right)
