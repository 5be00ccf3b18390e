"""Puts a native program together: values, steps, their memory, and the literals that it keeps alive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgx_core import Shape
from mgx_core.argument import Array
from mgx_core.dtype import DType

from .values import Buffer, Value

__all__ = ["Emitter", "Step"]


@dataclass(eq=False)
class Step:
    """One native step before its buffers have addresses.

    install: adds it to the native program, given how to name a buffer.
    """

    name: str
    reads: list[Buffer]
    writes: list[Buffer]
    install: Callable[[Any, Callable[[Buffer], int]], None]
    sources: tuple[str, ...] = ()
    flops: int = 0
    bytes: int = 0


@dataclass
class Emitter:
    """Collects steps in order.

    threads: for how many threads the program is made; fast_math: whether approximations are allowed.
    """

    threads: int
    fast_math: bool = True
    steps: list[Step] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    sources: tuple[str, ...] = ()
    _literals: dict[tuple[int, str], Value] = field(default_factory=dict)

    # buffers and values

    def allocate(self, dtype: DType, lens: Sequence[int], strides: Sequence[int] | None = None) -> Value:
        """A new value in the arena, row-major unless `strides` say otherwise."""
        shape = Shape(dtype, lens, strides)
        buffer = Buffer("arena", max(shape.element_space() * dtype.size, 1))
        self.buffers.append(buffer)
        return Value(shape, buffer)

    def scratch(self, size: int) -> Buffer:
        """Memory for the next step alone."""
        buffer = Buffer("arena", size)
        self.buffers.append(buffer)
        return buffer

    def literal(self, array: Array, owner: Any = None) -> Value:
        """A constant; the array (or `owner`) is kept alive with the program."""
        key = (array.__array_interface__["data"][0] if array.size else id(array), f"{array.dtype}{array.shape}{array.strides}")
        found = self._literals.get(key)
        if found is None:
            size = array.dtype.itemsize
            strides = [s // size for s in array.strides] if array.size and not array.flags.c_contiguous else None
            shape = Shape(array.dtype, array.shape, strides)
            buffer = Buffer("literal", array.nbytes, array=array, owner=owner)
            self.buffers.append(buffer)
            found = self._literals[key] = Value(shape, buffer)
        return found

    def constant(self, value: Value) -> Array | None:
        """The array of a literal value, views of one included."""
        array = value.buffer.array
        if value.buffer.kind != "literal" or array is None:
            return None
        flat = np.lib.stride_tricks.as_strided(
            array.reshape(-1)[value.offset :] if array.flags.c_contiguous else array,
            value.lens,
            [s * array.dtype.itemsize for s in value.strides],
            writeable=False,
        )
        return flat if array.flags.c_contiguous else None

    # steps

    def step(
        self,
        name: str,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
        install: Callable[[Any, Callable[[Buffer], int]], None],
        flops: int = 0,
        bytes: int = 0,
    ) -> None:
        self.steps.append(Step(name, list(reads), list(writes), install, self.sources, flops, bytes))
