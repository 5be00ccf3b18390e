"""Macros by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ..errors import ParameterError, ShapeError, UnsupportedError, suggestion
from ..ir.instruction import Instruction
from ..ir.module import Module
from .builder import MacroBuilder
from .table import MACROS

__all__ = ["Macro"]


class Macro:
    """Several instructions under one name, with options as keywords: ``module.add_macro(Macro("gemm", transB=True), [a, b])``.

    Errors: UnsupportedError for an unknown name, ParameterError for an unknown option.
    """

    def __init__(self, name: str, /, **options: Any) -> None:
        function = MACROS.get(name)
        if function is None:
            raise UnsupportedError(f"there is no macro {name!r}; {suggestion(name, MACROS)}")
        known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        for option in options:
            if option not in known:
                raise ParameterError(f"macro {name!r} takes no option {option!r}; {suggestion(option, known)}")
        self._name = name
        self._options = options
        self._function = function

    def name(self) -> str:
        return self._name

    def options(self) -> dict[str, Any]:
        """Returns the options that were given."""
        return dict(self._options)

    def build(
        self,
        module: Module,
        before: Instruction | None,
        args: Sequence[Instruction],
        modules: Sequence[Module] = (),
    ) -> list[Instruction]:
        """Adds the instructions in front of one of the module (None: at its end); returns the results.

        Errors: ShapeError if the inputs do not fit, or if there are too many or too few.
        """
        if modules:
            raise ParameterError(f"macro {self._name!r} takes no modules")
        try:
            inspect.signature(self._function).bind(None, *args, **self._options)
        except TypeError as error:
            raise ShapeError(f"macro {self._name!r}: {error}") from None
        try:
            made = self._function(MacroBuilder(module, before), *args, **self._options)
        except ShapeError as error:
            raise error.located(f"macro {self._name!r}") from None
        return list(made) if isinstance(made, tuple) else [made]

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self._options.items())
        return f"{self._name}[{inside}]" if inside else self._name
