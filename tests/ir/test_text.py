"""The text form: its syntax, and that parsing restores the printed module."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgx_core as mgx
from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import MgxError, ParameterError, ParseError, UnsupportedError
from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module, parse_op
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.ops.builtin import Undefined
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.opset import OpSet
from mgx_core.types.argument import Argument
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape, TupleShape


def make(name: str, **attributes) -> Operation:
    return STANDARD.make(name, **attributes)


def again(module: Module) -> Module:
    """Parses a module's text and checks that the result prints the same text."""
    read = parse_module(module.text(full=True), STANDARD)
    assert read.text(full=True) == module.text(full=True)
    assert verify(read) == []
    return read


# syntax


def test_a_program_reads_like_this():
    main = Module("main")
    batch = dim.symbol("batch", 1, 64, [1, 8])
    x = main.add_parameter("x", Shape("float", [batch, 3]))
    bias = main.add_literal(np.float32([1, 2.1, -0.0]))
    wide = main.add(make("multibroadcast", out_lens=[batch, 3]), bias)
    total = main.add(make("add"), x, wide, sources=["node_add", "a, b"])
    found = main.add(make("nonzero"), total)
    main.add_return([total, found])
    assert (
        main.text()
        == """\
symbol batch in 1..64 optimals 1, 8
symbol nonzero?0 in 0..192
module main
  %x = @param["x"] -> float32[batch, 3]
  %1 = @literal(1.0, 2.1, -0.0) -> float32[3]
  %2 = multibroadcast[out_lens=[batch, 3]](%1) -> float32[batch, 3]
  %3 = add(%x, %2) -> float32[batch, 3]  # node_add, "a, b"
  %4 = nonzero(%3) -> int64[2, nonzero?0]
  @return(%3, %4)"""
    )
    assert again(main).returned.inputs[0].sources == ("node_add", "a, b")


def test_modules_are_blocks_of_their_own_and_read_enclosing_values():
    text = """\
symbol trips?0 in 0..65535
module main
  %cond = @param["cond"] -> bool[]
  %x = @param["x"] -> float32[2]
  %1 = if(%cond){then_1, else_1} -> (float32[2])
  %2 = get_tuple_elem[index=0](%1) -> float32[2]
  %3 = @literal(3) -> int64[]
  %4 = loop[max_iterations=65535, scan_output_directions=[]](%3, -, %2){body} -> (float32[2], float32[trips?0, 2])
  @return(%4)
module then_1
  %5 = relu(%x) -> float32[2]
  @return(%5)
module else_1
  @return(%x)
module body
  %n = @param["n"] -> int64[]
  %going = @param["going"] -> bool[]
  %x.2 = @param["x"] -> float32[2]
  %6 = add(%x.2, %x) -> float32[2]
  @return(%going, %6, %6)"""
    main = parse_module(text, STANDARD)
    assert main.text() == text
    assert verify(main) == []
    ((state, rows),) = (a.value for a in evaluate_module(main, [np.array(False), np.float32([1, -2])]))
    np.testing.assert_array_equal(state, [4, -8])
    np.testing.assert_array_equal(rows, [[2, -4], [3, -6], [4, -8]])


def test_text_does_not_depend_on_what_ran_before():
    def build() -> str:
        main = Module("main")
        x = main.add_parameter("x", Shape("float", [5]))
        main.add_return([main.add(make("nonzero"), x), main.add(make("nonzero"), x)])
        return main.text()

    first = build()
    dim.fresh("other")
    assert build() == first
    assert "nonzero?1" in first


def test_launches_are_shown_but_not_read():
    program = mgx.parse_program('module main\n  %x = @param["x"] -> float32[2]\n  %1 = relu(%x)\n  @return(%1)')
    main = program.get_main_module()
    relu = main.outputs[0]
    relu.op = mgx.Launch(mgx.Reference(relu.op), relu.op, relu.result)
    assert "%1 = launch[reference relu](%x) -> float32[2]" in main.text()
    with pytest.raises(ParseError, match=r"line 3: expected an op .a launch is made by a target's lowering"):
        parse_module(main.text(), STANDARD)


