"""Parsing state shared by all graphs of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from mgx_core import Module
from mgx_core.converting.converters import Converters
from mgx_core.converting.known import Known
from mgx_core.records import dataclass

from .effects import effects_of
from .graph import Functions, Graph
from .options import TfOptions
from .resources import Resources

__all__ = ["Context"]


@dataclass
class Context:
    """State shared by all graphs of a model: functions, options, converters, resources and consumed limits.

    on_tensors: converters of operators on tensors; on_values: converters that accept any value kind; initializing: True while
    table initializers run, in a module that is then discarded.
    """

    main: Module
    options: TfOptions
    functions: Functions
    on_tensors: Converters
    on_values: Converters
    resources: Resources
    load_for: Callable[[str], None]  # imports the converters of an operator on first use
    known: Known = field(default_factory=Known)
    nodes: int = 0
    names: dict[str, int] = field(default_factory=dict)
    initializing: bool = False

    def effects(self, graph: Graph) -> set[str]:
        """Returns the names of a graph's nodes with side effects."""
        return effects_of(graph, self.functions, bool(self.resources.changing))

    def module_name(self, wanted: str) -> str:
        """Returns a unique module name."""
        count = self.names.get(wanted, 0)
        self.names[wanted] = count + 1
        return wanted if not count else f"{wanted}_{count}"
