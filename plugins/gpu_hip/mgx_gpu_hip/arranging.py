"""What of a lowered module runs on the device, put together as steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Module, Shape, TupleShape
from mgx_core.interpret import reads

from .emitter import Emitter, KernelStep
from .values import Buffer, Value

__all__ = ["kernel_steps", "put_together"]


def kernel_steps(e: Emitter) -> list[KernelStep]:
    """The steps that launch kernels of ours."""
    return [s for s in e.steps if isinstance(s, KernelStep) and s.source.launches]


def put_together(e: Emitter, module: Module) -> tuple[list[Instruction], list[Instruction], list[Value]]:
    """Emit what runs on the device: what is left for the host, op by op, the instructions that are wanted of the device, their
    values.

    Left are control flow and what has extents that depend on data.
    """
    static = _static_part(module)
    rest = [i for i in module if i not in static and not (i.is_param or i.is_literal or i.is_return or i.is_absent)]
    wanted = dict.fromkeys(o for o in module.outputs if o in static)
    for ins in rest:
        wanted.update(dict.fromkeys(r for r in reads(ins) if r in static))
    return rest, list(wanted), _emit(e, module, static, list(wanted))


def _fixed(ins: Instruction) -> bool:
    if ins.is_return or ins.is_absent:
        return True
    items = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
    return all(isinstance(s, Shape) and not s.dynamic() and s.dtype.kind not in "sc" for s in items)


def _tensor(ins: Instruction) -> bool:
    return isinstance(ins.result, Shape) and _fixed(ins)


def _static_part(module: Module) -> set[Instruction]:
    """Instructions with fixed extents whose needs are all fixed too, control flow excepted."""
    found: set[Instruction] = set()
    for ins in module:
        if ins.is_return or ins.is_param or ins.is_absent or ins.is_literal:
            continue
        if getattr(ins.op, "control", False) or not _fixed(ins):
            continue
        if all(i in found or i.is_absent or ((i.is_param or i.is_literal) and _tensor(i)) for i in reads(ins)):
            found.add(ins)
    return found


def _emit(e: Emitter, module: Module, static: set[Instruction], wanted: Sequence[Instruction]) -> list[Value]:
    env: dict[Instruction, Any] = {}
    for index, p in enumerate(module.parameters.values()):
        if not _tensor(p):
            continue
        shape = p.shape
        buffer = Buffer("input", shape.elements() * shape.dtype.size, index=index)
        e.buffers.append(buffer)
        env[p] = Value(Shape.of(shape.dtype, shape.dims), buffer)
    for ins in module:
        if ins in static:
            env[ins] = e.emit(ins, env)
    return [_output(e, e.value_of(o, env), n) for n, o in enumerate(wanted)]


def _output(e: Emitter, value: Value, index: int) -> Value:
    """A result in memory of its own, row-major."""
    buffer = value.buffer
    plain = Shape(value.shape.dtype, value.lens)
    size = max(plain.elements() * plain.dtype.size, 1)
    dense = all(n == 1 or a == b for n, a, b in zip(value.lens, value.strides, plain.strides(), strict=True))
    if buffer.kind == "arena" and dense and value.offset == 0 and buffer.bytes == size:
        buffer.kind, buffer.index = "output", index
        return Value(plain, buffer)
    made = Buffer("output", size, index=index)
    e.buffers.append(made)
    out = Value(plain, made)
    e.copy_into(value, out)
    return out
