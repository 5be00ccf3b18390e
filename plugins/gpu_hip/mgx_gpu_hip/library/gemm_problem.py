"""Description of a matrix product, independent of the library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from mgx_core import dtype
from mgx_core.errors import ParameterError
from mgx_core.types.dtype import DType

from .epilogue import Epilogue, check, words

__all__ = ["GemmProblem", "Matrix"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A row-major matrix in memory, in elements.

    ld: leading dimension, from row to row; transposed: rows in memory are the operand's columns; batch_stride: from product to
    product, 0 if all share one; align: alignment of its address in bytes.
    """

    dtype: DType
    ld: int
    transposed: bool = False
    batch_stride: int = 0
    align: int = 256


@dataclass(frozen=True)
class GemmProblem:
    """d[i] = activation(alpha a[i] b[i] + bias + residual) for `batch` values of i.

    a [m, k], b [k, n], d [m, n], residual [m, n] (a Matrix if the epilogue adds one), bias [n] of dtype `bias_dtype`.
    compute: `f32` (float32 sums, TF32 off), `tf32`, `f16` (sums in float16), `f64`, `i32`.
    scaled: sums of 8-bit floats are also multiplied by float32 factors per row (`a_scale` [m]) and per column (`b_scale` [n]).
    Errors: ParameterError for inconsistent extents or leading dimensions.
    """

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    d: Matrix
    batch: int = 1
    residual: Matrix | None = None
    epilogue: Epilogue = ()
    alpha: float = 1.0
    compute: Literal["f32", "tf32", "f16", "f64", "i32"] = "f32"
    bias_dtype: DType | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        check(self.epilogue)
        if min(self.m, self.n, self.k, self.batch) < 1:
            raise ParameterError(
                f"a product requires extents of at least 1, got {self.batch} of {self.m}x{self.n}x{self.k}"
            )
        if ("residual" in self.epilogue) != (self.residual is not None):
            raise ParameterError('a residual requires both "residual" in the epilogue and its Matrix')
        for word, matrix, rows, columns in self._matrices:
            length = rows if matrix.transposed else columns
            if matrix.ld < length:
                raise ParameterError(f"{word} has rows of {length} elements, got ld {matrix.ld}")
        if self.scaled and (self.a.dtype.bits != 8 or not self.a.dtype.is_float or self.batch > 1):
            raise ParameterError("factors per row and column require a single product of 8-bit floats")
        if self.d.transposed or (self.residual is not None and self.residual.transposed):
            raise ParameterError("d and the residual must not be transposed; exchange a and b instead")

    @property
    def _matrices(self) -> list[tuple[str, Matrix, int, int]]:
        found = [("a", self.a, self.m, self.k), ("b", self.b, self.k, self.n), ("d", self.d, self.m, self.n)]
        return found + ([("residual", self.residual, self.m, self.n)] if self.residual is not None else [])

    @classmethod
    def packed(
        cls, m: int, n: int, k: int, of: DType = dtype.float16, *, batch: int = 1, a_transposed: bool = False,
        b_transposed: bool = False, b_shared: bool = False, epilogue: Epilogue = (), **more: Any,
    ) -> GemmProblem:  # fmt: skip
        """Returns the problem with contiguous matrices; b_shared: one b for the whole batch."""
        stride = (lambda size: size) if batch > 1 else (lambda size: 0)
        d = Matrix(of, n, batch_stride=stride(m * n))
        return cls(
            m, n, k,
            a=Matrix(of, m if a_transposed else k, a_transposed, stride(m * k)),
            b=Matrix(of, k if b_transposed else n, b_transposed, 0 if b_shared else stride(k * n)),
            d=d, batch=batch, residual=d if "residual" in epilogue else None, epilogue=epilogue, **more,
        )  # fmt: skip

    @cached_property
    def folded(self) -> GemmProblem:
        """Folds the batch into the rows of one product, if b is shared and the other operands are contiguous across the batch."""
        rows = [self.a, self.d, *([self.residual] if self.residual is not None else [])]
        if (
            self.batch == 1
            or self.b.batch_stride
            or self.a.transposed
            or any(x.batch_stride != self.m * x.ld for x in rows)
        ):
            return self
        alone = [replace(x, batch_stride=0) for x in rows]
        return replace(
            self, m=self.m * self.batch, batch=1, a=alone[0], d=alone[1], residual=alone[2] if len(alone) > 2 else None
        )

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def tf32(self) -> bool:
        return self.compute == "tf32"

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        sides = ("T" if self.a.transposed else "N") + ("T" if self.b.transposed else "N")
        scaled = "+scale" if self.scaled else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {sides} {self.a.dtype.name}{scaled}{words(self.epilogue)}"
