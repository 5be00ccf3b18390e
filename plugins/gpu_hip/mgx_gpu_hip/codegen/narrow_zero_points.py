"""Zero-point corrections of low-precision products."""

from __future__ import annotations

from dataclasses import dataclass

from mgx_core import dtype as dt

from .geometry import decompose, offset_code
from .narrow_operands import Product
from .source import Tensor, storage_type

__all__ = ["ZeroPoints"]


@dataclass(frozen=True)
class ZeroPoints:
    """(x - p)(w - q) = x w - p 1 w - x 1 q + k p q: the zero points of x and w, and the column sums of w if known.

    Matrix units for int8 only take uint8 less 128, which requires the other operand's sums, too; the source tests for that at
    compile time.
    """

    p: Product
    sums: Tensor | None
    x_zero: Tensor | None
    w_zero: Tensor | None

    @property
    def of_columns(self) -> bool:
        """True if the column sums of w are required."""
        return self.p.x.dtype.is_integer and (self.x_zero is not None or self.p.x.dtype is dt.uint8)

    @property
    def of_rows(self) -> bool:
        """True if the row sums of x are required."""
        return self.p.x.dtype.is_integer and (self.w_zero is not None or self.p.w.dtype is dt.uint8)

    @property
    def summed(self) -> bool:
        """True if the kernel itself computes the column sums of w."""
        return self.of_columns and self.sums is None

    @property
    def group(self) -> str:
        """Expression that adds the first column of a group of channels."""
        return f" + blockIdx.z * {self.p.columns}u" if self.p.windows is not None else ""

    def without_bias(self, which: str, zero: str) -> str:
        """Returns a zero point as the units see it, less 128 if they take uint8 that way; which: x or w."""
        of = self.p.x.dtype if which == "x" else self.p.w.dtype
        return f"{zero} - nfrag_bias<{storage_type(of)}>()"

    def zero_of_x(self, row: str) -> list[str]:
        """Returns statements that declare zero_x, the zero point of a row of x."""
        z = self.x_zero
        if z is None:
            return ["const i32 zero_x = 0;"]
        if not any(z.strides):
            return ["const i32 zero_x = p3[0];"]
        return [
            f"u32 zr = {row};",
            f"zr = zr < {self.p.rows}u ? zr : {self.p.rows - 1}u;",
            *self.along_rows(z),
        ]

    def along_rows(self, z: Tensor) -> list[str]:
        """Returns the zero point of row `zr`, which depends on the batch, too."""
        batch = len(self.p.batch)
        setup, names = decompose("zr", z.lens[batch:-1], "y")
        outer = [f"z{i}" for i in range(batch)]
        return [*setup, f"const i32 zero_x = p3[{offset_code([*outer, *names], z.strides[:-1], 0, 'u64')}];"]

    def zero_of_w(self, column: str) -> list[str]:
        """Returns statements that declare zero_w, the zero point of a column of w."""
        z = self.w_zero
        if z is None:
            return ["const i32 zero_w = 0;"]
        if not any(z.strides):
            return ["const i32 zero_w = p4[0];"]
        group = f" + blockIdx.z * {self.p.columns}u" if self.p.windows is not None else ""
        return [
            f"u32 zc = {column};",
            f"zc = (zc < {self.p.columns}u ? zc : {self.p.columns - 1}u){group};",
            f"const i32 zero_w = p4[zc * {max(z.strides)}u];",
        ]

    def correction(self, width: int) -> list[str]:
        """Returns statements that subtract the corrections: (x - p)(w - q) = x w - p 1 w - x 1 q + k p q."""
        if not (self.of_columns or self.of_rows):
            return []
        lines = [*self.zero_of_x("r"), f"const i32 zx = {self.without_bias('x', 'zero_x')};"]
        inner = ["const u32 column = n0 + c + k;"]
        inner += [*self.zero_of_w("column"), f"const i32 zw = {self.without_bias('w', 'zero_w')};"]
        if self.of_columns and self.sums is not None:
            z = f"p2[column{self.group}] - nfrag_bias<{storage_type(self.p.w.dtype)}>() * (i32){self.p.depth}"
            inner.append(f"v[k] -= (i32)((u32)zx * (u32)({z}));")
        inner.append(f"v[k] += (i32)((u32)zx * (u32)zw * {self.p.depth}u);")
        return [*lines, f"UNROLL for (int k = 0; k < {width}; ++k) {{", *(f"  {line}" for line in inner), "}"]
