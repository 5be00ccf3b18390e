"""State shared by all graphs of one model while it is parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mgx_core import Instruction, UnrankedError
from mgx_core.converting.known import Known

from .converter import Converters
from .messages import onnx
from .options import OnnxOptions
from .tensors import DataFolder

__all__ = ["Defer", "ModelContext"]

# of a parser, a node and the error: the node's results, as instructions that are converted at run time; or raises the error again
Defer: TypeAlias = Callable[[Any, Any, UnrankedError], Sequence[Instruction | None]]


@dataclass
class ModelContext:
    """Opsets by domain, local functions, options, converters, used budgets."""

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    options: OnnxOptions
    converters: Converters
    folder: DataFolder
    known: Known = field(default_factory=Known)
    nodes: int = 0
    budget: int = 1 << 60
    defer: Defer | None = None
    names: dict[str, int] = field(default_factory=dict)

    def module_name(self, wanted: str) -> str:
        """A module name that no other module of the program has."""
        count = self.names.get(wanted, 0)
        self.names[wanted] = count + 1
        return wanted if not count else f"{wanted}_{count}"
