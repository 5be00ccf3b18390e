"""Constants and packed weights, shared by all programs of the process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from mgx_core import Instruction
from mgx_core.cache import Held
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.control import Group
from mgx_core.ops.linear import Dot
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import Buffer
from mgx_core.types.argument import Array
from mgx_core.types.mapped import forget_pages

from .recipes import Recipe, address_of, apply_recipe

__all__ = ["Derived", "Weights", "is_bfloat16", "is_multiplied"]


class Derived:
    """Data derived from constants; keeps them alive, so that their addresses identify it.

    recipe: how the array was derived from its source, if that can be stated in numbers (`recipes`).
    """

    __slots__ = ("__weakref__", "arrays", "recipe", "sources")

    def __init__(self, sources: Sequence[Array | None], *arrays: Array, recipe: Recipe | None = None) -> None:
        self.sources = sources
        self.arrays = arrays
        self.recipe = recipe

    @property
    def array(self) -> Array:
        """The array, for data that consists of one."""
        return self.arrays[0]


class Weights:
    """A weak cache of constants and derived data: entries live as long as an emitter (and so a runner) holds them."""

    def __init__(self) -> None:
        # by id of the array, which its buffer keeps alive
        self._constants: WeakValueDictionary[int, Buffer] = WeakValueDictionary()
        self._packed: WeakValueDictionary[Any, Buffer] = WeakValueDictionary()
        self._made: WeakValueDictionary[Any, Buffer] = WeakValueDictionary()
        self._derived: WeakValueDictionary[Any, Derived] = WeakValueDictionary()

    def constant(self, array: Array, owner: Any = None) -> Buffer:
        """Returns the buffer of a row-major array; keeps `owner` alive."""
        found = self._constants.get(id(array))
        if found is None:
            found = Buffer("literal", array.nbytes, array=array, owner=owner, address=address_of(array))
            self._constants[id(array)] = found
        return found

    def packed(self, source: Buffer, offset: int, plain: Any, wanted: Any, bfloat16: bool = False) -> Buffer:
        """Reorders the part of a constant from element `offset` on from layout `plain` to `wanted`.

        bfloat16: the values are bfloat16 (held as such or as float32) and are stored as such, although the layouts are float32,
        which oneDNN reorders many times faster than 16-bit types.
        """
        array = source.array
        assert array is not None
        address = source.address + offset * array.itemsize
        key = (address, plain, wanted, bfloat16)
        found = self._packed.get(key)
        if found is None:
            recipe = Recipe("pack", (offset, plain, wanted, bfloat16))
            owner = Derived([array], made := apply_recipe(recipe, array), recipe=recipe)
            found = self._packed[key] = Buffer("literal", made.nbytes, owner=owner, address=address_of(made))
            forget_pages(array)
        return found

    def made(self, source: Buffer, key: Hashable, make: Callable[[], Derived]) -> Buffer:
        """Returns the buffer of the array that `make` derives from a constant, cached under `key`."""
        whole = (source.address, key)
        found = self._made.get(whole)
        if found is None:
            held = make()
            found = self._made[whole] = self.constant(held.array, held)
        return found

    def derived(self, sources: Sequence[Array | None], key: Hashable, make: Callable[[], Derived]) -> Derived:
        """Returns the data that `make` derives from constants, cached under `key`."""
        whole = (key, *(None if a is None else (address_of(a), str(a.dtype), a.shape, a.strides) for a in sources))
        found = self._derived.get(whole)
        if found is None:
            found = self._derived[whole] = make()
        return found

    def contiguous(self, array: Array) -> Derived:
        """Returns a row-major copy of a constant."""

        def copied() -> Derived:
            made = Derived([array], array.copy(order="C"))
            forget_pages(array)
            return made

        return self.derived([array], "contiguous", copied)

    def held(self) -> dict[str, Held]:
        """Reports entries and bytes by kind."""
        buffers = {"constants": self._constants, "packed weights": self._packed}
        made = list(self._derived.values())
        return {
            **{name: Held(len(kept), sum(b.bytes for b in list(kept.values()))) for name, kept in buffers.items()},
            "derived weights": Held(len(made), sum(a.nbytes for one in made for a in one.arrays)),
        }


def is_bfloat16(array: Array) -> bool:
    """Returns True if every number of a float32 array is exact in bfloat16."""
    words = array.reshape(-1).view(np.uint32)
    return not any(int(np.bitwise_or.reduce(part)) & 0xFFFF for part in (words[:1024], words[1024:]))


def is_multiplied(ins: Instruction) -> bool:
    """Returns True if a constant, broadcast or not, is read only as right operand of products, which pack it from any layout."""
    for user in ins.users:
        op = op_of(user)
        (at, *more) = (n for n, i in enumerate(user.inputs) if i is ins)
        if isinstance(op, Multibroadcast):
            good = is_multiplied(user)
        elif isinstance(op, Group) and op.tag == "dot" and not more:
            good = is_multiplied(list(user.modules[0].parameters.values())[at])
        else:
            good = isinstance(op, Dot) and at == 1 and not more
        if not good:
            return False
    return True
