"""Half precision: chosen ops compute in float16 or bfloat16, parameters and results keep their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..passes.fold_constants import FoldConstants
from ..passes.interface import Pass
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize
from ..passes.rewrite import Rewrite
from ..program import Program
from ..rules.converts import CONVERTS
from ..types import dtype as dt
from ..types.dtype import DType
from ..types.shape import Shape
from .angles import angles

__all__ = ["quantize_bf16", "quantize_fp16"]

# results of these leave float16's range (65504) or lose their meaning for everyday inputs; bfloat16 has float32's range
WIDE: Final = frozenset(
    {"exp", "expm1", "pow", "sqdiff", "reduce_sum", "reduce_prod", "recip", "cosh", "sinh", "prefix_scan_sum"}
)
KEPT: Final = frozenset(
    {"convert", "@param", "@literal", "@return", "undefined", "get_tuple_elem", "nonmaxsuppression", "topk"}
)


def quantize_fp16(program: Program, ins_names: Iterable[str] = ("all",)) -> Program:
    """Let the named ops (or all) compute in float16; the program is changed and returned.

    Types of parameters and results stay.  With ``all``, ops whose results leave float16's range keep computing in float32, and
    so does what computes angles for sin, cos and tan.
    """
    return _truncate(program, dt.float16, ins_names, WIDE)


def quantize_bf16(program: Program, ins_names: Iterable[str] = ("all",)) -> Program:
    """Let the named ops (or all) compute in bfloat16; the program is changed and returned.

    Types of parameters and results stay.  With ``all``, what computes angles for sin, cos and tan keeps computing in float32.
    """
    return _truncate(program, dt.bfloat16, ins_names, frozenset())


def _truncate(program: Program, to: DType, ins_names: Iterable[str], wide: frozenset[str]) -> Program:
    names = set(ins_names)
    main = program.get_main_module()
    _run(main, Normalize(), FoldConstants())  # fold in float32, so that constants are rounded once
    kept = angles(main)
    for module in list(nested(main)):
        for ins in list(module):
            chosen = ins.op.name in names or ("all" in names and ins.op.name not in wide and ins not in kept)
            if chosen and ins.parent is module and ins.op.name not in KEPT:
                _narrow(module, ins, to)
    _run(main, Rewrite(CONVERTS), FoldConstants(), MergeCommon())
    program.executable = None
    return program


def _run(module: Module, *passes: Pass) -> None:
    for one in passes:
        one.apply(module)
        module.sweep()


def _narrow(module: Module, ins: Instruction, to: DType) -> None:
    from ..ops.convert import Convert

    if ins.modules or not isinstance(ins.result, Shape) or not any(_wide(i) for i in ins.inputs):
        return
    inputs = [
        module.add(Convert(target_type=to), i, before=ins, sources=ins.sources) if _wide(i) else i for i in ins.inputs
    ]
    try:
        narrow = module.add(ins.op, *inputs, before=ins, sources=ins.sources)
    except MgxError:
        return  # its rule wants float32
    back = narrow
    if narrow.result != ins.result:
        back = module.add(Convert(target_type=ins.shape.dtype), narrow, before=ins, sources=ins.sources)
    module.replace(ins, back)
    module.remove(ins)


def _wide(ins: Instruction) -> bool:
    return isinstance(ins.result, Shape) and ins.result.dtype in (dt.float32, dt.float64)
