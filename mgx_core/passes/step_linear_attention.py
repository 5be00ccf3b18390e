"""Runs linear attention over many steps as a scan over single ones."""

from __future__ import annotations

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..ops.broadcast import Multibroadcast
from ..ops.control import GetTupleElem, Scan
from ..ops.convert import Convert
from ..ops.linear_attention import MOST_UNROLLED, LinearAttention
from ..ops.reshape import Squeeze, Unsqueeze
from ..records import dataclass
from ..rules.matching import op_as
from ..types.argument import Argument
from ..types.dtype import float32, float64
from ..types.shape import Shape
from .interface import Pass

__all__ = ["StepLinearAttention"]


@dataclass(frozen=True)
class StepLinearAttention(Pass):
    """Replaces `linear_attention` over more steps than it decomposes, or over a symbolic number, by a scan over its steps.

    A step decomposes into ops that fuse; the op as a whole has a reference implementation only.
    """

    name: str = "step-linear-attention"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if isinstance(ins.op, LinearAttention) and all(isinstance(u.op, GetTupleElem) for u in ins.users):
                steps = ins.inputs[0].shape.dims[1]
                if not isinstance(steps, int) or steps > MOST_UNROLLED:
                    self._replace(inner, ins, ins.op)
                    changed = True
        return changed

    def _replace(self, module: Module, ins: Instruction, op: LinearAttention) -> None:
        past = ins.inputs[3] if len(ins.inputs) > 3 else None
        state = ins.result.items[1]  # type: ignore[union-attr]
        assert isinstance(state, Shape)
        # as the op, which rounds its state once, after the last step
        carried_type = float64 if ins.inputs[0].shape.dtype is float64 else float32
        if past is None or past.is_absent:
            zero = module.add_literal(Argument(np.zeros((), carried_type.numpy)), before=ins)
            past = module.add(Multibroadcast(out_lens=state.dims), zero, before=ins, sources=ins.sources)
        elif past.shape.dtype is not carried_type:
            past = module.add(Convert(target_type=carried_type), past, before=ins, sources=ins.sources)
        body = Module("linear_attention_step")
        carried = body.add_parameter("state", past.result)
        scanned: list[Instruction] = []
        operands: list[Instruction] = []
        for n, x in enumerate(ins.inputs):
            if n == 3:
                operands.append(carried)
            elif x.is_absent:
                operands.append(body.add_absent())
            else:
                shape = x.shape
                one = body.add_parameter(f"x{n}", shape.with_dims((shape.dims[0], shape.dims[2])))
                operands.append(body.add(Unsqueeze(axes=(1,)), one))
                scanned.append(x)
        if len(operands) == 3:
            operands.append(carried)
        made = body.add(op, *operands)
        out, after = (body.add(GetTupleElem(index=k), made) for k in range(2))
        body.add_return([after, body.add(Squeeze(axes=(1,)), out)])
        scan = Scan(states=1, input_axes=(1,) * len(scanned), output_axes=(1,))
        whole = module.add(scan, past, *scanned, modules=[body], before=ins, sources=ins.sources)
        for user in list(ins.users):
            at = op_as(user, GetTupleElem).index
            found = module.add(GetTupleElem(index=1 - at), whole, before=user, sources=user.sources)
            if at == 1 and state.dtype is not carried_type:
                found = module.add(Convert(target_type=state.dtype), found, before=user, sources=user.sources)
            module.replace(user, found)
            module.remove(user)
        module.remove(ins)
