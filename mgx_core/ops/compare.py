"""Elementwise comparisons, tests and logic; results are bool."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import dtype as dt
from ..types.dtype import DType
from ..types.shape import Shape
from .declaration import op
from .elementwise import Pointwise
from .scalar import attr, call, x0, x1

__all__ = [
    "Equal", "Greater", "GreaterOrEqual", "Isinf", "Isnan", "Less", "LessOrEqual", "LogicalAnd", "LogicalOr",
    "LogicalXor", "Not", "NotEqual", "Predicate",
]  # fmt: skip


class Predicate(Pointwise):
    """Base of the pointwise ops with a bool result."""

    __slots__ = ()

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return dt.bool_


@op("equal", scalar=call("eq", x0, x1), accepts="biufcs")
class Equal(Predicate):
    """x0 == x1.  Source: ONNX Equal-19."""


@op("not_equal", scalar=call("ne", x0, x1), accepts="biufcs")
class NotEqual(Predicate):
    """x0 != x1."""


@op("greater", scalar=x0 > x1, accepts="biuf")
class Greater(Predicate):
    """x0 > x1.  Source: ONNX Greater-13."""


@op("greater_or_equal", scalar=x0 >= x1, accepts="biuf")
class GreaterOrEqual(Predicate):
    """x0 >= x1.  Source: ONNX GreaterOrEqual-16."""


@op("less", scalar=x0 < x1, accepts="biuf")
class Less(Predicate):
    """x0 < x1.  Source: ONNX Less-13."""


@op("less_or_equal", scalar=x0 <= x1, accepts="biuf")
class LessOrEqual(Predicate):
    """x0 <= x1.  Source: ONNX LessOrEqual-16."""


@op("isnan", scalar=call("isnan", x0), accepts="f")
class Isnan(Predicate):
    """True where x0 is NaN.  Source: ONNX IsNaN-20."""


@op(
    "isinf",
    scalar=call(
        "logical_and",
        call("isinf", x0),
        call(
            "logical_or",
            call("logical_and", x0 > 0, attr("detect_positive")),
            call("logical_and", x0 < 0, attr("detect_negative")),
        ),
    ),
    accepts="f",
)
class Isinf(Predicate):
    """True where x0 is an infinity of a selected sign.  Source: ONNX IsInf-20."""

    detect_negative: bool = True
    detect_positive: bool = True


@op("logical_and", scalar=call("logical_and", x0, x1), accepts="b")
class LogicalAnd(Predicate):
    """x0 and x1.  Source: ONNX And-7."""


@op("logical_or", scalar=call("logical_or", x0, x1), accepts="b")
class LogicalOr(Predicate):
    """x0 or x1.  Source: ONNX Or-7."""


@op("logical_xor", scalar=call("logical_xor", x0, x1), accepts="b")
class LogicalXor(Predicate):
    """x0 != x1 for bools.  Source: ONNX Xor-7."""


@op("not", scalar=call("logical_not", x0), accepts="b")
class Not(Predicate):
    """Logical negation.  Source: ONNX Not-1."""
