"""Lists filled by loops, as torch's older exporter writes them, become tensors without a sequence and mostly without the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import mgx_core as mgx

REPEATED = """g (float[{dims}] x, int64[n] counts) => (float[{out}] y) {{
    axis = Constant<value_int = {axis}>()
    dims = Shape(x)
    trips = Gather(dims, axis)
    shape = Shape(counts)
    ones = ConstantOfShape<value = int64[1] {{1}}>(shape)
    lengths = SplitToSequence<axis = 0>(counts, ones)
    slices = SplitToSequence<axis = {axis}>(x, ones)
    yes = Constant<value = bool {{1}}>()
    none = SequenceEmpty<dtype = 1>()
    list = Loop (trips, yes, none) <body = b (int64 i, bool c, seq(float) s) => (bool d, seq(float) t) {{
        count = SequenceAt(lengths, i)
        slice = SequenceAt(slices, i)
        at = Constant<value_ints = [{behind}]>()
        apart = Unsqueeze(slice, at)
        before = Constant<value_ints = [{before}]>()
        after = Constant<value_ints = [{after}]>()
        wanted = Concat<axis = 0>(before, count, after)
        lens = Shape(wanted)
        unit = ConstantOfShape<value = int64[1] {{1}}>(lens)
        minus = Constant<value_int = -1>()
        open = Mul(unit, minus)
        same = Equal(wanted, open)
        dims2 = Where(same, unit, wanted)
        spread = Expand(apart, dims2)
        flat = Constant<value_ints = [{flat}]>()
        item = Reshape(spread, flat)
        t = SequenceInsert(s, item)
        d = Cast<to = 9>(yes)
    }}>
    y = ConcatFromSequence<axis = {axis}>(list)
}}"""


def program_of(text: str, target: str = "ref") -> mgx.Program:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    program = mgx.parse_onnx_buffer(model.SerializeToString())
    program.compile(mgx.get_target(target))
    return program


@pytest.mark.parametrize("counts", [[2, 0, 3, 1], [0, 0, 0, 0], [0, 5, 0, 0]])
@pytest.mark.parametrize(
    ("axis", "shape", "text"),
    [
        (0, (4, 3), {"dims": "n, 3", "out": "m, 3", "behind": "1", "before": "1", "after": "3", "flat": "-1, 3"}),
        (1, (2, 4, 3), {"dims": "2, n, 3", "out": "2, m, 3", "behind": "2", "before": "2, 1", "after": "3", "flat": "2, -1, 3"}),
    ],
)  # fmt: skip
def test_each_slice_repeated(axis: int, shape: tuple[int, ...], text: dict[str, Any], counts: list[int]) -> None:
    program = program_of(REPEATED.format(axis=axis, **text))
    assert not any(word in str(program) for word in ("loop", "sequence", "broadcast_with_dims"))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (found,) = program.run({"x": x, "counts": np.asarray(counts)})
    np.testing.assert_array_equal(found.to_numpy(), np.repeat(x, counts, axis))


def test_slices_repeated_within_themselves_stay_a_loop() -> None:
    """Items whose repeated axis follows a kept one are not a gather along a single axis."""
    text = {"dims": "n, 3", "out": "n, k", "behind": "2, 3", "before": "1, 3", "after": "1", "flat": "1, -1"}
    program = program_of(REPEATED.format(axis=0, **text))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = program.run({"x": x, "counts": np.asarray([2, 2, 2, 2])})
    np.testing.assert_array_equal(found.to_numpy(), np.repeat(x, 2, 1))


ROWS = """g (float[n, 3] x, int64 trips, bool first) => ({out} y, float[3] last) {{
    zero = Constant<value_floats = [0.0, 0.0, 0.0]>()
    three = Constant<value_int = 3>()
    none = SequenceEmpty<dtype = 1>()
    final, list = Loop (trips, first, zero, none) <body = b (int64 i, bool c, float[3] a, seq(float) s)
        => (bool d, float[3] sum, seq(float) t) {{
        row = Gather(x, i)
        sum = Add(a, row)
        {insert}
        d = Less(i, three)
    }}>
    {read}
    last = Identity(final)
}}"""
APPENDED = "t = SequenceInsert(s, sum)"


@pytest.mark.parametrize("trips", [1, 3, 7])
@pytest.mark.parametrize(
    ("read", "out", "wanted"),
    [
        ("y = ConcatFromSequence<axis = 0>(list)", "float[m]", lambda r: r.reshape(-1)),
        ("y = ConcatFromSequence<axis = 0, new_axis = 1>(list)", "float[m, 3]", lambda r: r),
        ("y = ConcatFromSequence<axis = -1, new_axis = 1>(list)", "float[3, m]", lambda r: r.T),
        ("minus = Constant<value_int = -1>()\n y = SequenceAt(list, minus)", "float[3]", lambda r: r[-1]),
        ("y = SequenceLength(list)", "int64", lambda r: np.int64(len(r))),
    ],
)
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_rows_of_one_shape(trips: int, read: str, out: str, wanted: Any, target: str) -> None:
    program = program_of(ROWS.format(read=read, out=out, insert=APPENDED), target)
    assert "sequence_insert" not in str(program)
    x = np.arange(21, dtype=np.float32).reshape(7, 3) ** 2
    rows = np.cumsum(x[: min(trips, 4 + 1)], 0)  # the condition is false from the fourth trip on
    found, last = (r.to_numpy() for r in program.run({"x": x, "trips": np.int64(trips), "first": np.bool_(True)}))
    np.testing.assert_array_equal(found, wanted(rows[: min(trips, 4)]))
    np.testing.assert_array_equal(last, rows[: min(trips, 4)][-1])


@pytest.mark.parametrize(
    ("insert", "wanted"),
    [
        ("front = Constant<value_int = 0>()\n t = SequenceInsert(s, sum, front)", lambda r: r[::-1].reshape(-1)),
        (
            "long = SequenceInsert(s, sum)\n k = SequenceLength(s)\n at = Constant<value_int = 0>()\n"
            "one = Constant<value_ints = [1]>()\n m = Unsqueeze(k, at)\n end = Add(m, one)\n at1 = Constant<value_ints = [0]>()\n"
            "part = Slice(sum, at1, end)\n t = SequenceInsert(s, part)",
            lambda r: np.concatenate([row[: n + 1] for n, row in enumerate(r)]),
        ),
    ],
    ids=["in front", "as long as the list"],
)
def test_lists_that_are_more_than_appended_to_stay(insert: str, wanted: Any) -> None:
    read = "y = ConcatFromSequence<axis = 0>(list)"
    program = program_of(ROWS.format(read=read, out="float[m]", insert=insert))
    assert "sequence_insert" in str(program)
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    found = program.run({"x": x, "trips": np.int64(3), "first": np.bool_(True)})[0].to_numpy()
    np.testing.assert_array_equal(found, wanted(np.cumsum(x[:3], 0)))


BACK = """g (float[n, 3] x, float[3] start) => (float[3, m] y, float[k, 3] there) {
    axis = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    dims = Shape(x)
    count = Gather(dims, axis)
    fewer = Sub(count, one)
    float = Cast<to = 1>(fewer)
    step = Cast<to = 1>(one)
    open = Div(float, step)
    whole = Ceil(open)
    trips = Cast<to = 7>(whole)
    yes = Constant<value = bool {1}>()
    none = SequenceEmpty<dtype = 1>()
    last, forth = Loop (trips, yes, start, none) <body = b (int64 i, bool c, float[3] a, seq(float) s)
        => (bool d, float[3] sum, seq(float) t) {
        at = Add(i, one)
        row = Gather(x, at)
        sum = Add(a, row)
        t = SequenceInsert(s, sum)
        d = Identity(yes)
    }>
    first = SequenceConstruct(last)
    length = SequenceLength(forth)
    end, back = Loop (length, yes, last, first) <body = b (int64 i2, bool c2, float[3] a2, seq(float) s2)
        => (bool d2, float[3] sum2, seq(float) t2) {
        left = Sub(length, one)
        at2 = Sub(left, i2)
        row2 = SequenceAt(forth, at2)
        sum2 = Sub(a2, row2)
        t2 = SequenceInsert(s2, sum2)
        d2 = Identity(yes)
    }>
    y = ConcatFromSequence<axis = -1, new_axis = 1>(back)
    empty = Constant<value_floats = [0.0, 0.0, 0.0]>()
    filled = SequenceInsert(forth, empty)
    there = ConcatFromSequence<axis = 0, new_axis = 1>(filled)
}"""


@pytest.mark.parametrize("rows", [5, 2, 1])
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_forth_and_back_over_a_list(rows: int, target: str) -> None:
    """Trip counts are floats, as torch writes `range(1, n)`; the second list has an initial item and reads the first."""
    program = program_of(BACK, target)
    assert "loop" not in str(program)
    x, start = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3) ** 2, np.float32([1, 2, 3])
    found, there = (r.to_numpy() for r in program.run({"x": x, "start": start}))
    forth = np.cumsum([start, *x[1:]], 0)[1:]
    back = np.cumsum([start + x[1:].sum(0), *(-row for row in forth[::-1])], 0)
    np.testing.assert_array_equal(found, back.T)
    np.testing.assert_array_equal(there, [*forth, np.zeros(3)])


def unrolled(order: list[int], length: int = 4) -> str:
    """Returns slices of x repeated by counts, in sequence, as torch's older exporter writes them for static lengths."""
    one = [
        f"""b{k} = Constant<value_ints = [{k}]>()
        e{k} = Constant<value_ints = [{k + 1}]>()
        count{k} = Slice(counts, b{k}, e{k})
        slice{k} = Slice(x, b{k}, e{k})
        apart{k} = Unsqueeze(slice{k}, one)
        wanted{k} = Concat<axis = 0>(one, count{k}, three)
        spread{k} = Expand(apart{k}, wanted{k})
        item{k} = Reshape(spread{k}, flat)"""
        for k in sorted(set(order))
    ]
    items = ", ".join(f"item{k}" for k in order)
    return f"""g (float[{length}, 3] x, int64[{length}] counts) => (float[m, 3] y) {{
        one = Constant<value_ints = [1]>()
        three = Constant<value_ints = [3]>()
        flat = Constant<value_ints = [-1, 3]>()
        {"".join(one)}
        y = Concat<axis = 0>({items})
    }}"""


