"""Generates the interpreter's opcode handlers, one loop each, and the function that passes their table to the native module."""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, V, i64
from .element import MEMORY, convert, from_memory, to_memory
from .float_steps import divisor_scale
from .opcodes import Operation, operations
from .primitive import apply
from .space import loop_width

__all__ = ["write"]

HEAVY = {"exp", "exp_negative", "expm1", "log", "log1p", "log2", "erf", "tanh", "sigmoid", "sin", "cos", "pow", "mod"}
TABLE = "opcode_handlers"


def write(c: Code) -> None:
    """Generates the interpreter's kernel: calls the native module's dispatch loop with the table of handlers."""
    names = []
    for operation, number in operations().items():
        made = Code(c.lanes, c.wide, c.divides, c.bfloat16)
        _write(made, operation)
        names.append(f"handler_{number}")
        c.helper(names[-1], made.text(names[-1]).replace("define void", "define internal void", 1))
        c.extra.update(made.extra)
        c.declared.update(made.declared)
    entries = ", ".join(f"ptr @{name}" for name in names)
    c.helper(TABLE, f"@{TABLE} = internal constant [{len(names)} x ptr] [{entries}]")
    buffers, args, scratch = (V(f"%{name}", "ptr", 0) for name in ("buffers", "args", "scratch"))
    begin, end = V("%begin", "i64", 0), V("%end", "i64", 0)
    isa = "avx512" if c.wide else "avx2"
    c.run(f"mgx_interpreter_{isa}", buffers, args, begin, end, scratch, V(f"@{TABLE}", "ptr", 0))


def _write(c: Code, operation: Operation) -> None:
    """Generates a handler: a loop over [0, %end); the buffers are the addresses of the operands, then of the result."""
    count = len(operation.operands)
    *sources, target = c.buffers(range(count + 1))
    if operation.scalar:
        raw = [c.load(s, MEMORY[t], 0) for s, t in zip(sources, operation.operands, strict=True)]
        c.store(target, _value(c, operation, raw))
        return

    def step(i: V, n: int, mask: V | None) -> None:
        given = [
            c.load(c.gep(s, i, MEMORY[t]), MEMORY[t], n, mask) for s, t in zip(sources, operation.operands, strict=True)
        ]
        c.store(c.gep(target, i, MEMORY[operation.result]), _value(c, operation, given), mask)

    def whole(i: V, _: list[V]) -> list[V]:
        step(i, width, None)
        return []

    def rest(i: V, _: list[V]) -> list[V]:
        step(i, c.lanes, c.first(c.op("sub", end, i), c.lanes))
        return []

    width = c.lanes * (1 if operation.name in HEAVY else loop_width(4))
    end = V("%end", "i64", 0)
    at = c.loop(i64(0), end, width, whole, ahead=width - 1)[0]
    c.loop(at, end, c.lanes, rest)


def _value(c: Code, operation: Operation, raw: Sequence[V]) -> V:
    """Returns an operation's result in its memory type, from operands in theirs."""
    name, operands, result, _ = operation
    given = [from_memory(c, x, t) for x, t in zip(raw, operands, strict=True)]
    if name == "convert":
        made = convert(c, given[0], operands[0], result)
    elif name == "divisor_scale":
        made = divisor_scale(c, given[0])
    else:
        made = apply(c, name, operands[1] if name == "where" else operands[0], given)
    return to_memory(c, made, result)
