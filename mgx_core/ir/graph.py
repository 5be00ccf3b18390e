"""Named modules, one of which, ``main``, is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import ParameterError
from .module import Module, nested

__all__ = ["Graph", "names_of_results"]


def names_of_results(stated: Sequence[str], main: Module) -> list[str]:
    """The names of what a module returns: those stated, or ``output_0`` and so on."""
    return list(stated) or [f"output_{n}" for n in range(len(main.outputs))]


class Graph:
    """The modules of a program by name; sub-modules belong to the instructions that run them and are found through them."""

    def __init__(self, main: Module | None = None) -> None:
        self.main = Module("main") if main is None else main
        self._loose: dict[str, Module] = {}  # made by hand and not yet given to an instruction

    def modules(self) -> dict[str, Module]:
        """All modules by name, ``main`` first.  Errors: ParameterError if two share a name."""
        found: dict[str, Module] = {}
        for module in (*nested(self.main), *self._loose.values()):
            if found.setdefault(module.name, module) is not module:
                raise ParameterError(f"two modules are called {module.name!r}")
        return found

    def create_module(self, name: str) -> Module:
        """An empty module to be filled and handed to an instruction.  Errors: ParameterError if the name is taken."""
        if name in self.modules():
            raise ParameterError(f"there is a module {name!r} already")
        module = self._loose[name] = Module(name)
        return module

    def clone(self) -> Graph:
        return Graph(self.main.clone())

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules().values())
