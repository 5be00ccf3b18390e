"""Ops that the frontend composes, folds or never creates, each with an equivalent ONNX graph."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..known import OPS

if TYPE_CHECKING:
    from .question import Question

__all__ = ["direct"]

make = OPS.make


def asked(name: str, op: Any, inputs: Any, body: str, opset: int = 18) -> Question:
    """Returns an op and the equivalent nodes from ``x0``, ``x1``, ... to ``y``."""
    import onnx

    from .question import Question

    text = f'<ir_version: 9, opset_import: ["": {opset}]> g (float x0) => (float y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    del model.graph.input[:], model.graph.output[:]
    for n, value in enumerate(inputs):
        model.graph.input.append(declared(f"x{n}", value))
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info("y"))
    return Question(f"op_{name}", model, tuple(inputs), op)


def declared(name: str, value: Any) -> Any:
    import onnx

    def kind(array: Any) -> int:
        return int(
            onnx.TensorProto.STRING if array.dtype == object else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        )

    if isinstance(value, list):
        element = onnx.helper.make_tensor_type_proto(kind(value[0]), None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(element))
    return onnx.helper.make_tensor_value_info(name, kind(value), value.shape)


def normal(name: str, *dims: int) -> Any:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(dims).astype(np.float32)


def direct() -> Iterator[Question]:
    """Yields all of them."""
    x, y = normal("x", 3, 4), normal("y", 4, 5)
    positive = np.abs(x) + np.float32(0.1)
    yield asked("expm1", make("expm1"), [x], "one = Constant <value = float {1.0}> () e = Exp (x0) y = Sub (e, one)")
    yield asked(
        "log1p", make("log1p"), [positive], "one = Constant <value = float {1.0}> () s = Add (x0, one) y = Log (s)"
    )
    yield asked(
        "log2",
        make("log2"),
        [positive],
        "two = Constant <value = float {2.0}> () a = Log (x0) b = Log (two) y = Div (a, b)",
    )
    yield asked("log_sigmoid", make("log_sigmoid"), [4 * x], "s = Sigmoid (x0) y = Log (s)")
    yield asked("trunc", make("trunc"), [9 * x], "a = Abs (x0) f = Floor (a) s = Sign (x0) y = Mul (f, s)")
    yield asked("identity", make("identity"), [x], "y = Identity (x0)")
    small = np.array([[1, 2], [3, 3]])
    yield asked("not_equal", make("not_equal"), [small, small.T.copy()], "e = Equal (x0, x1) y = Not (e)")
    for equation, inputs in {
        "ij,jk->ik": [x, y], "ij->ji": [x], "ij->": [x], "ii->i": [normal("s", 4, 4)], "i,j->ij": [x[0], y[0]],
        "...ij,...jk->...ik": [normal("b", 2, 3, 4), y[None]], "ij,jk,kl->il": [x, y, normal("z", 5, 2)], "ij,ij": [x, x],
    }.items():  # fmt: skip
        operands = ", ".join(f"x{n}" for n in range(len(inputs)))
        word = equation.replace("->", "_to_").replace(",", "_").replace("...", "x").rstrip("_")
        yield asked(
            f"einsum_{word}",
            make("einsum", equation=equation),
            inputs,
            f'y = Einsum <equation = "{equation}"> ({operands})',
        )
    for k in (-1, 0, 2):
        yield asked(f"eye_like_{k}".replace("-", "minus"), make("eye_like", k=k), [x], f"y = EyeLike <k = {k}> (x0)")
    truth = np.random.default_rng(1).random((3, 4, 2)) > 0.6
    dims = "a = Constant <value = int64[1] {1}> ()"
    yield asked("reduce_any", make("reduce_any", axes=(1,)), [truth], f"{dims} y = ReduceMax (x0, a)", 20)
    yield asked("reduce_all", make("reduce_all", axes=(1,)), [truth], f"{dims} y = ReduceMin (x0, a)", 20)
    yield from moved(x)
    yield from sequences(x)


def moved(x: Any) -> Iterator[Question]:
    """Yields ops that move data, as slices, transpositions, expansions."""

    def constant(name: str, *values: int) -> str:
        return f"{name} = Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()"

    back = " ".join((constant("s", -1), constant("e", -9), constant("a", 1), constant("t", -1)))
    yield asked("reverse", make("reverse", axes=(1,)), [x], f"{back} y = Slice (x0, s, e, a, t)")
    every = " ".join((constant("s", 0), constant("e", 9), constant("a", 1), constant("t", 2)))
    yield asked("step", make("step", axes=(1,), steps=(2,)), [x], f"{every} y = Slice (x0, s, e, a, t)")
    yield asked("contiguous", make("contiguous"), [x], "y = Identity (x0)")
    yield asked("layout", make("layout", permutation=(1, 0)), [x], "y = Identity (x0)")
    yield asked("reshape_lazy", make("reshape_lazy", dims=(2, 6)), [x], f"{constant('d', 2, 6)} y = Reshape (x0, d)")
    yield asked(
        "scalar", make("scalar", scalar_bcst_dims=(2, 3)), [x[:1, 0]], f"{constant('d', 2, 3)} y = Expand (x0, d)"
    )
    body = f"{constant('a', 0, 2)} {constant('d', 2, 4, 5)} u = Unsqueeze (x0, a) y = Expand (u, d)"
    yield asked("broadcast", make("broadcast", axis=1, out_lens=(2, 4, 5)), [x[0]], body)
    yield asked("fill", make("fill"), [np.float32(2.5), x], "d = Shape (x1) y = Expand (x0, d)")
    body = f"{constant('d', 2, 3, 4)} y = Expand (x0, d)"
    yield asked("broadcast_for_dot", make("broadcast_for_dot"), [x, normal("o", 2, 4, 6)], body)
    padded = f"{constant('p', 0, 0, 1, 2)} y = Pad (x0, p)"
    yield asked("fixed_pad", make("fixed_pad", output_lens=(4, 6)), [x], padded)
    yield asked("scan_slice", make("scan_slice", axis=1), [x, np.array([2])], "y = Gather <axis = 1> (x0, x1)")
    yield asked("capture", make("capture"), [x], "y = Identity (x0)")
    totals = np.cumsum(np.abs(x), axis=1)
    body = ("n = Constant <value = int64[1] {-1}> () c = Gather <axis = 1> (x0, n) p = Mul (x1, c) "
            "a = Constant <value = int64[1] {2}> () "
            "q = Unsqueeze (p, a) b = Constant <value = int64[1] {1}> () t = Unsqueeze (x0, b) l = LessOrEqual (t, q) "
            "i = Cast <to = 6> (l) y = ReduceSum <keepdims = 0> (i, a)")  # fmt: skip
    draws = np.random.default_rng(2).uniform(0, 0.99, (3, 7)).astype(np.float32)
    yield asked("multinomial", make("multinomial"), [totals, draws], body)
    nothing = np.array(False)
    yield asked("dropout", make("dropout"), [x, np.float32(0.5), nothing], "y = Dropout (x0, x1, x2)")
    packed = np.random.default_rng(3).integers(0, 255, (2, 3), dtype=np.uint8)
    split = ("m = Constant <value = int64[1] {%d}> () c = Cast <to = 7> (x0) w = Constant <value = int64[%d] {%s}> () "
             "a = Constant <value = int64[1] {-1}> () u = Unsqueeze (c, a) d = Div (u, w) r = Mod (d, m) "
             "s = Constant <value = int64[2] {2, -1}> () f = Reshape (r, s) y = Cast <to = 2> (f)")  # fmt: skip
    for bits in (1, 2, 4):
        powers = [1 << (bits * n) for n in range(8 // bits)]
        body = split % (1 << bits, len(powers), ", ".join(map(str, powers)))
        yield asked(f"unpack_bits_{bits}", make("unpack_bits", bits=bits), [packed], body)
    yield asked("unpack_int4", make("unpack_int4"), [packed], body)
    table = np.random.default_rng(4).permutation(256).astype(np.uint8)
    codes = np.random.default_rng(5).integers(-128, 128, (3, 5), dtype=np.int8)
    for name, given, least in (("uint8", codes.view(np.uint8), 0), ("int8", codes, -128)):
        body = f"{constant('l', least)} c = Cast <to = 7> (x0) p = Sub (c, l) y = Gather (x1, p)"
        yield asked(f"byte_map_{name}", make("byte_map"), [given, table], body)


def sequences(x: Any) -> Iterator[Question]:
    """Yields ops on sequences that the ONNX tests cover only in combination."""
    items = [x, x + 1, x * 2]
    yield asked("sequence_erase", make("sequence_erase"), [items, np.array(1)], "y = SequenceErase (x0, x1)")
    yield asked("sequence_erase_last", make("sequence_erase"), [items], "y = SequenceErase (x0)")
    yield asked(
        "concat_from_sequence", make("concat_from_sequence", axis=1), [items], "y = ConcatFromSequence <axis = 1> (x0)"
    )
    op = make("concat_from_sequence", axis=0, new_axis=True)
    yield asked("stack_from_sequence", op, [items], "y = ConcatFromSequence <axis = 0, new_axis = 1> (x0)")