@pytest.mark.parametrize(
    ("order", "length", "gathered"),
    [([0, 1, 2, 3], 4, True), ([0, 2, 1, 3], 4, False), ([0, 1, 2], 4, False), ([0, 1, 2, 3, 3], 4, False)],
)
def test_slices_of_a_fixed_number_repeated_one_after_the_other(order: list[int], length: int, gathered: bool) -> None:
    program = program_of(unrolled(order, length))
    assert ("broadcast_with_dims" not in str(program)) == gathered
    x = np.arange(3 * length, dtype=np.float32).reshape(length, 3)
    for counts in ([2, 0, 3, 1], [0, 1, 0, 0]):
        (found,) = program.run({"x": x, "counts": np.asarray(counts)})
        np.testing.assert_array_equal(
            found.to_numpy(), np.concatenate([np.repeat(x[k : k + 1], counts[k], 0) for k in order])
        )


def test_parts_that_are_not_the_whole_axis_are_refused() -> None:
    text = """g (float[4, 3] x) => (float[m, 3] y) {
        ones = Constant<value_ints = [1, 1, 1]>()
        rows = SplitToSequence<axis = 0>(x, ones)
        y = ConcatFromSequence<axis = 0>(rows)
    }"""
    with pytest.raises(mgx.ParseError, match=r"SplitToSequence.*as long as axis 0 together, 4, got \[1, 1, 1\]"):
        program_of(text)


