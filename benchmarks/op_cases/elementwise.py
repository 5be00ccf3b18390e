"""Cases of elementwise operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from .case import Case, floats, ints, normal, one, positive, whole


def elementwise() -> Iterator[Case]:
    """Yields elementwise functions, broadcasts, casts and quantizations."""
    yield from _functions()
    yield from _casts()
    yield from _quantizations()


def _functions() -> Iterator[Case]:
    """Yields functions of one element or several, and broadcasts."""
    x = normal(256, 1024)
    for op in ("Erf", "Mish", "Tanh", "Sigmoid", "Exp", "Softplus", "Softsign", "Elu", "Selu", "HardSwish", "HardSigmoid", "LeakyRelu", "Sin", "Cos",
               "Tan", "Atan", "Sinh", "Asinh", "Floor", "Round", "Abs", "Neg", "Sign", "IsNaN", "Celu", "ThresholdedRelu", "Reciprocal"):  # fmt: skip
        yield one(op, "(256, 1024)", x, opset=22)
    for op in ("Sqrt", "Log"):
        yield one(op, "(256, 1024)", positive(256, 1024))
    for op in ("Asin", "Acos", "Atanh"):
        yield one(op, "(256, 1024)", positive(256, 1024) * np.float32(0.9))
    for kind in ("none", "tanh"):
        yield one("Gelu", kind, x, approximate=kind)
    for op in ("Erf", "Tanh", "Exp", "Log", "Sqrt", "Sin"):
        yield one(op, "float64", positive(256, 256).astype(np.float64))
    for op in ("Add", "Mul", "Div", "Pow", "Max"):
        for a, b in (
            ((256, 1024), (256, 1024)),
            ((256, 1024), (1024,)),
            ((256, 1024), (256, 1)),
            ((64, 1, 64, 32), (64, 64, 1)),
            ((8, 64, 28, 28), (64, 1, 1)),
            ((1000, 1), (1000,)),
        ):
            yield one(op, f"{a} {b}", positive(*a), positive(*b))
    for dtype in (np.int64, np.int32, np.uint8, np.float16, np.float64):
        for op in ("Add", "Mul", "Div", "Mod", "Less", "Equal"):
            if op in ("Add", "Div") or dtype in (np.int64, np.uint8):
                given = [whole(100, 256, 1024, dtype=dtype, low=1) for _ in range(2)]
                yield one(op, f"{dtype.__name__} (256, 1024)", *given)
    yield one("Mod", "fmod float", x, positive(256, 1024), fmod=1)
    yield one("Pow", "x^3", x, floats(3.0), constants=[1])
    yield one("Pow", "int64^2", whole(9, 256, 1024), ints(2), constants=[1])
    yield one("And", "(512, 1024)", whole(2, 512, 1024, dtype=bool), whole(2, 512, 1024, dtype=bool))
    yield one("Not", "(512, 1024)", whole(2, 512, 1024, dtype=bool))
    yield one("Xor", "(512, 1024) (512, 1)", whole(2, 512, 1024, dtype=bool), whole(2, 512, 1, dtype=bool))
    yield one(
        "BitShift",
        "uint8",
        whole(255, 512, 1024, dtype=np.uint8),
        whole(7, 512, 1024, dtype=np.uint8),
        direction="LEFT",
    )
    yield one("BitwiseAnd", "int32", whole(255, 512, 1024, dtype=np.int32), whole(255, 512, 1024, dtype=np.int32))
    yield one("Clip", "float", x, floats(-1.0)[0], floats(1.0)[0], constants=[1, 2])
    yield one("Clip", "int64", whole(9, 512, 1024), np.int64(2), np.int64(5), constants=[1, 2])
    yield one("PRelu", "channels", normal(4, 64, 56, 56), normal(64, 1, 1), constants=[1])
    yield one("Sum", "4", x, x + 1, x + 2, x + 3)
    yield one("Mean", "3", x, x + 1, x + 2)


def _casts() -> Iterator[Case]:
    """Yields Cast."""
    kinds = {
        np.float32: TensorProto.FLOAT,
        np.float16: TensorProto.FLOAT16,
        np.int64: TensorProto.INT64,
        np.int32: TensorProto.INT32,
    }
    kinds |= {
        np.uint8: TensorProto.UINT8,
        bool: TensorProto.BOOL,
        np.float64: TensorProto.DOUBLE,
        np.int8: TensorProto.INT8,
    }
    for a in kinds:
        for b in kinds:
            if a != b and {a, b} & {np.float32, np.int64, np.uint8}:
                yield one("Cast", f"{a.__name__} {b.__name__}", whole(2, 512, 1024, dtype=a), to=kinds[b])
    yield one("Cast", "float32 bfloat16", normal(256, 1024), to=TensorProto.BFLOAT16)


def _quantizations() -> Iterator[Case]:
    """Yields QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""
    x = normal(256, 1024)
    for dtype in (np.uint8, np.int8):
        zero = np.array(3, dtype)
        yield one("QuantizeLinear", f"{dtype.__name__}", x, floats(0.05)[0], zero, constants=[1, 2])
        yield one(
            "DequantizeLinear",
            f"{dtype.__name__}",
            whole(100, 512, 1024, dtype=dtype),
            floats(0.05)[0],
            zero,
            constants=[1, 2],
        )
        zeros = whole(5, 64, dtype=dtype)
        yield one(
            "QuantizeLinear",
            f"{dtype.__name__} channels",
            normal(4, 64, 28, 28),
            positive(64),
            zeros,
            constants=[1, 2],
            axis=1,
        )
        yield one(
            "DequantizeLinear",
            f"{dtype.__name__} channels",
            whole(100, 4, 64, 28, 28, dtype=dtype),
            positive(64),
            zeros,
            constants=[1, 2],
            axis=1,
        )
    yield one("QuantizeLinear", "int16", x, floats(0.05)[0], np.array(0, np.int16), constants=[1, 2])
    yield one("DynamicQuantizeLinear", "(256, 1024)", x, outputs=3)
