"""Steps of device programs: kernels, plans of libraries, and Python functions."""

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
    """One kernel (one or several launches) on its operands."""

    source: KernelSource = field(kw_only=True)
    inputs: Sequence[Value | None] = field(kw_only=True)
    outputs: Sequence[Value] = field(kw_only=True)
    scratch: Sequence[Buffer] = field(kw_only=True)


@dataclass(eq=False, slots=True)
class LibraryStep(Step):
    """One library plan; operands by the names that its launch takes, and the bytes that their addresses are multiples of.

    window: bytes from the start of the workspace to the plan's part of it, None where it has the workspace for itself.
    """

    plan: Any = field(kw_only=True)
    operands: Mapping[str, Value] = field(kw_only=True)
    aligns: Mapping[str, int] = field(kw_only=True)
    workspace: Buffer | None = field(kw_only=True)
    window: int | None = field(default=None, kw_only=True)


@dataclass(eq=False, slots=True)
class CalledStep(Step):
    """A Python function that a run calls in its place among the steps; such programs are not captured."""

    given: Sequence[Value] = field(kw_only=True)
    outputs: Sequence[Value] = field(kw_only=True)


@dataclass(eq=False, slots=True)
class HostStep(CalledStep):
    """A function on the host: operands are copied there and results back."""

    function: HostFunction = field(kw_only=True)


@dataclass(eq=False, slots=True)
class DeviceStep(CalledStep):
    """A function that works in the device's memory, on the context's queue."""

    function: DeviceFunction = field(kw_only=True)
