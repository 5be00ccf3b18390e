"""The named modules of a program; ``main`` is the entry point."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ParameterError, suggestion
from .copying import Copies
from .instruction import Instruction
from .module import Module, nested
from .symbols import Substitution

__all__ = ["Graph"]


class Graph:
    """The modules of a program by name; sub-modules belong to the instructions that run them and are found through them."""

    def __init__(self, main: Module | None = None) -> None:
        self.main = Module("main") if main is None else main
        self._loose: dict[str, Module] = {}  # created, but not yet owned by an instruction

    def modules(self) -> dict[str, Module]:
        """Returns all modules by name, ``main`` first.  Errors: ParameterError if two share a name."""
        found: dict[str, Module] = {}
        for module in (*nested(self.main), *self._loose.values()):
            if found.setdefault(module.name, module) is not module:
                raise ParameterError(f"two modules are called {module.name!r}")
        return found

    def create_module(self, name: str) -> Module:
        """Returns an empty module that an instruction will run.  Errors: ParameterError if the name is taken."""
        if name in self.modules():
            raise ParameterError(f"there is a module {name!r} already")
        module = self._loose[name] = Module(name)
        return module

    def module(self, name: str) -> Module:
        """Returns a module by name.  Errors: ParameterError if there is none."""
        found = self.modules().get(name)
        if found is None:
            raise ParameterError(f"there is no module {name!r}; {suggestion(name, self.modules())}")
        return found

    def rename_module(self, old: str, new: str) -> None:
        """Gives a module another name.  Errors: ParameterError for main, or if the new name is taken."""
        module = self.module(old)
        if module is self.main:
            raise ParameterError("the main module keeps its name")
        if old == new:
            return
        if new in self.modules():
            raise ParameterError(f"there is a module {new!r} already")
        if self._loose.pop(old, None) is not None:
            self._loose[new] = module
        module.name = new

    def remove_module(self, name: str) -> None:
        """Removes a module that no instruction runs.  Errors: ParameterError if one does."""
        module = self.module(name)
        if module is self.main or module.runners:
            raise ParameterError(
                f"module {name!r} is run by {'the program' if module is self.main else 'an instruction'}"
            )
        module.clear()
        self._loose.pop(name, None)

    def clone(self) -> Graph:
        """Returns a copy, including modules that no instruction runs yet."""
        copies, went = Copies(Substitution(None)), dict[Instruction, Instruction]()
        made = Graph(copies.of(self.main, went))
        for name, module in self._loose.items():
            if not module.runners:  # the others are copied with the instructions that run them
                made._loose[name] = copies.of(module, went)
        return made

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules().values())