def test_large_literals_are_named_by_a_digest():
    def build(last: float) -> Module:
        module = Module("main")
        module.add_return([module.add_literal(np.float32([*range(19), last]).reshape(4, 5))])
        return module

    one, other = build(0).text(), build(1).text()
    assert "@literal(<20 elements, digest " in one
    assert one != other
    with pytest.raises(ParseError, match=r"line 2: expected a literal's elements .text.full=True. writes them out"):
        parse_module(one, STANDARD)
    np.testing.assert_array_equal(again(build(7)).outputs[0].get_literal().value[3], [15, 16, 17, 18, 7])


def test_the_text_of_a_nested_module_alone_names_enclosing_values():
    text = """\
module main
  %c = @param["c"] -> bool[]
  %x = @param["x"] -> float32[]
  %1 = if(%c){a, b}
  @return(%1)
module a
  @return(%x)
module b
  @return(%x)"""
    main = parse_module(text, STANDARD)
    inner = main.outputs[0].modules[0]
    assert inner.text() == "module a\n  @return(%outer.0)"


# names


ODD = ["", "1", "x y", 'a"b', "a\\b", "é", "line\nbreak", "a#b", "a,b", "%x", "then.2", "symbol", "module", "-", "`"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_kept(name):
    main = Module("main" if name in ("", "-") else name)
    symbol = dim.symbol(name or "n", 1, 9)
    x = main.add_parameter(name, Shape("float", [symbol, 2]))
    main.add_return([main.add(make("relu"), x, sources=[name] if name else [])])
    read = again(main)
    assert read.name == main.name
    assert list(read.parameters) == [name]
    assert read.parameters[name].result == x.result
    assert read.outputs[0].sources == main.outputs[0].sources


def test_modules_and_parameters_of_one_name_are_distinguished():
    body = Module("m")
    body.add_return([body.add_parameter("x", Shape("float", []))])
    other = Module("m")
    y = other.add_parameter("x", Shape("float", []))
    other.add_return([other.add(make("relu"), y)])
    main = Module("main")
    x = main.add_parameter("x", Shape("float", []))
    first = main.add(make("group", tag="a"), x, modules=[body])
    main.add_return([main.add(make("group", tag="b"), first, modules=[other])])
    text = main.text()
    assert "{m}" in text and "{m.2}" in text
    assert parse_module(text, STANDARD).text() == text


# values


def every_bit_pattern(dtype: DType) -> np.ndarray:
    if dtype.kind == "s":
        return np.array(["", "a b", 'q"\\', "\n\t\0", "é", "\U0001f600", "\ud800", 'b"00"', "1", "none"], object)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.bits < 8:
        return np.arange(1 << dtype.bits).astype(np.int8).astype(dtype.numpy)
    rng = np.random.default_rng(0)
    wild = rng.integers(0, 256, 10 * dtype.size, np.uint8).view(dtype.numpy)
    if dtype.is_integer:
        return np.array([*wild[:8], dtype.lowest, dtype.highest, 0], dtype.numpy)
    if dtype.kind == "f" and dtype.bits > 8:
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 0.1, 1 / 3]).astype(dtype.numpy)
        return np.concatenate([wild, special])
    return wild


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_literals_of_every_type_come_back_bit_by_bit(dtype):
    wild = every_bit_pattern(dtype)
    values = [
        wild,
        wild[:1].reshape(()),
        wild[:0].reshape(0, 3),
        *(wild[i : i + 1] for i in range(len(wild))),
        np.tile(wild, (3, 1)),
    ]
    main = Module("main")
    main.add_return([main.add_literal(v) for v in values])
    for value, got in zip(values, again(main).outputs, strict=True):
        back = got.get_literal().value
        assert back.dtype == value.dtype
        assert back.shape == value.shape
        if dtype.kind == "s":
            assert back.tolist() == value.tolist()
        else:
            assert back.tobytes() == value.tobytes()


def test_literals_of_other_kinds():
    a, b = np.float32([1, 2]), np.array(["x", ")"], object)
    values = [(a, b), [a], (), [], None, (None, [np.arange(40).reshape(2, 20)])]
    main = Module("main")
    main.add_return([main.add_literal(Argument.from_value(v)) for v in values])
    got = [o.get_literal() for o in again(main).outputs]
    assert [g.value for g in got[2:5]] == [(), [], None]
    np.testing.assert_array_equal(got[0].value[0], a)
    assert got[0].value[1].tolist() == b.tolist()
    assert isinstance(got[1].value, list)
    assert got[5].value[0] is None
    np.testing.assert_array_equal(got[5].value[1][0], values[5][1][0])


