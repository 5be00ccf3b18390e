from __future__ import annotations

import copy
import pickle
from typing import ClassVar, Literal

import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError, UnsupportedError
from mgx_core.ops.declaration import op
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.operation import Operation
from mgx_core.ops.opset import OpSet
from mgx_core.ops.scalar import Expr, attr, x0, x1
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape, Shape

n = dim.symbol("n", 1, 8)
S = Shape("float", [2, 3])


@op("many")
class Many(Operation):
    """One attribute of each kind."""

    count: int
    scale: float = 1.0
    flag: bool = False
    word: str = "a"
    raw: bytes = b""
    extent: Dim = 1
    to: DType = dt.float32
    kind: AnyShape | None = None
    axes: tuple[int, ...] = ()
    lens: tuple[Dim, ...] = ()
    pairs: tuple[tuple[int, ...], ...] = ()
    maybe: float | None = None
    mode: Literal["up", "down"] = "up"
    note: ClassVar[str] = "no attribute"

    def infer(self, x: Shape, y: Shape | None = None, *rest: Shape) -> Shape:
        return x


@op("window")
class Window(Operation):
    size: int = 1

    def infer(self, x: Shape, scale: Shape | None = None) -> Shape:
        if x.rank != 2:
            raise ShapeError(f"x must have rank 2, got {x.rank}")
        return x

    def compute(self, x, scale=None):
        return x * self.size


@op("scaled_add", scalar=x0 + attr("alpha") * x1, accepts="f")
class ScaledAdd(Pointwise):
    alpha: float = 2.0


@op("child")
class Child(Window):
    more: int = 0

    def compute(self, x, scale=None):
        return super().compute(x, scale) + self.more


@op("grandchild")
class Grandchild(Child):
    def compute(self, x, scale=None):
        return -super().compute(x, scale)


def test_attributes_and_defaults():
    made = Many(count=np.int64(3), axes=[1, np.int32(2)], lens=[n, 2, "n+1"], to="half", pairs=[[1], [2, 3]])
    assert made.attributes() == {
        "count": 3,
        "scale": 1.0,
        "flag": False,
        "word": "a",
        "raw": b"",
        "extent": 1,
        "to": dt.float16,
        "kind": None,
        "axes": (1, 2),
        "lens": (n, 2, dim.symbol("n") + 1),
        "pairs": ((1,), (2, 3)),
        "maybe": None,
        "mode": "up",
    }
    assert type(made.count) is int
    assert type(Many(count=1, scale=2).scale) is float
    assert made.note == "no attribute"
    assert [f.name for f in Many.fields][:3] == ["count", "scale", "flag"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, r"many needs attribute 'count' \(int\)"),
        ({"count": 1.0}, "attribute 'count' must be int, got 1.0"),
        ({"count": True}, "attribute 'count' must be int, got True"),
        ({"count": 1, "scale": "2"}, "attribute 'scale' must be float, got '2'"),
        ({"count": 1, "flag": 2}, "attribute 'flag' must be bool, got 2"),
        ({"count": 1, "word": b"a"}, "attribute 'word' must be str"),
        ({"count": 1, "raw": "a"}, "attribute 'raw' must be bytes"),
        ({"count": 1, "axes": 3}, r"attribute 'axes' must be tuple\[int, \.\.\.\], got 3"),
        ({"count": 1, "axes": [1.5]}, "attribute 'axes'"),
        ({"count": 1, "lens": ["n+"]}, "attribute 'lens'"),
        ({"count": 1, "to": "float33"}, "attribute 'to' must be DType"),
        ({"count": 1, "kind": 3}, "attribute 'kind'"),
        ({"count": 1, "mode": "left"}, "attribute 'mode' must be one of 'up', 'down', got 'left'"),
        ({"count": 1, "scael": 2.0}, "has no attribute 'scael'; did you mean 'scale'"),
        ({"count": 1, "zzz": 2.0}, "has no attribute 'zzz'; it has count, scale"),
    ],
)
def test_bad_attributes(attributes, message):
    with pytest.raises(ParameterError, match=message):
        Many(**attributes)


def test_ops_are_values():
    a, b = Window(size=3), Window(size=3)
    assert a == b
    assert hash(a) == hash(b)
    assert a != Window(size=4)
    assert a != Child(size=3)
    assert a.replace(size=4) == Window(size=4)
    assert copy.deepcopy(a) is a
    with pytest.raises(AttributeError, match=r"window is immutable; make another with replace\(size=...\)"):
        a.size = 5
    with pytest.raises(AttributeError):
        a.other = 5
    with pytest.raises(TypeError, match="save_buffer"):
        pickle.dumps(a)


def test_zeros_of_different_signs_are_different_attributes():
    assert Many(count=1, scale=0.0) == Many(count=1, scale=0.0)
    assert Many(count=1, scale=0.0) != Many(count=1, scale=-0.0)


def test_inherited_attributes_come_first():
    assert [f.name for f in Child.fields] == ["size", "more"]
    assert Child(size=2, more=1).attributes() == {"size": 2, "more": 1}
    assert not hasattr(Child(), "__dict__")


def test_methods_call_those_of_the_class_that_they_derive_from():
    assert Child(size=2, more=1).evaluate([np.float32(3)]) == 7
    assert Grandchild(size=2, more=1).evaluate([np.float32(3)]) == -7


