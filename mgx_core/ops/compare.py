"""Elementwise comparisons, tests and logic; results are bool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..types import dtype as dt
from ..types.dtype import DType
from ..types.shape import Shape
from .declaration import op
from .elementwise import Pointwise
from .scalar import Expr, attr, call, x0, x1

__all__ = [
    "Equal", "Greater", "GreaterOrEqual", "Isinf", "Isnan", "Less", "LessOrEqual", "LogicalAnd", "LogicalOr",
    "LogicalXor", "Not", "NotEqual", "Predicate",
]  # fmt: skip


class Predicate(Pointwise):
    """Base of the pointwise ops that answer yes or no."""

    __slots__ = ()

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return dt.bool_


@op("equal")
class Equal(Predicate):
    """x0 == x1.  Source: ONNX Equal-19."""

    scalar: ClassVar[Expr] = call("eq", x0, x1)
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biufcs"


@op("not_equal")
class NotEqual(Predicate):
    """x0 != x1."""

    scalar: ClassVar[Expr] = call("ne", x0, x1)
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biufcs"


@op("greater")
class Greater(Predicate):
    """x0 > x1.  Source: ONNX Greater-13."""

    scalar: ClassVar[Expr] = x0 > x1
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biuf"


@op("greater_or_equal")
class GreaterOrEqual(Predicate):
    """x0 >= x1.  Source: ONNX GreaterOrEqual-16."""

    scalar: ClassVar[Expr] = x0 >= x1
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biuf"


@op("less")
class Less(Predicate):
    """x0 < x1.  Source: ONNX Less-13."""

    scalar: ClassVar[Expr] = x0 < x1
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biuf"


@op("less_or_equal")
class LessOrEqual(Predicate):
    """x0 <= x1.  Source: ONNX LessOrEqual-16."""

    scalar: ClassVar[Expr] = x0 <= x1
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "biuf"


@op("isnan")
class Isnan(Predicate):
    """True where x0 is NaN.  Source: ONNX IsNaN-20."""

    scalar: ClassVar[Expr] = call("isnan", x0)
    accepts: ClassVar[str] = "f"


@op("isinf")
class Isinf(Predicate):
    """True where x0 is an infinity of a selected sign.  Source: ONNX IsInf-20."""

    detect_negative: bool = True
    detect_positive: bool = True
    scalar: ClassVar[Expr] = call(
        "logical_and",
        call("isinf", x0),
        call(
            "logical_or",
            call("logical_and", x0 > 0, attr("detect_positive")),
            call("logical_and", x0 < 0, attr("detect_negative")),
        ),
    )
    accepts: ClassVar[str] = "f"


@op("logical_and")
class LogicalAnd(Predicate):
    """Both.  Source: ONNX And-7."""

    scalar: ClassVar[Expr] = call("logical_and", x0, x1)
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "b"


@op("logical_or")
class LogicalOr(Predicate):
    """Either.  Source: ONNX Or-7."""

    scalar: ClassVar[Expr] = call("logical_or", x0, x1)
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "b"


@op("logical_xor")
class LogicalXor(Predicate):
    """Exactly one.  Source: ONNX Xor-7."""

    scalar: ClassVar[Expr] = call("logical_xor", x0, x1)
    arity: ClassVar[int] = 2
    accepts: ClassVar[str] = "b"


@op("not")
class Not(Predicate):
    """The other truth value.  Source: ONNX Not-1."""

    scalar: ClassVar[Expr] = call("logical_not", x0)
    accepts: ClassVar[str] = "b"
