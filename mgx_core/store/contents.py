"""Contents of a program file, as the record from which `mgx_core.Program` is loaded and to which it is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..records import dataclass

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from ..run.executable import Executable
    from ..targets.target import Target

__all__ = ["Contents", "Storable"]


class Storable(Protocol):
    """A program: its modules, result names and executable."""

    @property
    def graph(self) -> Graph: ...
    @property
    def output_names(self) -> list[str]: ...
    @property
    def executable(self) -> Executable | None: ...
    @property
    def states(self) -> dict[str, Any]: ...


@dataclass
class Contents:
    """A program as it was read.

    graph: returns the modules, decoded lazily; again: target and options to compile for if the file contains no usable compiled
    code.
    """

    graph: Callable[[], Graph]
    output_names: list[str]
    executable: Executable | None = None
    again: tuple[Target, Mapping[str, Any]] | None = None
