"""While loops with a counter, as tf2onnx writes TensorFlow's: their rows have a known extent."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import mgx_core as mgx
from mgx_core.ops.control import never_ends

WHILE = """g (float[n, 3] x, float[3] a) => (float[3] last, float[m, 3] rows) {{
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    two = Constant<value_int = 2>()
    minus = Constant<value_int = -1>()
    none = Constant<value_float = 0.0>()
    yes = Constant<value = bool {{1}}>()
    dims = Shape(x)
    length = Gather(dims, zero)
    start = Constant<value_int = {start}>()
    {first}
    i_end, last, n_end, rows = Loop ({trips}, begins, start, a, length) <body = b
        (int64 trip, bool c, int64 i, float[3] h, int64 count) => (bool d, int64 next, float[3] k, int64 same, float[3] row) {{
        each = Gather(x, trip)
        {step}
        k = Add(h, each)
        row = Neg(k)
        {ends}
        same = Identity(count)
    }}>
}}"""
LESS = "begins = Less(start, length)"


def compiled(target: str, **parts: object) -> mgx.Program:
    text = WHILE.format(**{"start": 0, "first": LESS, "trips": "", "step": "next = Add(i, one)", **parts})
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    program = mgx.parse_onnx_buffer(model.SerializeToString())
    program.compile(mgx.get_target(target))
    return program


def check(program: mgx.Program, rows: int, trips: int) -> None:
    x, a = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3), np.float32([1, 2, 3])
    last, found = (r.to_numpy() for r in program.run({"x": x, "a": a}))
    sums = np.cumsum([a, *x[:trips]], 0)
    np.testing.assert_array_equal(last, sums[-1])
    np.testing.assert_array_equal(found, -sums[1:])


COUNTED = [
    ({"ends": "d = Less(next, count)"}, lambda n: n),
    ({"ends": "d = Less(next, length)"}, lambda n: n),
    ({"ends": "l = Less(next, count)\n d = And(c, l)"}, lambda n: n),
    ({"ends": "l = Greater(count, next)\n d = And(l, yes)"}, lambda n: n),
    ({"ends": "l = GreaterOrEqual(next, count)\n d = Not(l)", "first": "begins = Greater(length, start)"}, lambda n: n),
    ({"ends": "d = Less(next, count)", "trips": "two"}, lambda n: min(n, 2)),
    ({"ends": "d = LessOrEqual(next, count)", "start": 1, "first": "begins = LessOrEqual(start, length)"}, lambda n: n),
    ({"ends": "d = Less(next, count)", "step": "next = Add(two, i)"}, lambda n: (n + 1) // 2),
    ({"ends": "d = Less(next, count)", "start": 3, "first": "begins = Identity(yes)"}, lambda n: max(1, n - 3)),
    ({"ends": "d = Less(next, count)", "first": "begins = Less(start, two)"}, lambda n: n),
]


@pytest.mark.parametrize(("parts", "trips"), COUNTED, ids=[str(n) for n in range(len(COUNTED))])
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_counted_by_a_state(parts: dict[str, object], trips: object, target: str) -> None:
    program = compiled(target, **parts)
    assert " = loop[" not in str(program) and " = scan[" in str(program)
    for rows in (5, 1, 4):
        check(program, rows, trips(rows))  # type: ignore[operator]


NOT_COUNTED = [
    ({"ends": "d = Less(i, count)"}, lambda n: n + 1),  # of the previous trip
    ({"ends": "d = Less(next, count)", "step": "next = Add(i, i)", "start": 1}, lambda n: (n - 1).bit_length()),
    ({"ends": "d = Greater(next, minus)", "step": "next = Add(i, minus)", "start": 2}, lambda n: 3),
    (
        {"ends": "l = Less(next, count)\n s = ReduceSum<keepdims = 0>(k)\n e = Less(s, none)\n d = And(l, e)"},
        lambda n: 1,
    ),
    ({"ends": "d = Less(next, count)", "first": "begins = Less(two, length)"}, lambda n: n),  # another condition
]


@pytest.mark.parametrize(("parts", "trips"), NOT_COUNTED, ids=[str(n) for n in range(len(NOT_COUNTED))])
def test_other_conditions_end_a_loop(parts: dict[str, object], trips: object) -> None:
    program = compiled("cpu", **parts)
    assert " = scan[" not in str(program)
    if trips(4) <= 4:  # type: ignore[operator]
        check(program, 4, trips(4))  # type: ignore[operator]


LISTED = """<ir_version: 8, opset_import: ["": 18]> g (float[4, 3] x, int64[5] offsets) => (float[m, 3] y) {
    one = Constant<value_ints = [1]>()
    four = Constant<value_ints = [4]>()
    begins = Constant<value = bool {1}>()
    start = Constant<value_ints = [0]>()
    empty = SequenceEmpty()
    last, items = Loop (, begins, start, empty) <body = b
        (int64 trip, bool c, int64[1] i, seq(float[k, 3]) list) => (bool d, int64[1] next, seq(float[k, 3]) longer) {
        next = Add(i, one)
        first = Gather(offsets, i)
        end = Gather(offsets, next)
        item = Slice(x, first, end)
        longer = SequenceInsert(list, item)
        less = Less(next, four)
        d = Squeeze(less)
    }>
    y = ConcatFromSequence<axis = 0>(items)
}"""


def test_nothing_but_the_number_of_trips_ends_a_loop_that_is_counted() -> None:
    program = mgx.parse_onnx_buffer(parser.parse_model(LISTED).SerializeToString())
    (loop,) = [i for i in program.get_main_module() if i.op.control]
    assert loop.op.name == "loop"
    assert never_ends(loop.modules[0])
    program.compile(mgx.get_target("ref"))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (y,) = program.run({"x": x, "offsets": np.array([1, 3, 3, 0, 4])})
    np.testing.assert_array_equal(np.asarray(y), np.concatenate([x[1:3], x]))
