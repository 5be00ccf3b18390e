"""Binds steps to addresses, ready to be enqueued on a stream one by one or captured as a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mgx_core.errors import DeviceError
from mgx_core.targets.schedule import Step

from .codegen.source import Buffer as KernelBuffer
from .codegen.source import Chained
from .compile.build import Code
from .emitter import LIBRARY_ALIGNMENT
from .runtime import Device, Function, Launch
from .steps import CalledStep, KernelStep, LibraryStep

__all__ = [
    "BoundStep", "GeneratedLaunch", "LibraryCall", "bound_steps", "loaded_functions", "naming_errors", "required_alignment",
    "struct_codes",
]  # fmt: skip

STRUCT_CODES: Final = {
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
    "float": "f",
    "double": "d",
}  # struct format characters


class BoundStep(NamedTuple):
    """A step and the calls that enqueue it on a stream; no calls for one that runs a Python function."""

    step: Step
    calls: list[Callable[[int], None]]


@dataclass(frozen=True, slots=True)
class GeneratedLaunch:
    """A launch of a generated kernel; chained: positions of its `Chained` arguments."""

    launch: Launch
    chained: tuple[int, ...]

    def __call__(self, stream: int, /) -> None:
        self.launch(stream)


class LibraryCall:
    """A call of a library plan; the plan and the addresses of operands may be changed between calls.

    Errors: DeviceError for an address less aligned than the plan requires.
    """

    __slots__ = ("operands", "plan", "workspace")

    def __init__(self, step: LibraryStep, addresses: Mapping[int, int]) -> None:
        self.plan = step.plan
        self.operands = {word: addresses[id(v.buffer)] + v.byte_offset for word, v in step.operands.items()}
        for word, address in self.operands.items():
            if address % step.aligns[word]:
                with naming_errors(step):
                    raise DeviceError(f"{word} must be aligned to {step.aligns[word]} bytes, got {address:#x}")
        self.workspace = None if step.workspace is None else addresses[id(step.workspace)] + (step.window or 0)

    def __call__(self, stream: int, /) -> None:
        self.plan.launch(stream, workspace=self.workspace, **self.operands)


def loaded_functions(
    device: Device, kernels: Sequence[KernelStep], codes: Sequence[Code]
) -> dict[int, dict[str, Function]]:
    """Returns the functions of each step by entry, by the step's id; equal layers share a source, and its functions."""
    made: dict[int, dict[str, Function]] = {}
    loaded: dict[int, dict[str, Function]] = {}  # by source
    for step, code in zip(kernels, codes, strict=True):
        found = loaded.get(id(step.source))
        if found is None:
            module = device.load(code.image)
            found = {la.entry: module.function(la.entry, struct_codes(la.args)) for la in step.source.launches}
            loaded[id(step.source)] = found
        made[id(step)] = found
    return made


def bound_steps(
    steps: Iterable[Step],
    addresses: Mapping[int, int],
    functions: Mapping[int, Mapping[str, Function]],
    overlap: bool,
) -> list[BoundStep]:
    """Returns each step with its calls.

    addresses: by id of buffer; functions: by id of step, then by entry; overlap: a kernel may start before the kernel enqueued
    just before it has finished.  Errors: DeviceError for an address less aligned than a library plan requires.
    """
    made: list[BoundStep] = []
    for step in steps:
        calls: list[Callable[[int], None]] = []
        if isinstance(step, LibraryStep):
            calls = [LibraryCall(step, addresses)]
        elif isinstance(step, KernelStep):
            follows = bool(made) and not isinstance(made[-1].step, CalledStep)
            calls = _kernel_calls(step, addresses, functions.get(id(step), {}), overlap, follows)
        made.append(BoundStep(step, calls))
    for before, after in pairwise(_in_order(made)):
        if isinstance(before, GeneratedLaunch) and isinstance(after, GeneratedLaunch) and after.launch.early:
            for index in before.chained:
                before.launch.set(index, 1)
    return made


def _in_order(steps: Iterable[BoundStep]) -> Iterator[Callable[[int], None] | Step]:
    """Yields all calls in order, and each called step at its position."""
    for step, calls in steps:
        if isinstance(step, CalledStep):
            yield step
        yield from calls


def _kernel_calls(
    step: KernelStep,
    addresses: Mapping[int, int],
    functions: Mapping[str, Function],
    overlap: bool,
    follows: bool,
) -> list[Callable[[int], None]]:
    """Returns the calls of a step's launches; follows: the previous call is a kernel, whose end the first launch may overlap."""
    calls: list[Callable[[int], None]] = []
    early = overlap and follows and step.source.overlaps
    for la in step.source.launches:
        args: list[Any] = []
        for arg in la.args:
            if isinstance(arg, KernelBuffer):
                if arg.kind == "scratch":
                    args.append(addresses[id(step.scratch[arg.index])])
                else:
                    value = (step.inputs if arg.kind == "input" else step.outputs)[arg.index]
                    args.append(0 if value is None else addresses[id(value.buffer)] + value.byte_offset)
            else:
                args.append(arg.value)
        launch = functions[la.entry].bind(la.grid, la.block, la.shared_bytes, args, overlap=early)
        calls.append(GeneratedLaunch(launch, tuple(n for n, a in enumerate(la.args) if isinstance(a, Chained))))
        early = overlap
    return calls


def required_alignment(steps: Iterable[Step]) -> dict[int, int]:
    """Returns the alignment in bytes that library plans require of arguments and results, by id of buffer.

    Buffers used by generated kernels only are omitted: `LIBRARY_ALIGNMENT` holds for these, as for all.
    """
    found: dict[int, int] = {}
    for step in steps:
        if isinstance(step, LibraryStep):
            for word, value in step.operands.items():
                key = id(value.buffer)
                found[key] = max(found.get(key, LIBRARY_ALIGNMENT), step.aligns[word])
    return found


def struct_codes(args: Sequence[Any]) -> str:
    """Returns the struct format of a launch's arguments, with P for addresses."""
    return "".join("P" if isinstance(a, KernelBuffer) else STRUCT_CODES[a.ctype] for a in args)


@contextmanager
def naming_errors(step: Step) -> Iterator[None]:
    """Context manager that adds the kernel, the package it comes from and its source nodes to device errors."""
    try:
        yield
    except DeviceError as error:
        origin = step.source.origin if isinstance(step, KernelStep) else ""
        nodes = ", ".join(repr(name) for name in step.sources)
        raise error.located((origin or f"kernel {step.name}") + (f", made from {nodes}" if nodes else "")) from None
