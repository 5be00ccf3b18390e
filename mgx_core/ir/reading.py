"""Read-only protocols of modules and instructions, for code that `Module` itself calls (printing, uses of symbols)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..ops.operation import Operation
from ..types.argument import Argument
from ..types.shape import AnyShape

__all__ = ["Step", "Steps", "nested"]


class Step(Protocol):
    """The read-only protocol of `Instruction`."""

    @property
    def op(self) -> Operation: ...
    @property
    def result(self) -> AnyShape: ...
    @property
    def inputs(self) -> Sequence[Step]: ...
    @property
    def modules(self) -> Sequence[Steps]: ...
    @property
    def literal(self) -> Argument | None: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def parent(self) -> Steps | None: ...
    @property
    def next(self) -> Step | None: ...

    @property
    def previous(self) -> Step | None: ...
    @property
    def is_param(self) -> bool: ...
    @property
    def is_return(self) -> bool: ...
    @property
    def is_absent(self) -> bool: ...


class Steps(Protocol):
    """The read-only protocol of `Module`."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Step]: ...
    @property
    def returned(self) -> Step | None: ...
    @property
    def last(self) -> Step | None: ...
    @property
    def modules(self) -> Sequence[Steps]: ...
    def __iter__(self) -> Iterator[Step]: ...


M = TypeVar("M", bound=Steps)


def nested(module: M) -> Iterator[M]:
    """Returns the module and all modules below it, each once, outermost first."""
    return _nested(module, set())


def _nested(module: M, seen: set[M]) -> Iterator[M]:
    seen.add(module)
    yield module
    inner: Any
    for inner in module.modules:
        if inner not in seen:
            yield from _nested(inner, seen)