n, m = dim.symbol("n", 1, 8), dim.symbol("m", 2, 9)
SHAPES = [
    Shape("half", []),
    Shape("float", [0, 2]),
    Shape("float", [2, 3], [1, 2]),
    Shape("float", [2, 3], [0, 0]),
    Shape(
        "bf16", [n, m * n - 3, (n + 3) // 4, dim.maximum(n, m), dim.broadcast(dim.symbol("a"), dim.symbol("b")), n % 3]
    ),
    Shape.unranked(dt.string),
    TupleShape([]),
    TupleShape([Shape("int4", [n]), TupleShape([Shape("bool", [])])]),
    SequenceShape(Shape("double", [3, n])),
    SequenceShape(SequenceShape(Shape.unranked(dt.float32))),
    OptionalShape(SequenceShape(Shape("int8", [dim.maximum(n, 4)]))),
    OptionalShape(TupleShape([Shape("int8", [2]), Shape.unranked(dt.int64)])),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_every_kind(shape):
    main = Module("main")
    main.add_return([main.add_parameter("x", shape)])
    assert again(main).parameters["x"].result == main.parameters["x"].result


# ops

SAMPLES = {
    "int": 1,
    "float": 0.5,
    "bool": True,
    "str": "a",
    "Dim": 1,
    "DType": dt.float16,
    "Shape": Shape("float", [2]),
}


def constructible(cls: type[Operation]) -> Operation | None:
    """Returns the op with its defaults; attributes without a default get a sample of their type."""
    from mgx_core.ops.attributes import MISSING

    given = {}
    for field in cls.fields:
        if field.default is MISSING:
            given[field.name] = () if field.annotation.startswith("tuple") else SAMPLES.get(field.annotation)
            if field.choices:
                given[field.name] = field.choices[-1]
    try:
        return cls(**given)
    except ParameterError:
        return None


OPS = [made for cls in STANDARD if (made := constructible(cls)) is not None]


def test_nearly_all_ops_are_made_by_default():
    assert len(OPS) > 0.9 * len(STANDARD)


@pytest.mark.parametrize("made", OPS, ids=lambda o: o.name)
def test_ops_read_back(made):
    assert parse_op(repr(made), STANDARD) == made


@op("every_kind")
class EveryKind(Operation):
    """One attribute of each type."""

    i: int = -3
    f: float = 1e-5
    fs: tuple[float, ...] = (0.1, float("inf"), -2.0)
    b: bool = False
    s: str = 'a"b\\ \n é'
    raw: bytes = b"\x00\xff"
    raws: tuple[bytes, ...] = (b"", b"a")
    t: DType | None = dt.bfloat16
    ts: tuple[DType, ...] = (dt.bool_, dt.string)
    shape: Shape | None = Shape("float", [2, 2], [1, 2])
    d: Dim = n * m - 3
    ds: tuple[Dim, ...] = (2, -1, dim.maximum(n, m))
    axes: tuple[int, ...] | None = None
    nested: tuple[tuple[int, ...], ...] = ((1, 2), ())

    def infer(self, x: Shape) -> Shape:
        return x


def test_attributes_of_every_kind():
    ops = OpSet.of(EveryKind)
    main = Module("main")
    x = main.add_parameter("x", Shape("float", [n, m]))
    main.add_return([main.add(EveryKind(), main.add(EveryKind(axes=(1, -2), shape=None, t=None), x))])
    read = parse_module(main.text(), ops)
    assert read.text() == main.text()
    assert read.outputs[0].op == EveryKind()
    assert read.outputs[0].inputs[0].op.axes == (1, -2)
    assert read.outputs[0].inputs[0].op.t is None


# random programs


@st.composite
def programs(draw):
    main = Module("main")
    extents = st.sampled_from([1, 2, 3, dim.symbol("n", 1, 8), dim.symbol("k", 2, 4)])
    for index in range(draw(st.integers(1, 3))):
        main.add_parameter(f"p{index}", Shape("float", draw(st.lists(extents, min_size=1, max_size=3))))
    values = list(main.parameters.values())
    for _ in range(draw(st.integers(0, 12))):
        x = draw(st.sampled_from(values))
        kind = draw(
            st.sampled_from(["relu", "add", "mul", "transpose", "unsqueeze", "concat", "slice", "literal", "nonzero"])
        )
        try:
            match kind:
                case "relu":
                    made = main.add(make("relu"), x, sources=draw(st.lists(st.text(), max_size=2)))
                case "add" | "mul":
                    made = main.add(make(kind), x, draw(st.sampled_from(values)))
                case "transpose":
                    made = main.add(make("transpose", permutation=list(range(x.shape.rank))[::-1]), x)
                case "unsqueeze":
                    made = main.add(make("unsqueeze", axes=[0]), x)
                case "concat":
                    made = main.add(make("concat", axis=0), x, draw(st.sampled_from(values)), x)
                case "slice":
                    made = main.add(make("slice", axes=[0], starts=[0], ends=[1]), x)
                case "literal":
                    made = main.add_literal(np.float32(draw(st.lists(st.floats(width=32), max_size=20))))
                case _:
                    made = main.add(make("nonzero"), x)
                    made = main.add(make("convert", target_type=dt.float32), made)
        except MgxError:
            continue
        values.append(made)
    main.add_return(draw(st.lists(st.sampled_from(values), max_size=3)))
    return main


@given(programs())
@settings(max_examples=80, deadline=None)
def test_random_programs_read_back(main):
    read = again(main)
    assert [i.op.name for i in read] == [i.op.name for i in main]
    assert [i.sources for i in read] == [tuple(s for s in i.sources) for i in main]


def test_absent_inputs():
    main = Module("main")
    x = main.add_parameter("x", Shape("float", [4]))
    one = main.add_literal(np.int64([1]))
    main.add_return([main.add(make("slice"), x, one, one, main.add_absent(), one)])
    assert "(%x, %1, %1, -, %1) -> float32[" in main.text()
    got = again(main).outputs[0]
    assert [i.is_absent for i in got.inputs] == [False, False, False, True, False]
    alone = Module("main")
    alone.add(Undefined())
    assert again(alone).outputs[0].is_absent


# errors in a text

HEAD = 'symbol n in 1..4\nmodule main\n  %x = @param["x"] -> float32[n, 3]\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%1 = relu(%y)", "line 4: expected a value defined before, got '%y'"),
        ("%1 = relu(%x", "line 4: expected ',' or .*, got the end of the line"),
        (
            "%1 = relu(%x) -> float32[2, 2]",
            r"line 4: expected float32\[n, 3\] as the result of relu, got 'float32\[2, 2\]'",
        ),
        ("%1 = relu(%x) -> float31[n]", "line 4: expected an element type, got 'float31"),
        ("%1 = relu(%x) -> float32[n, z]", "line 4: expected a symbol that is declared .'n'., got 'z'"),
        ("%1 = relu(%x) -> float32[n, 3)]", "line 4: expected"),
        ("%1 = relu(%x) -> float32[n, 3 3]", "line 4: expected an extent, got '3 3"),
        ("%1 = relu(%x) -> float32[-1, 3]", "line 4: an extent must not be negative"),
        ("%1 = relu(%x)(%x)", "line 4: expected '#', got '.%x.'"),
        ("%1 relu(%x)", "line 4: expected '=', got 'relu"),
        ("%x = relu(%x)", "line 4: expected a new value, %x is defined in this module already"),
        ("relu(%x)", "line 4: expected '%', got 'relu"),
        ("%1 = relu[axis=1](%x)", "line 4: expected an attribute of relu, each once .it has none., got 'axis=1"),
        ("%1 = softmax[axis=x](%x)", "line 4: expected an integer, got 'x"),
        ("%1 = softmax[axis=1, axis=1](%x)", "line 4: expected an attribute of softmax, each once"),
        ("%1 = leaky_relu[alpha=true](%x)", "line 4: expected a number, got 'true"),
        ("%1 = convert[target_type=floaty](%x)", "line 4: expected an element type, got 'floaty"),
        ("%1 = concat[axis=7](%x, %x)", "line 4: concat.*axis"),
        ("%1 = get_tuple_elem(%x)", "line 4: get_tuple_elem needs attribute 'index'"),
        ("%1 = if(%x){a, b}", "line 4: expected the name of a module of this text, got 'a'"),
        ("%1 = group(%x){main}", "line 4: expected a module that does not contain this line, got 'main'"),
        ("%1 = @literal(1, 2) -> float32[3]", "line 4: expected 3 elements of float32, got '1, 2"),
        ("%1 = @literal(1, two) -> float32[2]", "line 4: expected 2 elements of float32"),
        ("%1 = @literal(300) -> int8[]", "line 4: expected 1 elements of int8"),
        ('%1 = @literal(base64 "AAA") -> float32[2]', "line 4: expected 2 elements of float32, got 'base64"),
        ("%1 = @literal(1", "line 4: expected '.', got the end of the line"),
        ("%1 = @literal(1)", "line 4: expected '->' and the literal's shape, got the end"),
        ("%1 = @literal(1) -> float32[n]", "line 4: expected a value of shape"),
        ("%1 = @literal(0) -> float32[99999999999999999999]", "line 4: .*bytes"),
        ('%1 = @param["x"] -> float32[]', "line 4: expected a new parameter, module 'main' has 'x' already"),
        ("@return(%x)\n  @return(%x)", "line 5: expected nothing after @return"),
        ("symbol n", "line 4: expected a new symbol, 'n' is declared"),
        ("symbol m in 4..2", "line 4: .*bounds must satisfy"),
        ("symbol max", "line 4: expected a new symbol"),
        ("module main", "line 4: expected a new module name, 'main' is on line 2"),
        ("module other", "line 4: expected an instruction that runs module 'other', there is none"),
        ("%1 = relu(" + "(" * 10, "line 4: expected '%'"),
        ("%1 = relu(%x) -> " + "(" * 100000, "nested too deeply"),
    ],
)
def test_errors_name_the_line_and_what_was_expected(line, message):
    with pytest.raises(ParseError, match=message):
        parse_module(f"{HEAD}  {line}", STANDARD)


