"""Epilogues of oneDNN primitives: as post-ops if they can express them, else as a separate loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from mgx_core import Instruction, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import PointwiseGroup
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Add, Mul, Sub
from mgx_core.records import dataclass
from mgx_core.rules.constants import scalar_of
from mgx_core.targets.epilogue import Link, read_chain
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.targets.view_steps import viewed
from mgx_core.types.dtype import DType

from ..emitter import CpuEmitter
from ..layout import NAMES, descriptor
from .offer import FLOATS

__all__ = ["Epilogue", "fused_epilogue"]

# oneDNN evaluates log(1 + exp(x)) of these directly: relative errors of 1e-2 and more
INACCURATE = frozenset({"mish", "soft_relu"})
# algorithms of oneDNN that return numbers for NaN, or (gelu_erf) NaN for infinity
NONFINITE_WRONG = frozenset("clip exp logistic max min gelu_erf".split())  # noqa: SIM905
Build = Callable[[CpuEmitter, Instruction, Sequence[Value], "Epilogue | None"], Value]


@dataclass
class Epilogue:
    """The post-ops (links) of a primitive with their operands.

    dtype, lens: of the primitive's result; residual: operand whose memory the result overwrites, or None.
    """

    dtype: DType
    lens: list[int]
    links: list[tuple[Link, Value | None]]
    residual: Value | None = None
    _operands: list[Value] = field(default_factory=list)

    def viewed(self, view: Callable[[Value], Value]) -> Epilogue:
        """Returns a copy with `view` applied to every operand, for a primitive whose other operands are viewed the same way."""
        views = {id(v): view(v) for _, v in self.links if v is not None}
        links = [(link, None if v is None else views[id(v)]) for link, v in self.links]
        residual = None if self.residual is None else views[id(self.residual)]
        return replace(self, links=links, residual=residual)

    def attributes(self, e: CpuEmitter, out: Value, flat: tuple[int, int] | None = None) -> dict[str, Any]:
        """Returns keyword arguments for the primitive's builder; flat: extents of the result if it is viewed as one matrix.

        Errors: Refused if an operand cannot be viewed as a matrix.
        """
        ops: list[tuple[Any, ...]] = []
        self._operands = []
        for link, operand in self.links:
            if link.kind == "eltwise":
                ops.append(("eltwise", link.algorithm, link.alpha, link.beta))
            elif operand is self.residual and operand is not None:
                ops.append(("sum", link.alpha if link.kind == "sum" else 1.0))
            else:
                assert operand is not None
                operand = _readable(e, operand)
                ops.append(("binary", link.algorithm, _operand_descriptor(operand, flat)))
                self._operands.append(operand)
        return {"post_ops": ops} if ops else {}

    def in_place(self, operands: Sequence[Value], strides: Sequence[int]) -> Value | None:
        """Returns the result in the residual's memory; drops the residual and returns None if layouts differ or it is read."""
        residual = self.residual
        if residual is None:
            return None
        read = {id(v.buffer) for v in operands} | {
            id(v.buffer) for _, v in self.links if v is not None and v is not residual
        }
        if not residual.has_strides(strides) or id(residual.buffer) in read:
            self.residual = None
            return None
        return Value(Shape(self.dtype, residual.lens, strides), residual.buffer, residual.offset)

    def arguments(self, made: Any) -> dict[int, Value]:
        """Returns the operands of the post-ops by argument index of the primitive."""
        numbers = [n for n in made.post_op_args if n]
        return dict(zip(numbers, self._operands, strict=True))


def _readable(e: CpuEmitter, operand: Value) -> Value:
    """Returns a post-op operand, copied if it is broadcast or strided in a way for which oneDNN reads wrong elements."""
    lens, strides = operand.lens, operand.strides
    real = sorted((s, n) for n, s in zip(lens, strides, strict=True) if n > 1 and s != 0)
    apart = [step for (step, _), (below, n) in zip(real[1:], real, strict=False) if step != below * n]
    whole = all(s != 0 or n == 1 for n, s in zip(lens, strides, strict=True))
    if not real or (real[0][0] == 1 and (whole or not apart)):
        return operand
    own = [1 if s == 0 else n for n, s in zip(lens, strides, strict=True)]
    copied = e.row_major(operand.view_at(0, Shape(operand.shape.dtype, own, strides)))
    repeated = [0 if s == 0 else c for s, c in zip(strides, copied.strides, strict=True)]
    return copied.view_at(0, Shape(operand.shape.dtype, lens, repeated))


