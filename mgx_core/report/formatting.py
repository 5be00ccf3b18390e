"""Formats names, sizes, times and text from models for reports."""

from __future__ import annotations

import html
from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.builtin import Param
from ..ops.control import GetTupleElem
from ..ops.einsum import Einsum
from ..ops.elementwise import Pointwise
from ..ops.operation import Operation
from ..targets.kernel import op_of
from ..types.shape import Shape

__all__ = ["attributes_text", "escaped", "kind", "shortened", "size_text", "time_text", "title", "value_names"]


def escaped(text: object) -> str:
    """Escapes text for HTML and quoted attributes; control characters become escape sequences."""
    clean = "".join(c if c >= " " or c in "\n\t" else f"\\x{ord(c):02x}" for c in str(text))
    return html.escape(clean.encode("utf-8", "backslashreplace").decode(), quote=True)


def shortened(text: str, most: int) -> str:
    """Truncates text to `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def size_text(count: float) -> str:
    """Formats a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def time_text(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} \u00b5s"


def title(ins: Instruction) -> str:
    """Returns an instruction's short name: the op, a group's tag, a parameter's label."""
    op = op_of(ins)
    if isinstance(op, Param):
        return op.label
    tag = op.tag
    return str(tag) if tag else op.name


def members(module: Module) -> list[str]:
    """Returns the names of a group's ops, including those of nested groups, without ops that only broadcast operands."""
    found: list[str] = []
    for ins in module:
        if ins.modules:
            found += [n for m in ins.modules for n in members(m)]
        elif not (ins.is_param or ins.is_literal or ins.is_return or ins.is_absent):
            op = op_of(ins)
            found += [] if op.aligns or isinstance(op, GetTupleElem) else [op.name]
    return found


def group_text(ins: Instruction) -> str:
    """Returns a group's ops in order; empty for other instructions."""
    if not ins.modules or op_of(ins).control:
        return ""
    names = [n for m in ins.modules for n in members(m)]
    return " \u00b7 ".join(names) or "broadcast"


def attributes_text(op: Operation) -> str:
    """Formats the attributes that differ from their defaults."""
    given: dict[str, Any] = {f.name: getattr(op, f.name) for f in op.fields}
    return ", ".join(f"{f.name}={given[f.name]}" for f in op.fields if given[f.name] != f.default)


def kind(ins: Instruction) -> str:
    """Returns the CSS class of an instruction: ``edge`` (parameter or return), ``literal``, or a family of ops."""
    if ins.is_param or ins.is_return:
        return "edge"
    if ins.is_literal or ins.is_absent:
        return "literal"
    op = op_of(ins)
    if op.control or op.fused:
        return "control" if op.control else "group"
    if op.product or isinstance(op, Einsum):
        return "product"
    first = ins.inputs[0].result if ins.inputs else None
    if op.linear or (isinstance(first, Shape) and first.ranked and op.reduced_axes(first.rank)):
        return "reduce"
    return "move" if op.exact and not isinstance(op, Pointwise) else "plain"


def value_names(instructions: list[Instruction]) -> dict[Instruction, str]:
    """Returns printed names: the labels of parameters, numbers for others."""
    return {ins: ins.op.label if isinstance(ins.op, Param) else f"%{n}" for n, ins in enumerate(instructions)}
