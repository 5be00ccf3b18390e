"""Half precision: selected ops compute in float16 or bfloat16; parameters and results keep their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import numpy as np

from ..errors import MgxError, ParameterError, suggestion
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.symbols import found_extents
from ..ops.builtin import Literal, Param, Return, Undefined
from ..ops.coded_product import DequantDot
from ..ops.control import GetTupleElem
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.linear import Det
from ..ops.nms import Nonmaxsuppression
from ..ops.operation import Operation
from ..ops.pointwise import Exp, Expm1, Mul, Pow, Recip, Sqdiff
from ..ops.quantized import Dequantizelinear, Quantizelinear
from ..ops.reduce import ReduceMean, ReduceProd, ReduceSum
from ..ops.scan import PrefixScanSum
from ..ops.topk import Topk
from ..ops.trigonometry import Cos, Cosh, Sin, Sinh, Tan
from ..passes.fold_constants import FoldConstants
from ..passes.interface import Pass
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize
from ..passes.rewrite import Rewrite
from ..plugins.manager import manager
from ..rules.constants import is_constant
from ..rules.converts import CONVERTS
from ..targets.groups import inline_groups
from ..types import dtype as dt
from ..types.dtype import DType
from ..types.shape import AnyShape, Shape, TupleShape
from .config import Quantizable
from .products import names_in
from .unbounded import unbounded

__all__ = ["angles", "integral", "quantize_bf16", "quantize_fp16"]

# results often exceed float16's range (65504) or underflow; bfloat16 has float32's range
WIDE: Final = (Exp, Expm1, Pow, Sqdiff, ReduceSum, ReduceProd, Recip, Cosh, Sinh, PrefixScanSum, Det)
TOTALS: Final = (ReduceMean, ReduceSum)
KEPT: Final = (Convert, Param, Literal, Return, Undefined, GetTupleElem, Nonmaxsuppression, Topk)


P = TypeVar("P", bound=Quantizable)


def quantize_fp16(program: P, ins_names: Iterable[str] = ("all",)) -> P:
    """Converts the named ops (or all) to float16; modifies and returns the program.

    Parameters and results keep their types.  With ``all``, these stay in float32: ops whose results may exceed float16's range,
    products of two computed values outside of attention (constants that indices choose are not computed), cumulative sums,
    computations of angles for sin, cos and tan, and of values that become integers.  Finite constants are clamped to the range.
    """
    return _truncate(program, dt.float16, ins_names, WIDE)


def quantize_bf16(program: P, ins_names: Iterable[str] = ("all",)) -> P:
    """Converts the named ops (or all) to bfloat16; modifies and returns the program.

    Parameters and results keep their types.  With ``all``, computations of angles for sin, cos and tan, and of values that become
    integers, stay in float32.
    """
    return _truncate(program, dt.bfloat16, ins_names, ())


def _truncate(program: P, to: DType, ins_names: Iterable[str], wide: tuple[type[Operation], ...]) -> P:
    names = names_in(ins_names, "ins_names")
    main = program.get_main_module()
    there = {"all", *(ins.op.name for module in nested(main) for ins in module)}
    for name in sorted(names - there):
        known = {"all", *(op.name for op in manager().opset())}
        if name not in known:
            near = suggestion(name, sorted(known), "mgx-driver ops")
            raise ParameterError(f"ins_names: there is no op {name!r}; {near}")
    inline_groups(main)
    _run(main, Normalize(), FoldConstants())  # fold in float32, so that constants are rounded once
    kept = angles(main) | integral(main) | (unbounded(main) | _roots(main) if wide and "all" in names else set())
    for module in list(nested(main)):
        for ins in list(module):
            stays = ins in kept or isinstance(ins.op, wide) or (bool(wide) and _total_of_squares(ins))
            chosen = ins.op.name in names or ("all" in names and not stays)
            if chosen and ins.parent is module and not isinstance(ins.op, KEPT):
                _narrow(module, ins, to)
    _run(main, Rewrite(CONVERTS), FoldConstants(), MergeCommon())
    program.executable = None
    return program


def _run(module: Module, *passes: Pass) -> None:
    for one in passes:
        one.apply(module)
        module.sweep()


def _total_of_squares(ins: Instruction) -> bool:
    """Returns True for a mean or a sum of squares, and for a square read only by these.

    Squares of small values underflow in float16, those of large ones exceed its range.
    """
    if isinstance(ins.op, TOTALS):
        return isinstance(ins.inputs[0].op, (Pow, Sqdiff)) or _squared(ins.inputs[0])
    return _squared(ins) and bool(ins.users) and all(isinstance(u.op, TOTALS) for u in ins.users)


def _roots(main: Module) -> set[Instruction]:
    """Returns values computed only from means or sums of squares and constants: sums with an epsilon, roots, reciprocals."""
    found: set[Instruction] = set()
    for module in nested(main):
        for ins in module:
            computed = [i for i in ins.inputs if not is_constant(i)]
            if isinstance(ins.op, TOTALS) and _total_of_squares(ins):
                found.add(ins)
            elif computed and found.issuperset(computed) and (isinstance(ins.op, Pointwise) or ins.op.reshapes):
                found.add(ins)
                found.update(ins.inputs)  # constants keep their precision
    return found


def _squared(ins: Instruction) -> bool:
    return isinstance(ins.op, Mul) and ins.inputs[0] is ins.inputs[1]


def _narrow(module: Module, ins: Instruction, to: DType) -> None:
    if ins.modules or not any(_wide(i) for i in ins.inputs) or not isinstance(ins.result, (Shape, TupleShape)):
        return  # sequences keep their element type
    if not all(_ranked(x.result) for x in (ins, *ins.inputs)):
        return  # `convert` requires a known rank
    scaled = isinstance(ins.op, (Dequantizelinear, DequantDot, Quantizelinear))  # scales keep their type
    inputs = [
        _converted(module, i, ins, to) if _wide(i) and not (scaled and n) else i for n, i in enumerate(ins.inputs)
    ]
    op = ins.op.replace(out_type=to) if isinstance(ins.op, Dequantizelinear) else ins.op
    try:
        narrow = module.add(op, *inputs, before=ins, sources=ins.sources)
    except MgxError:
        return  # shape inference requires float32
    # a data-dependent extent keeps its symbol, since others may be computed from it
    narrow.result = narrow.result.substitute(found_extents(narrow.result, ins.result))
    if isinstance(ins.result, TupleShape):
        _parts(module, ins, narrow)
        return
    back = narrow
    if narrow.result != ins.result:
        back = module.add(Convert(target_type=ins.shape.dtype), narrow, before=ins, sources=ins.sources)
    module.replace(ins, back)
    module.remove(ins)


def _converted(module: Module, value: Instruction, reader: Instruction, to: DType) -> Instruction:
    """Converts `value` to the type `to`, for `reader`; clamps finite constants to the type's range."""
    if value.literal is not None:
        held = value.literal.to_numpy()
        with np.errstate(invalid="ignore"):
            fits = not held.size or (held.min() >= to.lowest and held.max() <= to.highest)  # False for NaN
        if not fits and (np.isfinite(held) & (np.abs(held) > to.highest)).any():
            ends = np.where(np.isfinite(held), np.clip(held, to.lowest, to.highest), held).astype(to.numpy)
            return module.add_literal(ends, before=reader)
    return module.add(Convert(target_type=to), value, before=reader, sources=reader.sources)


