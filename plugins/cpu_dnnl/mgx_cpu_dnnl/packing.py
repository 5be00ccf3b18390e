"""Constants, and weights packed from them, shared by all programs of the process that hold them."""

from __future__ import annotations

import mmap
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

from .native_library import native

__all__ = ["Derived", "Weights", "aligned", "forget_pages", "is_bfloat16", "is_multiplied"]


class Derived:
    """Data made from constants; it keeps them alive, so that their addresses name it."""

    __slots__ = ("__weakref__", "arrays", "sources")

    def __init__(self, sources: Sequence[Array | None], *arrays: Array) -> None:
        self.sources = sources
        self.arrays = arrays

    @property
    def array(self) -> Array:
        """The one array of data that is one array."""
        return self.arrays[0]


class Weights:
    """Constants, and what is made of them, shared by all programs that hold them.

    They are held weakly: for as long as an emitter, and so the runner that has it, holds them.
    """

    def __init__(self) -> None:
        self._constants: WeakValueDictionary[int, Buffer] = (
            WeakValueDictionary()
        )  # by the array's id, which its buffer keeps
        self._packed: WeakValueDictionary[Any, Buffer] = WeakValueDictionary()
        self._derived: WeakValueDictionary[Any, Derived] = WeakValueDictionary()

    def constant(self, array: Array, owner: Any = None) -> Buffer:
        """The buffer of a row-major array; `owner` is kept alive with it."""
        found = self._constants.get(id(array))
        if found is None:
            found = Buffer("literal", array.nbytes, array=array, owner=owner, address=_address(array))
            self._constants[id(array)] = found
        return found

    def packed(self, source: Buffer, offset: int, plain: Any, wanted: Any, bfloat16: bool = False) -> Buffer:
        """Packs the part of a constant from element `offset` on from layout `plain` to `wanted`.

        bfloat16: the numbers are of that type, held as such or in float32, and are stored in it, though the layouts are of
        float32, which oneDNN reorders many times faster than 16 bits.
        """
        array = source.array
        assert array is not None
        address = source.address + offset * array.itemsize
        key = (address, plain, wanted, bfloat16)
        found = self._packed.get(key)
        if found is None:
            if bfloat16:
                wide = array.astype(np.float32, copy=False)
                made = aligned(
                    np.frombuffer(native().pack(_address(wide) + 4 * offset, plain, wanted), np.uint16)[1::2]
                )
            else:
                made = np.frombuffer(native().pack(address, plain, wanted), np.uint8)  # keeps its base array alive
            owner = Derived([array], made)
            found = self._packed[key] = Buffer("literal", made.nbytes, owner=owner, address=_address(made))
            forget_pages(array)
        return found

    def derived(self, sources: Sequence[Array | None], key: Hashable, make: Callable[[], Derived]) -> Derived:
        """The data that `make` gives of constants in a way named by `key`."""
        whole = (key, *(None if a is None else (_address(a), str(a.dtype), a.shape, a.strides) for a in sources))
        found = self._derived.get(whole)
        if found is None:
            found = self._derived[whole] = make()
        return found

    def contiguous(self, array: Array) -> Derived:
        """A row-major copy of a constant of another layout."""

        def copied() -> Derived:
            made = Derived([array], array.copy(order="C"))
            forget_pages(array)
            return made

        return self.derived([array], "contiguous", copied)

    def held(self) -> dict[str, Held]:
        """Returns the entries and bytes of each kind."""
        buffers = {"constants": self._constants, "packed weights": self._packed}
        made = list(self._derived.values())
        return {
            **{name: Held(len(kept), sum(b.bytes for b in list(kept.values()))) for name, kept in buffers.items()},
            "derived weights": Held(len(made), sum(a.nbytes for one in made for a in one.arrays)),
        }


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def aligned(given: Array) -> Array:
    """A row-major copy that begins where a cache line begins, so that no vector crosses one."""
    room = np.empty(given.nbytes + 64, np.uint8)
    skipped = -_address(room) % 64
    made = room[skipped : skipped + given.nbytes].view(given.dtype).reshape(given.shape)
    made[...] = given
    return made


def is_bfloat16(array: Array) -> bool:
    """True if every number of a float32 array is exact in bfloat16."""
    words = array.reshape(-1).view(np.uint32)
    return not any(int(np.bitwise_or.reduce(part)) & 0xFFFF for part in (words[:1024], words[1024:]))


def forget_pages(array: Array) -> None:
    """Releases the memory of an array mapped from a file; the next access reads the file again."""
    base: Any = array
    while not isinstance(base, mmap.mmap):  # arrays, memory views, and what numpy puts between them
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
        if base is None:
            return
    file = np.frombuffer(base, np.uint8)
    start = _address(file)
    first, end = (int(at) - start for at in np.lib.array_utils.byte_bounds(array))
    first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
    # written pages would be lost, so only read-only maps
    if length > 0 and not file.flags.writeable:
        base.madvise(mmap.MADV_DONTNEED, first, length)


def is_multiplied(ins: Instruction) -> bool:
    """True if only products read a constant, repeated or not, as their right operand: they pack it from any layout."""
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
