"""Inputs of a run: random values, files, or constants."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ..errors import ParameterError, StoreError
from .group import CHOSEN
from .option_values import by_name, split

if TYPE_CHECKING:
    from ..types.shape import AnyShape, Shape

__all__ = ["MANY", "data_options", "inputs"]

F = TypeVar("F", bound=Callable[..., Any])
MANY: Final = ("--fill0", "--fill1", "--load-arg")


def data_options(function: F) -> F:
    """Adds the options for parameters' values."""
    options = [
        click.option("--fill0", multiple=True, metavar="NAME...", help="Parameters filled with 0."),
        click.option("--fill1", multiple=True, metavar="NAME...", help="Parameters filled with 1."),
        click.option(
            "--load-arg",
            multiple=True,
            metavar="@NAME FILE",
            help="A parameter's value from a .npy file or what `Argument.save` wrote.",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random values."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def inputs(shapes: Mapping[str, AnyShape], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a value for every parameter: loaded, filled or random; symbols get a value that all parameters share.

    A symbol's value comes from a loaded file, else its smallest optimal size, else 1 or its lower bound.  Integers are 0 or 1,
    which are valid indices.
    Errors: ParameterError for names that are not parameters and for files that cannot be read.
    """
    from ..types.shape import Shape

    loaded = {name: _load(words) for name, words in by_name(given["load_arg"], "--load-arg").items()}
    zeros, ones = set(split(given["fill0"])), set(split(given["fill1"]))
    for name in (*loaded, *sorted(zeros | ones)):
        if name not in shapes:
            known = ", ".join(map(repr, shapes)) or "none"
            raise ParameterError(f"there is no parameter {name!r} to fill; known are {known}")
    for name in sorted(zeros & ones | loaded.keys() & (zeros | ones)):
        raise ParameterError(f"parameter {name!r} is given two values: use one of --fill0, --fill1 and --load-arg")
    symbols: dict[str, int] = {}
    for name, array in loaded.items():
        declared = shapes[name]
        if isinstance(declared, Shape):
            _learn(declared, array, symbols)
    stated = set(symbols)
    values: dict[str, Any] = {}
    for name, shape in shapes.items():
        if name in loaded:
            values[name] = loaded[name]
        else:
            fill = 0 if name in zeros else 1 if name in ones else None
            values[name] = value_of(shape, symbols, fill, given["seed"] ^ zlib.crc32(name.encode()))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[CHOSEN] = {name: size for name, size in symbols.items() if name not in stated}
    return values


def _load(words: list[str]) -> Any:
    import numpy as np

    if len(words) != 1:
        raise click.UsageError(f"--load-arg takes one file for each @name, got {' '.join(words)!r}")
    try:
        return np.load(words[0], allow_pickle=False)
    except (ValueError, EOFError) as error:
        from ..types.argument import Argument

        try:
            return Argument.load(words[0]).value
        except StoreError as other:
            raise ParameterError(
                f"{words[0]!r} is neither an .npy file ({error}) nor an argument's ({other})"
            ) from None


def _learn(shape: Shape, array: Any, symbols: dict[str, int]) -> None:
    from ..types.symbol_binding import bind_symbols

    bind_symbols(shape, array, symbols)


def value_of(shape: AnyShape, symbols: dict[str, int], fill: int | None, seed: int) -> Any:
    """Returns a value of this shape; assigns values to symbols that have none yet."""
    import numpy as np

    from ..types.creation import fill_argument, generate_argument
    from ..types.shape import Shape, TupleShape

    if isinstance(shape, TupleShape):
        return tuple(value_of(s, symbols, fill, seed + n) for n, s in enumerate(shape.items))
    if not isinstance(shape, Shape):  # a sequence of one item; an optional that is present
        item = value_of(shape.element, symbols, fill, seed)
        return [item] if type(shape).__name__ == "SequenceShape" else item
    fixed = Shape(shape.dtype, concrete(shape, symbols))
    if fill is not None:
        return fill_argument(fixed, str(fill) if fixed.dtype.kind == "s" else fill)
    if fixed.dtype.is_integer:
        rng = np.random.default_rng(seed)
        top = min(1, int(fixed.dtype.highest))
        return rng.integers(0, top + 1, fixed.lens()).astype(fixed.dtype.numpy)
    return generate_argument(fixed, seed)


def concrete(shape: Shape, symbols: dict[str, int]) -> list[int]:
    """Returns extents with every symbol given a value; one of unknown rank becomes a vector of one element."""
    from ..types.dim import substitute, symbols_of

    if not shape.ranked:
        return [1]
    for d in shape.dims:
        for s in symbols_of(d):
            symbols.setdefault(s.name, s.optimals[0] if s.optimals else min(max(1, s.lo), s.hi))
    return [int(substitute(d, dict(symbols))) for d in shape.dims]
