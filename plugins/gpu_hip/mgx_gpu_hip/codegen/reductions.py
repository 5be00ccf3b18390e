"""Shared parts of fused reductions: split of the axes, reduction operations in C++, passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mgx_core import Instruction
from mgx_core.errors import UnsupportedError
from mgx_core.ops.reduce import ReduceMean

from .bodies import Access, Body, is_reduction
from .expressions import Lines, Value
from .extents import varies
from .geometry import Loop, index_type, memory_order, merge
from .primitives import FLOATS, UNSIGNED, constant, quotient
from .source import NAME, Buffer, KernelLaunch, KernelSource, Tensor, compute_type, finish, pointers, to_compute

__all__ = ["Plan", "Reduction", "element_value"]

_OPS = {"add": "Sum", "mul": "Prod", "max": "Max", "min": "Min"}


@dataclass(frozen=True)
class Reduction:
    """One reduction: its index, accumulator type, operation in the prelude, and pass."""

    ins: Instruction
    number: int
    ctype: str
    op: str
    at: int

    @classmethod
    def of(cls, ins: Instruction, number: int, at: int) -> Reduction:
        kind = compute_type(ins.shape.dtype)
        if kind not in FLOATS and isinstance(ins.op, ReduceMean):
            kind = "u64" if kind[0] == "u" else "i64"
        elif kind not in FLOATS and ins.op.combine in ("add", "mul"):
            kind = UNSIGNED.get(kind, kind)
        return cls(ins, number, kind, _OPS[ins.op.combine], at)

    @property
    def name(self) -> str:
        return f"s{self.number}"

    @property
    def kind(self) -> str:
        """The C type of the result."""
        return compute_type(self.ins.shape.dtype)

    @property
    def identity(self) -> str:
        return f"{self.op}::id<{self.ctype}>()"

    def combine(self, a: str, b: str) -> str:
        """Returns a statement that combines `b` into the accumulator `a`."""
        return (
            f"{a} = {self.op}::f({a}, ({self.ctype}){b});"
            if self.ctype not in FLOATS
            else f"{a} = {self.op}::f({a}, {b});"
        )

    def result(self, code: str, count: int) -> str:
        """Returns the accumulated value as the op's result."""
        kind = compute_type(self.ins.shape.dtype)
        if isinstance(self.ins.op, ReduceMean):
            if self.ctype in FLOATS and varies(count):
                return f"{code} / ({self.ctype}){count}"
            if self.ctype in FLOATS and not count:
                return f"({self.ctype})m::nan()"
            if self.ctype in FLOATS:  # exact: the mean of equal whole numbers is that number
                return quotient(code, count) if self.ctype == "float" else f"{code} / {constant(count, self.ctype)}"
            return f"({kind})({code} / {max(count, 1)})"
        return code if kind == self.ctype else f"({kind}){code}"


@dataclass
class Plan:
    """A body whose iteration space is split into kept axes (rows) and reduced axes (the elements of a row)."""

    body: Body
    inputs: list[Tensor]
    outputs: list[Tensor]
    word: str
    accesses: list[Access] = field(init=False)
    kept: Loop = field(init=False)
    reduced: Loop = field(init=False)
    reductions: list[Reduction] = field(init=False)

    def __post_init__(self) -> None:
        body = self.body
        self.accesses = body.accesses
        strides = [*(a.strides for a in self.accesses), *(o.strides for o in self.outputs)]
        order = memory_order(self.main.strides, body.dims) if self.main else list(range(len(body.dims)))
        self.kept = merge(body.dims, strides, [a for a in order if a not in body.axes])
        self.reduced = merge(body.dims, strides, [a for a in order if a in body.axes])
        found = [m for m in body.members if is_reduction(m)]
        self.reductions = [Reduction.of(m, n, body.passes[m]) for n, m in enumerate(found)]

    @property
    def main(self) -> Access | None:
        """The read that moves the most memory."""
        full = [a for a in self.body.accesses if not self.body.is_row(a)]
        return max(full, key=lambda a: self.inputs[a.index].nbytes, default=None)

    @property
    def rows(self) -> int:
        return self.kept.count

    @property
    def length(self) -> int:
        return self.reduced.count

    def require_counted(self, groups: int) -> None:
        """Errors: UnsupportedError if a row has more groups of elements than 32-bit loop counters can count."""
        if groups >= 1 << 31:
            raise UnsupportedError(f"a reduction of {self.length} elements exceeds 32-bit loop counters")

    @property
    def index(self) -> str:
        return index_type(*self.inputs, *self.outputs)

    @property
    def last(self) -> int:
        """The number of reducing passes."""
        return max((r.at + 1 for r in self.reductions), default=0)

    def one_launch_per_pass(self, splits: int, kernel: Callable[[int, str], tuple[str, KernelLaunch]]) -> KernelSource:
        """Returns one launch for each pass; `splits` blocks leave partial results in a scratch buffer of each reduction.

        kernel: generates the kernel of a pass from its number and name.
        """
        made = [kernel(at, f"{NAME}_{at}" if at < self.last else NAME) for at in range(self.last + 1)]
        text, launches = "".join(text for text, _ in made), [launch for _, launch in made]
        scratch = [8 * splits * self.rows for _ in self.reductions]
        return finish(self.word, text, launches, self.inputs, self.outputs, scratch=scratch, flops=self.flops)

    def in_pass(self, at: int) -> list[Reduction]:
        return [r for r in self.reductions if r.at == at]

    def full_outputs(self, at: int) -> list[int]:
        """Returns outputs with one element per element of a row that pass `at` can store."""
        return [
            n
            for n in range(len(self.outputs))
            if not self.is_row_output(n) and self.body.after(self.body.outputs[n]) == at
        ]

    def is_row_output(self, n: int) -> bool:
        return self.body.is_row(self.body.outputs[n]) and all(self.body.output_dims[n][a] == 1 for a in self.body.axes)

    @property
    def row_outputs(self) -> list[int]:
        return [n for n in range(len(self.outputs)) if self.is_row_output(n)]

    def kept_strides(self, n: int) -> tuple[int, ...]:
        return self.kept.strides[n]

    def reduced_strides(self, n: int) -> tuple[int, ...]:
        return self.reduced.strides[n]

    def output(self, n: int) -> int:
        """Returns the index of output `n` among the strides of the loop nest."""
        return len(self.accesses) + n

    @property
    def pointers(self) -> list[str]:
        return pointers(self.inputs, self.outputs)[0]

    @property
    def buffers(self) -> list[Buffer]:
        return pointers(self.inputs, self.outputs)[1]

    @property
    def flops(self) -> int:
        return self.rows * self.length * len(self.body.members)


def element_value(access: Access, inputs: Sequence[Tensor], code: str, lines: Lines) -> Value:
    """Returns a stored element as a value."""
    of = inputs[access.index].dtype
    value = to_compute(code, of)
    if value == code:
        return Value(lines.let(compute_type(of), code), compute_type(of))
    return Value(lines.let("float", value), "float", code, of)
