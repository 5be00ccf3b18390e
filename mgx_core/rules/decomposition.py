"""Decomposition of an op in terms of other ops: in its place, or as a module of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import MgxError, No, PluginError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from ..types.shape import AnyShape
from .engine import Builder

__all__ = ["decompose", "decomposed", "module_of"]


def decompose(module: Module, ins: Instruction) -> list[Instruction] | No | None:
    """Puts what an op's `decompose` gives in its place; returns all that was added, in order.

    None: the op has no decomposition; No: it has none for these operands, or the error that it met.
    Errors: PluginError if `decompose` fails in another way, or gives anything but an instruction.
    """
    if ins.op.decompose is None:
        return None
    builder = Builder(module, ins)
    whose = f"the decomposition of {ins.op!r} ({type(ins.op).__module__})"
    try:
        new = ins.op.decompose(builder, *(None if i.is_absent else i for i in ins.inputs))
    except PluginError:
        raise
    except MgxError as error:
        new = No(f"{ins.op.name} does not decompose: {error}")
    except Exception as error:
        raise PluginError(f"{whose} failed: {type(error).__name__}: {error}") from error
    if isinstance(new, Instruction):
        module.replace(ins, new)
        return builder.made
    for made in reversed(builder.made):
        if not made.users:
            module.remove(made)
    if new is None:
        return No(f"{ins.op.name} does not decompose for these operands")
    if not isinstance(new, No):
        raise PluginError(f"{whose} must give an instruction, None or a No, got {new!r}")
    return new


def module_of(op: Operation, shapes: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> Module:
    """Returns a module that applies one op to its parameters; None: an absent operand."""
    body = Module(op.name)
    operands = [body.add_absent() if s is None else body.add_parameter(f"x{n}", s) for n, s in enumerate(shapes)]
    body.add_return([body.add(op, *operands, modules=modules)])
    return body


def decomposed(op: Operation, shapes: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> Module | No | None:
    """Returns the decomposition of an op as a module of its operands; see `decompose`."""
    if op.decompose is None:
        return None
    body = module_of(op, shapes, modules)
    made = decompose(body, body.outputs[0])
    if isinstance(made, No):
        return made
    body.sweep()
    return body
