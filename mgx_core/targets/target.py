"""Targets: where programs run.  A target offers kernels; everything else it may leave to the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..ir.interpreter import Interpreter, Observer
from ..ir.module import Module, nested
from ..options import CompileOptions
from ..types.argument import Argument, Value
from .kernel import Kernels
from .memory import MemoryPlan

__all__ = ["Context", "HostContext", "HostRunner", "Runner", "Target", "runner_of"]


@runtime_checkable
class Context(Protocol):
    """A device as a target sees it: what kernels are made for and launched on."""

    @property
    def target(self) -> Target: ...

    def finish(self) -> None:
        """Wait until everything launched is done."""
        ...


@runtime_checkable
class Target(Protocol):
    """Where programs run.

    Required: a name, a context and kernels.  Optional, found by name: ``passes(stage, context, options) -> Sequence[Pass]`` adds
    passes to a stage; ``runner(module, plan, context, options) -> Runner`` replaces the runner that calls kernels from Python.
    The others are in docs/plugins.md.
    """

    @property
    def name(self) -> str: ...

    def get_context(self) -> Context: ...

    def kernels(self, context: Any) -> Kernels: ...


class Runner(Protocol):
    """A lowered and planned module, ready to run."""

    def run(self, args: Sequence[Value]) -> list[Value]:
        """Results for the values of the module's parameters in order; may be called from several threads at once."""
        ...


class HostContext:
    """The context of a target that runs on the host as the calls come."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def finish(self) -> None:
        return None

    def __repr__(self) -> str:
        return f"context of target {self.target.name!r}"


class HostRunner:
    """Calls each launch's kernel from Python, in order; values die after their last use."""

    def __init__(self, module: Module) -> None:
        for inner in nested(module):
            for ins in inner:
                if ins.literal is not None:
                    ins.literal = aligned(ins.literal)
        self.module = module

    def run(self, args: Sequence[Value], observe: Observer | None = None) -> list[Value]:
        return Interpreter(observe).run(self.module, args)


def aligned(literal: Argument) -> Argument:
    """The literal in memory on which numpy computes at full speed (weights borrowed from files lie at any address)."""
    value = literal.value
    if isinstance(value, np.ndarray) and not value.flags.aligned:
        return Argument.from_value(value.copy(), literal.shape)
    return literal


def runner_of(target: Target, module: Module, plan: MemoryPlan, context: Any, options: CompileOptions) -> Runner:
    """The target's own runner for a lowered module, or the one that calls kernels from Python."""
    make = getattr(target, "runner", None)
    return HostRunner(module) if make is None else make(module, plan, context, options)