def _operand_descriptor(operand: Value, flat: tuple[int, int] | None) -> Any:
    """Returns the descriptor of a post-op operand; flat: extents of the result if it is viewed as one matrix.

    Errors: Refused if the operand cannot be viewed that way.
    """
    lens, strides = operand.lens, operand.strides
    if flat is None:
        return descriptor(operand)
    outer = list(zip(lens[:-1], strides[:-1], strict=True))
    last = strides[-1] if lens[-1] != 1 else 0
    if all(s == 0 or n == 1 for n, s in outer):
        return (
            descriptor(operand, [1, flat[1]], [flat[1] * last, last]) if last else descriptor(operand, [1, 1], [1, 1])
        )
    step = next(s for n, s in reversed(outer) if n != 1)
    expected = step
    for n, s in reversed(outer):
        if n != 1 and s != expected:
            raise Refused("an operand of the epilogue cannot be viewed as a strided matrix")
        expected *= n
    return (
        descriptor(operand, [flat[0], flat[1]], [step, last]) if last else descriptor(operand, [flat[0], 1], [step, 1])
    )


def fused_epilogue(
    e: CpuEmitter, body: Module, args: Sequence[Value], build: Build, stored: frozenset[DType] = FLOATS
) -> Results:
    """Emits a group of anchor, reshapes and pointwise epilogue: the anchor with post-ops, or its members one by one.

    stored: result types that the anchor's primitive supports.
    """
    env: dict[Instruction, Value] = dict(zip(body.parameters.values(), args, strict=True))
    parts = [i for i in body if not (i.is_param or i.is_return or i.is_absent)]
    tail = parts[-1]
    anchor = next(i for i in parts if i.op.product)
    for ins in parts[: parts.index(anchor)]:
        env[ins] = e.emit(ins, env)
    between = parts[parts.index(anchor) + 1 : -1]
    operands = [e.value_of(i, env) for i in anchor.inputs]
    reshaped = [i for i in between if i.op.reshapes]
    for ins in between:
        if ins not in reshaped:
            env[ins] = e.emit(ins, env)
    if isinstance(tail.op, PointwiseGroup) and not reshaped:
        with e.trial() as trial:
            found = _epilogue(e, tail, anchor, env, stored)
            if isinstance(found, Epilogue):
                result = build(e, anchor, operands, found)
                trial.keep()
                return result
            e.note(found.why)
    env[anchor] = build(e, anchor, operands, None)
    for ins in reshaped:
        env[ins] = e.emit(ins, env)
    results: Results = e.emit(tail, env)
    return results


def _epilogue(
    e: CpuEmitter, tail: Instruction, anchor: Instruction, env: dict[Instruction, Value], stored: frozenset[DType]
) -> Epilogue | No:
    """Returns the pointwise group `tail` as post-ops of its anchor, with emitted operands, or `No`."""
    body = tail.modules[0]
    result = body.outputs[0].shape
    if result.dtype not in stored:
        return No(f"results of type {result.dtype} are not supported")
    parameters = list(body.parameters.values())
    at = tail.inputs.index(anchor)
    links = read_chain(body, parameters[at])
    if isinstance(links, No):
        return links
    rough = next((link.algorithm for link in links if link.algorithm in INACCURATE), None)
    if rough is not None:
        return No(f"oneDNN's {rough} is inaccurate for small results")
    finite = None if e.fast_math or not anchor.shape.dtype.is_float else next(filter(_changes_nonfinite, links), None)
    if finite is not None:
        return No(f"oneDNN's {finite.algorithm} does not preserve NaN and infinities, which requires fast_math")
    inner: dict[Instruction, Value] = {
        p: env[i] for p, i in zip(parameters, tail.inputs, strict=True) if i is not anchor
    }
    bound: list[tuple[Link, Value | None]] = []
    residual: Value | None = None
    for link in _fuse_dequantization(_split_sums(links, inner), inner):
        operand = None
        if link.operand is not None:
            operand = viewed(e, link.operand, inner) or _emit_operand(e, link.operand, inner)
            if operand is None or operand.shape.dtype not in NAMES:
                return No("an operand of the epilogue depends on the anchor or has an unsupported type")
            if residual is None and link.algorithm == "add" and e.may_overwrite(operand, result.dtype):
                residual = operand
        bound.append((link, operand))
    if residual is not None and sum(v is not None and v.buffer is residual.buffer for _, v in bound) > 1:
        residual = None  # in-place only if no other link reads it
    return Epilogue(result.dtype, result.lens(), bound, residual=residual)


