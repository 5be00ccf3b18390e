"""Attention groups: a fused loop that never materializes all scores, or two products and a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mgx_core import Instruction, Kernels, Module, No, Operation, Shape
from mgx_core.errors import Refused
from mgx_core.named_tuples import NamedTuple
from mgx_core.ops.compare import Isnan
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Where
from mgx_core.ops.softmax import Softmax
from mgx_core.rules.activations import scalar_of
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from .attention_tiles import emit_tiled_attention
from .offer import FLOATS, offer
from .products import product

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def is_attention(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    """Refuses groups other than attention, and attention without a softmax over a supported type."""
    if op.tag != "attention":
        return No("the group is not an attention group")
    softmax = next((i for i in modules[0] if isinstance(i.op, Softmax)), None)
    if softmax is None or softmax.shape.dtype not in FLOATS:
        return No("a softmax of float32 or bfloat16 is required")
    return None


@offer(PLANS, Group, when=is_attention, name="attention")
def emit_attention(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits attention as one fused loop or with AMX tiles, if they support it, else its members one by one."""
    body = modules[0]
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), (a for a in args if a is not None), strict=True))
    with e.trial() as trial:
        result = _emit_fused(e, body, dict(env))
        trial.keep()
        return result
    last = [i for i in body if isinstance(i.op, Dot)][-1]
    for ins in body:
        if ins.is_param or ins.is_return:
            continue
        if ins is last and (out := _allocate_merged(e, ins)) is not None:
            env[ins] = product(e, env[ins.inputs[0]], env[ins.inputs[1]], None, out)
        else:
            env[ins] = e.emit(ins, env)
    found: Value = env[body.outputs[0]]
    return found


class _Scores(NamedTuple):
    """Queries, transposed keys, and the pointwise module (or None) applied to their product, with its other operands."""

    q: Value
    k: Value
    module: Module | None
    extra: list[Value]


def _emit_fused(e: CpuEmitter, body: Module, env: dict[Instruction, Any]) -> Value:
    """Emits products and softmax together, then the members after them.  Errors: Refused if the group has another form."""
    members = [i for i in body if not (i.is_param or i.is_return)]
    softmax = next(i for i in members if isinstance(i.op, Softmax))
    last = [i for i in members if isinstance(i.op, Dot)][-1]
    scores = _scores(e, softmax.inputs[0], env)
    guarded = _zeroes_nan(softmax, last)
    v = _view_value(e, last.inputs[1], env)
    lens = last.shape.lens()
    out = _allocate_merged(e, last) or e.allocate(last.shape.dtype, lens)
    if not _try_tiles(e, scores, v, out, guarded):
        _emit_blocks(e, scores, v, out, guarded)
    env[last] = out
    for ins in members[members.index(last) + 1 :]:
        env[ins] = e.emit(ins, env)
    found: Value = env[body.outputs[0]]
    return found


def _emit_blocks(e: CpuEmitter, scores: _Scores, v: Value, out: Value, guarded: bool) -> None:
    """Emits the fused loop over blocks of keys.  Errors: Refused."""
    from ..jit.attention import compile_attention

    transposed = scores.k.view_at(0, _transposed(scores.k.shape))
    if v.strides[-1] != 1 and v.lens[-1] != 1:
        v = e.row_major(v)
    extra = [x.shape for x in scores.extra]
    four = (scores.q.shape, transposed.shape, v.shape, out.shape)

    def make() -> Any:
        return compile_attention(*four, e.engine, score=scores.module, extra=extra, guarded=guarded)

    kernel = e.shared.kernels.kernel(scores.module, ("attention", guarded), [*four, *extra], make)
    e.loop(kernel, [scores.q, transposed, v, *scores.extra], [out], "attention")


def _try_tiles(e: CpuEmitter, scores: _Scores, v: Value, out: Value, guarded: bool) -> bool:
    """Emits two AMX products and a softmax loop if that is faster; returns True if it did."""
    with e.trial() as trial:
        if guarded:
            raise Refused("AMX tiles do not support masks that leave rows without keys")
        emit_tiled_attention(e, scores.q, scores.k, v, out, scores.module, scores.extra)
        trial.keep()
        return True
    return False


def _scores(e: CpuEmitter, ins: Instruction, env: dict[Instruction, Any]) -> _Scores:
    """Matches the operand of the softmax: a product, alone or followed by a pointwise group.  Errors: Refused for others."""
    if isinstance(ins.op, Dot):
        return _Scores(_view_value(e, ins.inputs[0], env), _view_value(e, ins.inputs[1], env), None, [])
    if isinstance(ins.op, PointwiseGroup) and isinstance(ins.inputs[0].op, Dot):
        dot = ins.inputs[0]
        extra = [_view_value(e, i, env) for i in ins.inputs[1:]]
        return _Scores(_view_value(e, dot.inputs[0], env), _view_value(e, dot.inputs[1], env), ins.modules[0], extra)
    if ins.op.tag == "dot":
        inner = ins.modules[0]
        below = {p: _view_value(e, i, env) for p, i in zip(inner.parameters.values(), ins.inputs, strict=True)}
        return _scores(e, inner.outputs[0], below)
    raise Refused(f"scores computed by {ins.op.name} are not supported")


def _view_value(e: CpuEmitter, ins: Instruction, env: dict[Instruction, Any]) -> Value:
    """Returns the value of an instruction that is emitted already, or a view of one.  Errors: Refused if it needs other ops."""
    if ins in env or ins.is_literal:
        found: Value = e.value_of(ins, env)
        return found
    if len(ins.inputs) != 1 or ins.op.view is None:
        raise Refused(f"an operand is computed by {ins.op.name}, which is not a view")
    source = _view_value(e, ins.inputs[0], env)
    seen = e.view_of(ins.op, source)
    if seen is not None:
        return seen
    moved: Value = e.emit(ins, {ins.inputs[0]: source})
    return moved


@lru_cache(1024)
def _transposed(shape: Shape) -> Shape:
    """Returns a view with the last two axes transposed."""
    (*dims, a, b), (*steps, s, t) = shape.lens(), shape.strides()
    return Shape(shape.dtype, [*dims, b, a], [*steps, t, s])


def _zeroes_nan(softmax: Instruction, last: Instruction) -> bool:
    """Returns True if the group replaces NaN weights by zeros (rows without keys), False if it uses the softmax unchanged.

    Errors: Refused for any other op between the softmax and the second product.
    """
    weights = last.inputs[0]
    if weights is softmax:
        return False
    if isinstance(weights.op, PointwiseGroup) and weights.inputs == (softmax,):
        body = weights.modules[0]
        (x,) = body.parameters.values()
        chosen = body.outputs[0]
        if isinstance(chosen.op, Where):
            test, zero, kept = chosen.inputs
            if isinstance(test.op, Isnan) and test.inputs[0] is x and kept is x and scalar_of(zero) == 0.0:
                return True
    raise Refused("other ops between the softmax and the second product are not supported")


def _allocate_merged(e: CpuEmitter, dot: Instruction) -> Value | None:
    """Allocates the second product such that the following transpose is a dense view; None if no transpose follows."""
    if len(dot.users) != 1 or not isinstance(dot.users[0].op, Transpose):
        return None
    permutation = dot.users[0].op.permutation
    if permutation[-1] != len(permutation) - 1:
        return None
    lens = dot.shape.lens()
    return e.allocate(dot.shape.dtype, lens, packed_strides(lens, list(permutation)))