def test_unknown_ops_are_unsupported():
    with pytest.raises(UnsupportedError, match="line 4: no operation is called 'rely'; did you mean 'relu'"):
        parse_module(f"{HEAD}  %1 = rely(%x)", STANDARD)
    with pytest.raises(UnsupportedError, match="line 4: no operation is called 'mine'"):
        parse_module(f"{HEAD}  %1 = mine[a=1](%x)", STANDARD)


@pytest.mark.parametrize("text", ["", "# nothing\n", "symbol n\n"])
def test_a_text_needs_a_module(text):
    with pytest.raises(ParseError, match="expected 'module NAME'"):
        parse_module(text, STANDARD)


def test_text_before_the_first_module():
    with pytest.raises(ParseError, match="line 1: expected 'symbol' or 'module', got '%x"):
        parse_module("%x = relu(%x)", STANDARD)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_text_raises_our_own_errors(data):
    text = (
        HEAD
        + '  %1 = @literal("a", "b") -> string[2]  # s\n  %2 = softmax[axis=-1](%x) -> float32[n, 3]\n  @return(%2)'
    )
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 5))
    new = data.draw(st.text('%@[](){}"`,->=# \n.\\9ax', max_size=4))
    damaged = text[:at] + new + text[at + cut :]
    try:
        read = parse_module(damaged, STANDARD)
    except (ParseError, UnsupportedError):
        return
    assert parse_module(read.text(full=True), STANDARD).text() == read.text()


def test_comments_blank_lines_and_omitted_shapes_are_welcome():
    main = parse_module(
        """
        # a program
        module main      # the first one

        %x = @param["x"] -> float[2]\r
        # in between
        %y = relu(%x)    # source
        @return(%y)
        """,
        STANDARD,
    )
    assert main.outputs[0].sources == ("source",)
    assert main.output_shapes() == [Shape("float", [2])]


def test_programs_are_equal_when_their_texts_are():
    text = HEAD + "  %1 = relu(%x)\n  @return(%1)"
    one, other = mgx.parse_program(text), mgx.parse_program(text)
    assert one == other
    assert one != mgx.parse_program(text.replace("relu", "abs"))