GROWN = """g (float[n, 3] x, float[{first}] start, int64 trips, bool go) => (float[{out}] y, float[3] last) {{
    zero = Constant<value_floats = [0.0, 0.0, 0.0]>()
    three = Constant<value_int = 3>()
    none = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    final, y = Loop (trips, go, zero, start) <body = b (int64 i, bool c, float[3] a, float[{first}] s)
        => (bool d, float[3] sum, float[{out}] t) {{
        row = Gather(x, i)
        sum = Add(a, row)
        flat = Constant<value_ints = [{item}]>()
        item = Reshape(sum, flat)
        {append}
        d = Less(i, three)
    }}>
    last = Identity(final)
}}"""


@pytest.mark.pairs
@pytest.mark.parametrize("trips", [0, 1, 3, 7])
@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize(("axis", "item"), [(0, (1, 3)), (1, (3, 1)), (-1, (3, 1)), (1, (1, 3))])
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_tensors_that_loops_extend(trips: int, begun: int, axis: int, item: tuple[int, int], target: str) -> None:
    start = np.full([begun if a == axis % 2 else n for a, n in enumerate(item)], 7, np.float32)
    out = ", ".join("m" if a == axis % 2 else str(n) for a, n in enumerate(item))
    append = f"t = Concat<axis = {axis}>(s, item)"
    text = GROWN.format(first=", ".join(map(str, start.shape)), out=out, item=f"{item[0]}, {item[1]}", append=append)
    program = program_of(text, target)
    loop = next(i for i in program.get_main_module() if i.modules)
    assert "concat" not in str(loop.modules[0])
    x = np.arange(21, dtype=np.float32).reshape(7, 3) ** 2
    rows = np.cumsum(x[: min(trips, 4)], 0)
    given = {"x": x, "start": start, "trips": np.int64(trips), "go": np.bool_(True)}
    found, last = (r.to_numpy() for r in program.run(given))
    np.testing.assert_array_equal(found, np.concatenate([start, *(r.reshape(item) for r in rows)], axis))
    np.testing.assert_array_equal(last, rows[-1] if trips else np.zeros(3))


