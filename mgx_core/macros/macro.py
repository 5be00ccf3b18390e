"""The macro registry: each macro is a function of a builder and inputs, with options as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..errors import ParameterError, ShapeError, UnsupportedError, suggestion
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.activation import Prelu
from ..ops.bitwise import BitwiseAnd
from ..ops.compare import LogicalAnd, LogicalOr, LogicalXor
from ..ops.operation import Operation
from ..ops.pointwise import Add, Div, Mul, Pow, Sqdiff, Sub
from . import activations, products
from .builder import MacroBuilder

__all__ = ["MACROS", "Macro"]


class Macro:
    """A named group of instructions with keyword options: ``module.add_macro(Macro("gemm", transB=True), [a, b])``.

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
        """Adds the instructions before a given one of the module (None: at its end); returns the results.

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


def pointwise(op: Operation) -> Callable[..., Instruction]:
    """Returns the macro of a binary pointwise op with broadcasting and type promotion."""

    def build(
        b: MacroBuilder,
        x: Instruction,
        y: Instruction,
        *,
        broadcasted: int = 0,
        axis: int = 0,
        is_broadcasted: bool = False,
    ) -> Instruction:
        if is_broadcasted and broadcasted:  # legacy broadcast: y is aligned with x from an axis on
            rest = range(axis + y.shape.rank, x.shape.rank)
            y = b.broadcast_to(b.unsqueeze(y, [n - axis for n in rest]) if rest else y, x.shape.dims)
        return b.add(op, x, y) if is_broadcasted else b.common(op, x, y)

    return build


NAMED: Final = (
    products.convolution, products.dot, products.einsum, products.gemm, products.quant_convolution, products.quant_dot,
    products.rotary_embedding, products.tile, activations.batchnorm, activations.bias_uint8, activations.celu,
    activations.clip, activations.dequantizelinear, activations.gelu_erf, activations.gelu_quick, activations.gelu_split,
    activations.gelu_tanh, activations.mean_variance_normalization, activations.quantizelinear,
)  # fmt: skip
POINTWISE: Final = (
    Add(), BitwiseAnd(), Div(), LogicalAnd(), LogicalOr(), LogicalXor(), Mul(), Pow(), Prelu(), Sqdiff(), Sub(),
)  # fmt: skip

MACROS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        **{f.__name__: f for f in NAMED},
        "convolution_integer": products.quant_convolution,
        **{op.name: pointwise(op) for op in POINTWISE},
    }
)