def _changes_nonfinite(link: Link) -> bool:
    """Returns True if oneDNN's result for NaN or infinity differs from the definition."""
    return link.algorithm in NONFINITE_WRONG or (link.algorithm == "relu" and link.alpha == 0)


def _split_sums(links: Sequence[Link], env: dict[Instruction, Value]) -> list[Link]:
    """Replaces the addition of a sum by two additions."""
    flat: list[Link] = []
    for link in links:
        at = link.operand
        sums = at is not None and link.algorithm == "add" and at not in env and isinstance(at.op, Add)
        if at is not None and sums and all(_is_view(i, env) and i.shape.dims == at.shape.dims for i in at.inputs):
            flat += [Link("binary", "add", operand=i) for i in at.inputs]
        else:
            flat.append(link)
    return flat


def _fuse_dequantization(links: Sequence[Link], env: dict[Instruction, Value]) -> list[Link]:
    """Rewrites the addition of a dequantized tensor as x + (q - z) s = s (x / s - z + q), which reads the bytes q directly."""
    found: list[Link] = []
    for link in links:
        source = None if link.operand is None or link.algorithm != "add" else affine_bytes(link.operand, env)
        if source is None:
            found.append(link)
            continue
        q, scale, zero = source
        found.append(Link("eltwise", "linear", 1.0 / scale, -zero))
        found.append(Link("binary", "add", operand=q))
        found.append(Link("eltwise", "linear", scale, 0.0))
    return found


def affine_bytes(ins: Instruction, env: dict[Instruction, Value]) -> tuple[Instruction, float, float] | None:
    """Matches (q - z) s with bytes q and scalars s > 0 and z; returns q, s and z, or None."""
    scale, zero, at = 1.0, 0.0, ins
    if isinstance(at.op, Mul):
        found = scalar_of(at.inputs[1])
        if found is None or not 1e-30 < found < 1e30:
            return None
        scale, at = found, at.inputs[0]
    if isinstance(at.op, Sub):
        point = scalar_of(at.inputs[1])
        if point is None:
            return None
        zero, at = point, at.inputs[0]
    if not isinstance(at.op, Convert) or at.shape.dtype is not dt.float32 or at.inputs[0] not in env:
        return None
    return (at.inputs[0], scale, zero) if at.inputs[0].shape.dtype in (dt.int8, dt.uint8) else None


def _is_view(ins: Instruction, env: dict[Instruction, Value]) -> bool:
    return (
        ins in env
        or ins.is_literal
        or (ins.op.view is not None and len(ins.inputs) == 1 and _is_view(ins.inputs[0], env))
    )


def _emit_operand(e: CpuEmitter, ins: Instruction, env: dict[Instruction, Value]) -> Value | None:
    """Emits an operand of the epilogue ahead of the anchor; returns None if it depends on the anchor."""
    if ins in env:
        return env[ins]
    if ins.is_param:
        return None
    found = viewed(e, ins, env)
    if found is not None:
        return found
    for i in ins.inputs:
        value = _emit_operand(e, i, env)
        if value is None:
            return None
        env[i] = value
    made = e.emit(ins, env)
    if not isinstance(made, Value):
        return None
    made.buffer.readers += 1
    env[ins] = made
    return made
