"""Conversion state shared by all subgraphs of a file: converters, options, states and tables."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from mgx_core import Instruction, Module
from mgx_core.converting.converters import Converter, Converters, no_converter
from mgx_core.converting.known import Known
from mgx_core.converting.states import States
from mgx_core.records import dataclass
from mgx_core.types.argument import Array

from .model import Model
from .options import TfliteOptions

__all__ = ["Context"]


@dataclass
class Context:
    """The model, options, converters, variables and tables, shared by all subgraphs."""

    main: Module
    model: Model
    options: TfliteOptions
    converters: Converters
    known: Known = field(default_factory=Known)
    nodes: int = 0
    names: dict[str, int] = field(default_factory=dict)
    states: dict[str, tuple[Instruction, Array]] = field(default_factory=dict)  # parameter and initial value
    assigned: States = field(default_factory=States)
    initial: dict[str, Array] = field(default_factory=dict)  # assigned by a CALL_ONCE
    tables: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    initializing: bool = False
    stateful: dict[int, bool] = field(default_factory=dict)  # subgraphs that may assign a state
    shared: dict[str, Any] = field(default_factory=dict)  # storage for plugins' converters

    def converter(self, name: str) -> Converter:
        """Returns the converter of an operator.  Errors: UnsupportedError."""
        found = self.converters.find("", name, 1)
        if found is None:
            raise no_converter(name)
        return found
