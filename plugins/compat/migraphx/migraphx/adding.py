"""Adds operations to a module with MIGraphX's result types and extents."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction, Module, Operation, Shape, ShapeError
from mgx_core import dtype as dt
from mgx_core.ir.symbols import with_known_symbols

__all__ = ["added"]


def added(module: Module, op: Operation, inputs: Sequence[Instruction], modules: Sequence[Module]) -> Instruction:
    """Appends an operation; returns its result, converted or padded where MIGraphX's differs.

    A scalar, which has one axis in MIGraphX, can be combined with vectors of one element.
    Errors: ShapeError if the inputs do not fit.
    """
    if _is_filled(op, inputs):
        return inputs[0].inputs[0]
    op = with_known_symbols(op, module.parameters.values(), inputs)
    try:
        return _filled(module, _typed(module, op, inputs, modules))
    except ShapeError:
        scalars = [i for i in inputs if isinstance(i.result, Shape) and i.result.ranked and not i.result.rank]
        if not scalars:
            raise
        from mgx_core.ops.reshape import Unsqueeze

        wide = {s: module.add(Unsqueeze(axes=(0,)), s) for s in scalars}
        try:
            return _filled(module, _typed(module, op, [wide.get(i, i) for i in inputs], modules))
        except ShapeError:
            for made in wide.values():
                module.remove(made)
        raise


def _typed(module: Module, op: Operation, inputs: Sequence[Instruction], modules: Sequence[Module]) -> Instruction:
    """Appends an operation; comparisons and logic return their inputs' type, and conditions may be numbers."""
    from mgx_core.ops.compare import LogicalAnd, LogicalOr, LogicalXor, Not, Predicate
    from mgx_core.ops.control import If
    from mgx_core.ops.convert import Convert
    from mgx_core.ops.pointwise import Where

    if isinstance(op, Predicate) and inputs and inputs[0].shape.dtype is not dt.bool_:
        kind = inputs[0].shape.dtype
        if isinstance(op, (LogicalAnd, LogicalOr, LogicalXor, Not)):
            inputs = [module.add(Convert(target_type=dt.bool_), i) for i in inputs]
        return module.add(Convert(target_type=kind), module.add(op, *inputs))
    if isinstance(op, (If, Where)) and inputs and inputs[0].shape.dtype is not dt.bool_:
        inputs = [module.add(Convert(target_type=dt.bool_), inputs[0]), *inputs[1:]]
    return module.add(op, *inputs, modules=modules)


def _filled(module: Module, made: Instruction) -> Instruction:
    """Zero-pads a result with a data-dependent number of rows to the maximum, unless it is padded already."""
    from mgx_core.ops.control import GetTupleElem, Loop
    from mgx_core.ops.nms import Nonmaxsuppression
    from mgx_core.ops.pad import FixedPad
    from mgx_core.ops.reshape import Unsqueeze
    from mgx_core.ops.select import Nonzero
    from mgx_core.types.dim import bounds

    match made.op:
        case FixedPad() if made.result == made.inputs[0].result:
            module.remove(made)
            return made.inputs[0]
        case Nonzero():
            counted = not made.inputs[0].shape.dynamic()
        case Nonmaxsuppression(use_dyn_output=dynamic):
            counted = not dynamic and not any(i.shape.dynamic() for i in made.inputs[:2])
        case GetTupleElem():
            counted = isinstance(made.inputs[0].op, Loop) and isinstance(made.result, Shape) and made.result.ranked
        case _:
            return made
    if not counted or not made.shape.dynamic():
        return made
    rows = module.add(FixedPad(output_lens=tuple(bounds(d)[1] for d in made.shape.dims)), made)
    scalars = isinstance(made.op, GetTupleElem) and rows.shape.rank == 1  # scalar rows of a loop
    return module.add(Unsqueeze(axes=(1,)), rows) if scalars else rows


def _is_filled(op: Operation, inputs: Sequence[Instruction]) -> bool:
    """True for padding of a padded and unsqueezed loop result: scripts written by `to_py` contain both steps."""
    from mgx_core.ops.pad import FixedPad
    from mgx_core.ops.reshape import Unsqueeze

    return isinstance(op, FixedPad) and isinstance(inputs[0].op, Unsqueeze) and inputs[0].inputs[0].op == op
