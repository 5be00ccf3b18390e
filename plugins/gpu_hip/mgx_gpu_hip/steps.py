"""Steps of device programs: kernels, library plans and Python functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgx_core.targets.kernel_emission import DeviceFunction, HostFunction
from mgx_core.targets.schedule import Step
from mgx_core.targets.values import Buffer, Value

from .codegen.source import KernelSource

__all__ = ["CalledStep", "DeviceStep", "HostStep", "KernelStep", "LibraryStep"]


@dataclass(eq=False, slots=True)
class KernelStep(Step):
    """One kernel, launched once or several times, and its operands."""

    source: KernelSource = field(kw_only=True)
    inputs: Sequence[Value | None] = field(kw_only=True)
    outputs: Sequence[Value] = field(kw_only=True)
    scratch: Sequence[Buffer] = field(kw_only=True)


@dataclass(eq=False, slots=True)
class LibraryStep(Step):
    """One library plan; operands and required alignments in bytes by launch parameter.

    window: offset in bytes of the plan's part of the shared workspace; None if its workspace is not shared.
    """

    plan: Any = field(kw_only=True)
    operands: Mapping[str, Value] = field(kw_only=True)
    aligns: Mapping[str, int] = field(kw_only=True)
    workspace: Buffer | None = field(kw_only=True)
    window: int | None = field(default=None, kw_only=True)


@dataclass(eq=False, slots=True)
class CalledStep(Step):
    """A Python function called between device steps; programs with one are not captured as a graph."""

    inputs: Sequence[Value] = field(kw_only=True)
    outputs: Sequence[Value] = field(kw_only=True)


@dataclass(eq=False, slots=True)
class HostStep(CalledStep):
    """A function on the host: its operands are copied to the host and its results to the device."""

    function: HostFunction = field(kw_only=True)


@dataclass(eq=False, slots=True)
class DeviceStep(CalledStep):
    """A function on device memory that enqueues its work on the context's queue."""

    function: DeviceFunction = field(kw_only=True)
