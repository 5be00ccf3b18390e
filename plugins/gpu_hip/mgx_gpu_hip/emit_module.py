"""What of a lowered module runs on the device, put together as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgx_core import Instruction, Module, Shape
from mgx_core.ir.interpreter import reads
from mgx_core.targets.kernel import op_of
from mgx_core.targets.placement import Placement
from mgx_core.targets.static_part import fixed_tensor, static_part

from .continuation.segments import Following, cut
from .emitter import AnyStep, Emitter, HostStep, KernelStep
from .kernel import Declined
from .values import Buffer, Value

__all__ = ["Arranged", "Named", "kernel_steps", "on_host", "put_together"]


def kernel_steps(e: Emitter) -> list[KernelStep]:
    """The steps that launch kernels of ours."""
    return [s for s in e.steps if isinstance(s, KernelStep) and s.source.launches]


@dataclass
class Arranged:
    """What of a module runs on the device and what is left.

    outputs: values in memory of their own that a run leaves: those of the instructions `wanted`, then for each of `opening` its
    rows (rows first in memory) and their number.  rest: instructions that run op by op on the host; following: what runs instead
    behind extents that the values decide.
    """

    rest: list[Instruction]
    wanted: list[Instruction]
    outputs: list[Value]
    opening: list[Instruction] = field(default_factory=list)
    following: Following | None = None

    @property
    def whole(self) -> bool:
        """Whether every result is made by the steps."""
        return not self.rest and self.following is None


def put_together(e: Emitter, module: Module, make: Callable[[Module], Any]) -> Arranged:
    """Emit what runs on the device.  Left are control flow and what has extents that depend on data.

    make: a runner for what follows extents that depend on data.
    """
    static = set(static_part(module))
    found = cut(module, static)
    env = _emit(e, module, static)
    opening: dict[Instruction, tuple[Value, Value]] = {}
    for ins, (axis, most) in list(found.opening.items()):
        try:
            opening[ins] = e.counted(ins, env, axis, most)
        except Declined as why:
            e.note(f"{op_of(ins).name}: {why}")
            del found.opening[ins]
    rest = [i for i in module if i not in static and not (i.is_param or i.is_literal or i.is_return or i.is_absent)]
    wanted = dict.fromkeys(o for o in module.outputs if o in static)
    for ins in rest:
        if ins not in opening:
            wanted.update(dict.fromkeys(r for r in reads(ins) if r in static))
    values = [e.value_of(o, env) for o in wanted] + [v for pair in opening.values() for v in pair]
    outputs = [_output(e, value, n) for n, value in enumerate(values)]
    following = Following.of(module, static, found, e.context, make) if found else None
    return Arranged([] if following else rest, list(wanted), outputs, list(opening), following)


def on_host(steps: Sequence[AnyStep], rest: Sequence[Instruction]) -> list[Placement]:
    """What runs by its own definition on the host after all."""
    hosted = [s for s in steps if isinstance(s, HostStep)]
    found = [Placement(repr(s.op), s.nodes, "host", s.kernel.name, (s.why,)) for s in hosted]
    found += [Placement(repr(i.op), i.sources, "host", s.name, (s.why,)) for s in hosted for i in _inside(s.modules)]
    for ins in rest:
        control = ins.op.control
        why = "control flow runs on the host" if control else "its extents depend on data"
        found += [
            Placement(repr(op_of(i)), i.sources, "host", "reference", (why,))
            for i in (_inside(ins.modules) if control else [ins])
        ]
    return found


def _inside(modules: Sequence[Module]) -> Iterator[Instruction]:
    """What modules of control flow compute, members of groups included."""
    for module in modules:
        for ins in module:
            if not (ins.is_param or ins.is_literal or ins.is_return or ins.is_absent):
                yield ins
            yield from _inside(ins.modules)


class Named:
    """A kernel step as the compiler's driver wants sources."""

    def __init__(self, step: KernelStep) -> None:
        self.name = step.source.name
        self.text = step.source.text
        self.nodes = step.nodes


def _emit(e: Emitter, module: Module, static: set[Instruction]) -> dict[Instruction, Any]:
    env: dict[Instruction, Any] = {}
    for index, p in enumerate(module.parameters.values()):
        if not fixed_tensor(p):
            continue
        shape = p.shape
        buffer = Buffer("input", int(shape.elements()) * shape.dtype.size, index=index)
        e.buffers.append(buffer)
        env[p] = Value(Shape.of(shape.dtype, shape.dims), buffer)
    for ins in module:
        if ins in static:
            env[ins] = e.emit(ins, env)
    return env


def _output(e: Emitter, value: Value, index: int) -> Value:
    """A result in memory of its own, row-major."""
    buffer = value.buffer
    plain = Shape(value.shape.dtype, value.lens)
    size = max(int(plain.elements()) * plain.dtype.size, 1)
    dense = all(n == 1 or a == b for n, a, b in zip(value.lens, value.strides, plain.strides(), strict=True))
    if buffer.kind == "arena" and dense and value.offset == 0 and buffer.bytes == size:
        buffer.kind, buffer.index = "output", index
        return Value(plain, buffer)
    made = Buffer("output", size, index=index)
    e.buffers.append(made)
    out = Value(plain, made)
    e.copy_into(value, out)
    return out
