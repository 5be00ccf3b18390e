"""Recipes: weight transformations stated as data, applied at compile time and again when a saved program is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import StoreError
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.argument import Array

from .native_library import native

__all__ = ["Recipe", "address_of", "aligned", "aligned_bytes", "apply_recipe"]


class Recipe(NamedTuple):
    """A transformation of a constant, by name and numbers.

    ``pack``: element offset, source and destination oneDNN layouts, whether to bfloat16; ``winograd``: tile, lanes, groups.
    """

    kind: str
    args: tuple[Any, ...]


def apply_recipe(recipe: Recipe, source: Array) -> Array:
    """Applies a recipe.  Errors: StoreError for an unknown recipe."""
    if recipe.kind == "pack":
        return _packed(source, *recipe.args)
    if recipe.kind == "winograd":
        from .winograd import Tile, filters

        numbers, lanes, groups = recipe.args
        return filters(source.astype(np.float32, copy=False), Tile(*numbers), lanes, groups)
    raise StoreError(f"unknown recipe {recipe.kind!r} for weights")


def _packed(source: Array, offset: int, plain: Any, wanted: Any, bfloat16: bool) -> Array:
    """Reorders part of a constant; bfloat16 uses float32 layouts, which oneDNN reorders many times faster."""
    if not bfloat16:
        address = address_of(source) + offset * source.itemsize
        return np.frombuffer(native().pack(address, plain, wanted), np.uint8)  # keeps its base array alive
    wide = source.astype(np.float32, copy=False)
    return aligned(np.frombuffer(native().pack(address_of(wide) + 4 * offset, plain, wanted), np.uint16)[1::2])


def address_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def aligned(given: Array) -> Array:
    """Returns a row-major, cache-line-aligned copy, so that no vector crosses a line."""
    made: Array = aligned_bytes(given.nbytes).view(given.dtype).reshape(given.shape)
    made[...] = given
    return made


def aligned_bytes(count: int) -> Array:
    """Allocates cache-line-aligned bytes."""
    room = np.empty(count + 64, np.uint8)
    skipped = -address_of(room) % 64
    return room[skipped : skipped + count]