def _parts(module: Module, ins: Instruction, narrow: Instruction) -> None:
    """Replaces the elements of the tuple `ins` by converted elements of `narrow`, unless the tuple has other readers."""
    for user in list(ins.users):
        if not isinstance(user.op, GetTupleElem):
            module.remove(narrow)  # a reader of the whole tuple requires its types
            return
    for user in list(ins.users):
        part = module.add(user.op, narrow, before=user, sources=user.sources)
        if part.result != user.result:
            part = module.add(Convert(target_type=user.shape.dtype), part, before=user, sources=user.sources)
        module.replace(user, part)
        module.remove(user)
    module.remove(ins)


def _ranked(result: AnyShape) -> bool:
    """Returns False for a tensor of unknown rank, and for a tuple with one."""
    return all(
        not isinstance(s, Shape) or s.ranked for s in (result.items if isinstance(result, TupleShape) else (result,))
    )


def _wide(ins: Instruction) -> bool:
    return isinstance(ins.result, Shape) and ins.result.dtype in (dt.float32, dt.float64)


PERIODIC: Final = (Sin, Cos, Tan)


def angles(main: Module) -> set[Instruction]:
    """Returns the periodic functions and the values used only by them.

    Results of matrix products are excluded, since these are ordinary activations (as in networks with periodic activations).
    """
    found: set[Instruction] = set()
    for module in reversed(list(nested(main))):
        for ins in reversed(module):
            if isinstance(ins.op, PERIODIC) or (ins.users and found.issuperset(ins.users) and not _sums(ins)):
                found.add(ins)
    return found


def integral(main: Module) -> set[Instruction]:
    """Returns the elementwise computations of values that are converted to integers, and of what is left of these values.

    Positions in a grid are truncated to the cell that they lie in, and its features weighted by the rest: in 16 bits, a position
    near a border is in another cell, and the rest of a large one has few digits.
    """
    found: set[Instruction] = set()
    modules = list(nested(main))
    for module in reversed(modules):
        for ins in reversed(module):
            alone = all(_elementwise(u) or isinstance(u.op, Return) for u in ins.users)
            if _to_integer(ins) or (alone and _elementwise(ins) and not found.isdisjoint(ins.users)):
                found.add(ins)
    for module in modules:
        for ins in module:
            computed = [i for i in ins.inputs if not is_constant(i)]
            if (
                _elementwise(ins)
                and not found.isdisjoint(computed)
                and all(i in found or not _wide(i) for i in computed)
            ):
                found.add(ins)
    return found


def _to_integer(ins: Instruction) -> bool:
    return isinstance(ins.op, Convert) and ins.op.target_type.is_integer and _wide(ins.inputs[0])


def _elementwise(ins: Instruction) -> bool:
    return isinstance(ins.op, Pointwise) or ins.op.moves


def _sums(ins: Instruction) -> bool:
    """Returns True if the product sums over an axis of more than one element (an outer product does not)."""
    if not ins.op.product:
        return False
    left = ins.inputs[0].result
    return not (ins.op.product == "matrix" and isinstance(left, Shape) and left.dims[-1] == 1)
