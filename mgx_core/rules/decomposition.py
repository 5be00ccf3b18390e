"""Decomposition of an op into simpler ops: in place, or as a separate module."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import MgxError, No, PluginError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.control import GetTupleElem
from ..ops.operation import Operation
from ..types.shape import AnyShape, TupleShape, same_type
from .engine import Builder
from .matching import op_as

__all__ = ["decompose", "decomposed", "module_of"]


def decompose(module: Module, ins: Instruction) -> list[Instruction] | No | None:
    """Replaces an op by its decomposition; returns all added instructions, in order.

    None: the op has no decomposition; No: it has none for these operands, or `decompose` raised an MgxError.
    An op with several results decomposes into a tuple of instructions, and is kept if its results are used as one tuple.
    Errors: PluginError if `decompose` raises another exception, or returns anything else.
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
    if isinstance(new, tuple) and all(isinstance(n, Instruction) for n in new):
        if _read_one_by_one(module, ins, new):
            return builder.made
        new = No(f"{ins.op.name} does not decompose: its results are used as one tuple")
    if isinstance(new, Instruction) and same_type(ins.result, new.result):
        module.replace(ins, new)
        return builder.made
    for made in reversed(builder.made):
        if not made.users:
            module.remove(made)
    if new is None:
        return No(f"{ins.op.name} does not decompose for these operands")
    if isinstance(new, Instruction):
        raise PluginError(f"{whose} must return {ins.result}, got {new.result}")
    if not isinstance(new, No):
        raise PluginError(f"{whose} must return an instruction (or one for each result), None or a No, got {new!r}")
    return new


def _read_one_by_one(module: Module, ins: Instruction, results: Sequence[Instruction]) -> bool:
    """Replaces the uses of each tuple item by the corresponding result; False if the tuple is used as a whole."""
    for user in [u for u in ins.users if not isinstance(u.op, GetTupleElem)]:
        if not isinstance(decompose(module, user), list):
            return False
        module.remove(user)
    for user in list(ins.users):
        module.replace(user, results[op_as(user, GetTupleElem).index])
        module.remove(user)
    return True


def module_of(op: Operation, shapes: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> Module:
    """Returns a module that applies one op to its parameters and returns each of its results; None: an absent operand."""
    body = Module(op.name)
    operands = [body.add_absent() if s is None else body.add_parameter(f"x{n}", s) for n, s in enumerate(shapes)]
    made = body.add(op, *operands, modules=modules)
    items = range(len(made.result.items)) if isinstance(made.result, TupleShape) else ()
    body.add_return([body.add(GetTupleElem(index=n), made) for n in items] or [made])
    return body


def decomposed(op: Operation, shapes: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> Module | No | None:
    """Returns the decomposition of an op as a module of its operands; see `decompose`."""
    if op.decompose is None:
        return None
    body = module_of(op, shapes, modules)
    (first, *more) = body.outputs
    made = decompose(body, first.inputs[0] if more else first)
    if isinstance(made, No):
        return made
    body.sweep()
    return body
