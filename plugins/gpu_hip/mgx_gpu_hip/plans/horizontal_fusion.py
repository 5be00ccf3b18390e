"""Horizontal fusion: small independent instructions in one launch, see `JoinLaunches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import Group
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results

from ..codegen.horizontal_fusion import fuse_horizontally
from ..codegen.limits import require_limits
from ..emitter import GpuEmitter, tensor_of
from ..join_launches import HORIZONTAL
from ..steps import KernelStep
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


@offer(PLANS, Group, name="side by side", when=tagged(HORIZONTAL, "a group of independent instructions"))
def emit_fused(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch."""
    e.uncacheable()  # merges the steps of its members
    first = len(e.steps)
    results = e.emit_body(modules[0], args)
    steps = [s for s in e.steps[first:] if isinstance(s, KernelStep)]
    if len(steps) < max(2, len(e.steps) - first):
        raise Refused("not every member is a generated kernel")
    written = [id(b) for s in steps for b in s.writes]
    if len(set(written)) < len(written) or any(id(b) in written for s in steps for b in s.reads):
        raise Refused("a member needs several launches")
    inputs = [v for s in steps for v in (*s.inputs, *[None] * (s.source.inputs - len(s.inputs)))]
    outputs = [v for s in steps for v in s.outputs]
    xs, ys = [None if v is None else tensor_of(v) for v in inputs], [tensor_of(v) for v in outputs]
    sources = tuple(s.source for s in steps)
    source = or_refused(
        e.once(
            (fuse_horizontally, *(s.text for s in sources), tuple(xs), tuple(ys)),
            lambda: fuse_horizontally(sources, xs, ys),
        )
    )
    require_limits(source, e.context.traits)
    del e.steps[first:]
    e.launch(source, inputs, outputs)
    return results[0] if len(results) == 1 else tuple(results)
