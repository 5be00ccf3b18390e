"""Programs in MIGraphX's text form."""

from __future__ import annotations

from collections.abc import Iterator

from mgx_core import Instruction, Module, Shape
from mgx_core.ir.module import nested

from .arguments import of_argument
from .layouts import laid_out
from .operations import of_operation
from .shapes import of_shape

__all__ = ["module_text", "program_text"]

FEW = 10  # maximum elements of a literal whose values are printed


def program_text(main: Module) -> str:
    """Returns the text of every module, the main one first."""
    names: dict[Instruction, str] = {}
    parts = ["\n".join([f'module: "{m.name}"', *_lines(m, names)]) for m in nested(main)]
    return "\n\n".join(parts) + "\n"


def module_text(module: Module) -> str:
    return "\n".join(_lines(module, {}))


def _lines(module: Module, names: dict[Instruction, str]) -> Iterator[str]:
    prefix = "" if module.name == "main" else f"{module.name}:"
    for n, ins in enumerate(module):
        names[ins] = f"{prefix}{ins.op.label}" if ins.is_param else f"{prefix}@{n}"  # type: ignore[attr-defined]
        if ins.is_absent:
            yield f"{names[ins]} = undefined"
        elif ins.is_return:
            yield f"{names[ins]} = @return({_inputs(ins, names)})"
        else:
            yield f"{names[ins]} = {_said(ins, names)} -> {of_shape(laid_out(ins))}, target_id=0"


def _said(ins: Instruction, names: dict[Instruction, str]) -> str:
    if ins.is_param:
        return f"@param:{ins.op.label}"  # type: ignore[attr-defined]
    if ins.literal is not None:
        shape = ins.literal.shape
        few = isinstance(shape, Shape) and shape.dtype.is_number and shape.elements() <= FEW
        return f"@literal{{{of_argument(ins.literal) if few else ' ... '}}}"
    made = of_operation(ins.op)
    modules = f", [{', '.join(m.name for m in ins.modules)}]" if ins.modules else ""
    return f"{made}({_inputs(ins, names)}){modules}"


def _inputs(ins: Instruction, names: dict[Instruction, str]) -> str:
    return ",".join(names.get(i, "@outer") for i in ins.inputs)
