"""The converter table of this package."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

from mgx_core.converting.converters import Converter, Converters

__all__ = ["STANDARD", "Converter", "Converters", "converts"]

PACKAGE: Final = f"{__package__}.converters"
# modules imported first when an operator is looked up
COMMON: Final = (
    "elementwise", "convolution", "linear", "movement", "reduce", "norm", "pooling", "activation", "constant", "cast", "slice",
    "index", "select", "resize", "recurrent", "quantized", "attention", "control",
)  # fmt: skip


def _others() -> None:
    """Imports all converter modules."""
    from pkgutil import iter_modules  # not needed where the common ones convert all operators

    for module in iter_modules(import_module(PACKAGE).__path__):
        import_module(f"{PACKAGE}.{module.name}")


STANDARD = Converters((*(partial(import_module, f"{PACKAGE}.{name}") for name in COMMON), _others))
converts = STANDARD.converts