@pytest.mark.parametrize(
    ("append", "wanted"),
    [
        ("t = Concat<axis = 0>(item, s)", lambda rows: rows[::-1]),
        ("u = Concat<axis = 0>(s, item)\n t = Mul(u, u)", None),
        ("n = Shape(s)\n k = Slice(n, none, one)\n f = Cast<to = 1>(k)\n more = Add(item, f)\n"
         "t = Concat<axis = 0>(s, more)", None),
    ],
    ids=["in front", "changed after", "extents are read"],
)  # fmt: skip
def test_tensors_that_are_more_than_extended_are_states(append: str, wanted: Any) -> None:
    text = GROWN.format(first="0, 3", out="m, 3", item="1, 3", append=append)
    program = program_of(text)
    loop = next(i for i in program.get_main_module() if i.modules)
    assert "concat" in str(loop.modules[0])
    x = np.arange(9, dtype=np.float32).reshape(3, 3) / 8
    given = {"x": x, "start": np.zeros((0, 3), np.float32), "trips": np.int64(3), "go": np.bool_(True)}
    rows = np.cumsum(x, 0)
    if wanted is None:
        grown = np.zeros((0, 3), np.float32)
        for row in rows:
            more = row[None] + np.float32(len(grown)) if "Shape" in append else row[None]
            grown = np.concatenate([grown, more])
            grown = grown * grown if "Mul" in append else grown
    else:
        grown = wanted(rows)
    np.testing.assert_array_equal(program.run(given)[0].to_numpy(), grown)


def test_an_item_that_does_not_fit_the_tensor_is_refused() -> None:
    append = "p = NonZero(item)\n r = Transpose(p)\n q = Cast<to = 1>(r)\n t = Concat<axis = 1>(s, q)"
    text = GROWN.format(first="2, 0", out="2, m", item="3", append=append)
    program = program_of(text)
    x = np.asarray([[1, 0, 0], [0, 0, 0], [0, 0, 0]], np.float32)
    given = {"x": x, "start": np.zeros((2, 0), np.float32), "trips": np.int64(2), "go": np.bool_(True)}
    with pytest.raises(mgx.MgxError):
        program.run(given)


STEPS = """g (float[n, 3] x, float[1, 3] h) => (float[m, 3] ys, float[1, 3] last) {{
    zero = Constant<value_int = 0>()
    none = Constant<value = float[0, 3] {{}}>()
    dims = Shape(x)
    length = Gather(dims, zero)
    yes = Constant<value = bool {{1}}>()
    ys, last = Loop (length, yes, none, h) <body = b
        (int64 t, bool c, float[k, 3] before, float[1, 3] state) => (bool d, float[l, 3] after, float[1, 3] next) {{
        d = Identity(c)
        one = Constant<value_int = 1>()
        first = Constant<value_ints = [0]>()
        {end}
        starts = Unsqueeze(t, first)
        ends = Unsqueeze(end, first)
        row = Slice(x, starts, ends, first)
        next = Add(state, row)
        after = Concat<axis = 0>(before, next)
    }}>
}}"""


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_slices_at_the_iteration_number_have_known_extents(target: str) -> None:
    """As TorchScript writes `for t in range(len(x)): h = h + x[t : t + 1]; ys = torch.cat([ys, h])`."""
    program = program_of(STEPS.format(end="end = Add(t, one)"), target)
    assert " = scan[" in str(program)
    assert "?" not in str(program)
    for rows in (5, 1, 8):
        x, h = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3), np.float32([[1, 2, 3]])
        ys, last = (r.to_numpy() for r in program.run({"x": x, "h": h}))
        np.testing.assert_array_equal(ys, h + np.cumsum(x, 0))
        np.testing.assert_array_equal(last, ys[-1:])


def test_slices_that_the_last_iteration_clips_keep_their_extents() -> None:
    program = program_of(STEPS.format(end="two = Add(one, one)\n end = Add(t, two)"))
    x, h = np.float32([[1, 2, 3]]), np.float32([[4, 5, 6]])
    assert "?" in str(program)
    np.testing.assert_array_equal(program.run({"x": x, "h": h})[1].to_numpy(), h + x)