def test_expressions_determine_the_number_of_inputs():
    assert (ScaledAdd.arity, len(ScaledAdd.inputs)) == (2, 2)
    with pytest.raises(ShapeError, match="takes 2 inputs"):
        ScaledAdd().result([S])
    with pytest.raises(ParameterError, match="accepts is for ops derived from Pointwise; infer refuses"):
        op("strange", accepts="f")(type("Strange", (Window,), {}))
    with pytest.raises(ParameterError, match="scalar is for ops derived from Pointwise; compute defines others"):
        op("strange", scalar=x0)(type("Strange", (Window,), {}))


def test_ops_of_a_class_that_states_its_expression_keep_it():
    class Twice(Pointwise):
        scalar: ClassVar[Expr] = x0 + x0

    made = op("twice")(Twice)
    assert made.arity == 1
    assert made().evaluate([np.float32(3)]) == 6


def test_text():
    assert str(Window(size=3)) == "window[size=3]"
    made = Many(count=1, word='say "hi"\n', raw=b"\1\xff", axes=(1, 2), lens=(n, 2), maybe=0.5, flag=True)
    assert 'word="say \\"hi\\"\\n"' in str(made)
    assert 'raw=b"01ff"' in str(made)
    assert "axes=[1, 2], lens=[n, 2]" in str(made)
    assert "flag=true" in str(made)
    assert "kind=none" in str(made)


def test_inputs_come_from_the_shape_rule():
    assert [tuple(i) for i in Many.inputs] == [("x", False, False), ("y", True, False), ("rest", False, True)]
    assert [i.name for i in ScaledAdd.inputs] == ["x0", "x1"]
    Many(count=1).result([S] * 5)
    with pytest.raises(ShapeError, match=r"window takes 1 to 2 inputs \(x, scale\?\), got 3"):
        Window().result([S, S, S])
    with pytest.raises(ShapeError, match=r"scaled_add takes 2 inputs \(x0, x1\), got 1"):
        ScaledAdd().result([S])
    with pytest.raises(ShapeError, match=r"many takes 1 or more inputs \(x, y\?, \*rest\), got 0"):
        Many(count=1).result([])


def test_errors_of_shape_rules_name_the_op_and_its_inputs():
    with pytest.raises(ShapeError) as caught:
        Window(size=3).result([Shape("float", [2]), None])
    assert str(caught.value) == "window[size=3](float32[2], -): x must have rank 2, got 1"


def test_symbols_in_attributes_are_substituted():
    made = Many(count=1, extent=n + 1, lens=(n, 3), kind=Shape("int8", [n]))
    got = made.substitute({"n": 4})
    assert (got.extent, got.lens, got.kind) == (5, (4, 3), Shape("int8", [4]))
    assert made.substitute({"other": 4}) is made


def test_evaluation():
    assert Window(size=3).evaluate([np.float32([1, 2])]).tolist() == [3, 6]
    with pytest.raises(UnsupportedError, match="many has no reference compute"):
        Many(count=1).evaluate([1])


def test_pointwise_ops():
    add = ScaledAdd(alpha=0.5)
    assert add.result([S, S]) == S
    assert add.result([Shape("float", [n]), Shape("float", [3])]).rank == 1
    half = np.array([1, 2], np.float16)
    got = add.evaluate([half, half])
    assert (got.dtype, got.tolist()) == (np.float16, [1.5, 3])
    for inputs, message in [
        ([S, Shape("float", [3, 2])], r"equal dims, got \[2, 3\] and \[3, 2\] \(input 1\)"),
        ([S, Shape("double", [2, 3])], "share one type, got float32 and float64"),
        ([Shape("int8", [2]), Shape("int8", [2])], "input 0 must not be of type int8"),
        ([Shape("float", [n]), Shape("float", [9])], "equal dims"),
    ]:
        with pytest.raises(ShapeError, match=message):
            add.result(inputs)


def test_strided_operands_give_row_major_results():
    assert ScaledAdd().result([Shape("float", [2, 3], [1, 2]), S]) == S


def test_unknown_annotations_are_refused_where_declared():
    with pytest.raises(ParameterError, match=r"op strange: attribute bad has type dict\[str, int\]"):

        @op("strange")
        class Strange(Operation):
            bad: dict[str, int]

            def infer(self, x: Shape) -> Shape:
                return x


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (int, "s", "must be int, got 's'"),
        (tuple[int, ...], (1, 2.5), r"must be tuple\[int, \.\.\.\], got \(1, 2.5\)"),
        (Literal["a", "b"], "c", "must be one of 'a', 'b', got 'c'"),
    ],
)
def test_defaults_of_another_type_are_refused_where_declared(annotation, default, message):
    members = {"__annotations__": {"bad": annotation}, "bad": default, "infer": lambda self, x: x}
    with pytest.raises(ParameterError, match=f"op strange: the default of attribute bad {message}"):
        op("strange")(type("Strange", (Operation,), members))


def test_op_sets():
    ops = OpSet.of(Window, Many)
    assert ops.make("window", size=2) == Window(size=2)
    assert ops.names() == ["many", "window"]
    assert "window" in ops
    assert len(ops | OpSet.of(Child, Window)) == 3
    assert ops.get("nothing") is None
    with pytest.raises(UnsupportedError, match="no operation is called 'windov'; did you mean 'window'"):
        ops.make("windov")
    with pytest.raises(ParameterError, match="has no attribute 'sise'"):
        ops.make("window", sise=2)

    @op("window")
    class Other(Operation):
        def infer(self, x: Shape) -> Shape:
            return x

    with pytest.raises(ParameterError, match=r"two ops are called 'window': .*Window and .*Other"):
        _ = ops | OpSet.of(Other)
