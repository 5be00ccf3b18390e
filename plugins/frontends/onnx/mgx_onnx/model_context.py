"""Parsing state shared by all graphs of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from mgx_core import Instruction, UnrankedError
from mgx_core.converting.known import Known
from mgx_core.log import log
from mgx_core.records import dataclass

from .converter import Converters
from .messages import onnx
from .node import Node
from .options import OnnxOptions
from .tensors import DataFolder

__all__ = ["Defer", "ModelContext"]

# (parser, node, error) -> the node's results as instructions that are converted at run time; may raise the error again
Defer: TypeAlias = Callable[[Any, Any, UnrankedError], Sequence[Instruction | None]]


@dataclass
class ModelContext:
    """Opsets by domain, local functions, options, converters, consumed limits."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    options: OnnxOptions
    converters: Converters
    folder: DataFolder
    known: Known = field(default_factory=Known)
    nodes: int = 0
    budget: int = 1 << 60
    defer: Defer | None = None
    channel_block: int = 0  # channels per block of the domain com.microsoft.nchwc; 0 if no node has it
    names: dict[str, int] = field(default_factory=dict)
    told: set[tuple[str, str, str]] = field(default_factory=set)  # attributes already warned about, by operator

    def module_name(self, wanted: str) -> str:
        """Returns a unique module name."""
        count = self.names.get(wanted, 0)
        self.names[wanted] = count + 1
        return wanted if not count else f"{wanted}_{count}"

    def warn_of_undefined_attributes(self, node: Node) -> None:
        """Warns once per operator and attribute of attributes without effect; raises an error with the option `strict`."""
        for name in node.without_effect():
            if self.options.strict:
                raise node.error(f"the operator does not define the attribute {name!r} (option strict)")
            if (node.domain, node.op_type, name) not in self.told:
                self.told.add((node.domain, node.op_type, name))
                log.warning("%r has an attribute %r, which the operator does not define; it has no effect", node, name)
