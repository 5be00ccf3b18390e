"""Attention of a decoder's new token with its rotation and the copies of its caches, in one launch: see `JoinCaches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Kernels, Module, No, Operation
from mgx_core.errors import UnsupportedError
from mgx_core.ops.control import Group
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.attention_cached import NewToken, cached_attention
from ..codegen.attention_pattern import from_group
from ..codegen.bodies import through_chain
from ..codegen.generators import Inputs
from ..codegen.geometry import uniform_step
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_caches import CACHED, CachedAttention
from .offer import offer
from .product_groups import group_results, operand

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _members(body: Module) -> CachedAttention:
    attention = next(i for i in body if isinstance(i.op, Group))
    found = CachedAttention.of(attention)
    assert found is not None
    return found


def _sources(group: CachedAttention) -> list[Instruction]:
    """Returns the kernel's operands: those of the attention, with old caches and queries before the rotation, then the others."""
    found = []
    for n, ins in enumerate(group.attention.inputs):
        if n in group.caches:
            found.append(group.caches[n].inputs[0])
        else:
            found.append(group.turned[n].inputs[0] if n in group.turned else ins)
    for n, cache in group.caches.items():
        found.append(group.turned[n].inputs[0] if n in group.turned else cache.inputs[1])
    return [*found, *(angles for turned in group.turned.values() for angles in turned.inputs[1:])]


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """Generates the kernel; xs: see `_sources`; ys: the result, then the caches in the order of the attention's operands."""
    group = _members(modules[0])
    count = len(group.attention.inputs)
    inputs = [x for x in xs[:count] if x is not None]
    try:
        for n in range(count):
            whole = group.caches.get(n) or group.turned.get(n)
            if whole is not None:
                inputs[n] = _moved(group.attention.inputs[n], whole, inputs[n])
        for n, turned in group.turned.items():
            seen = group.caches[n].inputs[1] if n in group.caches else group.attention.inputs[n]
            rotated = _moved(seen, turned, inputs[n])
            if uniform_step(rotated.lens, rotated.strides) != 1:  # the kernel finds the angles of a batch by its heads
                return No("the rotated queries or new keys are not in the order of the caches' heads")
    except UnsupportedError as error:
        return No(str(error))
    pattern = from_group(group.attention.modules[0], inputs, ys[0])
    if isinstance(pattern, No):
        return pattern
    places = {n: count + at for at, n in enumerate(group.caches)}
    if list(places) != [pattern.k.index, pattern.v.index] or pattern.v.index in group.turned:
        return No("the two caches are not the keys and values, in this order")
    first = count + len(places)
    angles = {n: (first + 2 * at, first + 2 * at + 1) for at, n in enumerate(group.turned)}
    if not set(angles) <= {pattern.q.index, pattern.k.index}:
        return No("a rotated operand is neither the queries nor the keys")
    token = NewToken(
        places[pattern.k.index], places[pattern.v.index], angles.get(pattern.q.index), angles.get(pattern.k.index)
    )
    return cached_attention(pattern, token, xs, ys, traits)


def _moved(ins: Instruction, whole: Instruction, x: Tensor) -> Tensor:
    """Returns a view of `whole`, if that is row-major, as a tensor; x: the operand of `whole`."""
    chain: list[Operation] = []
    while ins is not whole:
        chain.insert(0, ins.op)
        ins = ins.inputs[0]
    _, shape = through_chain(chain, whole.shape.as_standard())
    return x._replace(lens=tuple(shape.lens()), strides=tuple(shape.strides()))


@offer(PLANS, Group, name="cached attention", when=tagged(CACHED, "attention with copies of its caches"), write=write)
def emit_cached(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch, or two without clusters."""
    body = modules[0]
    group = _members(body)
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    given: list[Value | None] = []
    as_is = {n for n in range(len(group.attention.inputs)) if n not in group.caches and n not in group.turned}
    for n, ins in enumerate(_sources(group)):
        value = operand(e, ins, env)
        given.append(value if n in as_is else e.aligned(e.row_major(value)))
    results, outs = group_results(e, body)
    order = [group.attention, *group.caches.values()]
    made = dict(zip(body.outputs, outs, strict=True))
    e.kernel(write, op, modules, given, [made[i] for i in order])
    return results
