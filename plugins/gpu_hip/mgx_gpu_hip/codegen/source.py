"""Interface of the generators: tensors and device traits as inputs, kernel source and launches as outputs."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from mgx_core import Shape, dtype
from mgx_core.types.dtype import DType

from ..compile.compiler import capability_of
from .extents import current, plain
from .scalar_arguments import scalar_arguments
from .snippets import needed

__all__ = [
    "Arg", "Buffer", "Chained", "DeviceTraits", "KernelLaunch", "KernelSource", "Number", "Tensor", "entry_word",
    "finish", "pointers", "tensors",
]  # fmt: skip

NAME: Final = "@NAME@"  # placeholder of the kernel's name until the source is complete and can be hashed


class DeviceTraits(NamedTuple):
    """Device properties for generators: wave width, limits of a block, number of multiprocessors, architecture, vendor.

    shared_bytes: static shared memory per block; shared_most: dynamic shared memory per block, with opt-in.
    """

    wave: int = 32
    max_threads: int = 1024
    shared_bytes: int = 49152
    sm_count: int = 132
    arch: str = "sm_90"
    vendor: str = "nvidia"
    shared_most: int = 49152

    @property
    def clusters(self) -> bool:
        """True if blocks can form clusters, which access each other's shared memory (``cluster.h``)."""
        return capability_of(self.arch) >= 90


class Tensor(NamedTuple):
    """A strided view of device memory.

    strides: in elements, not negative; align: known alignment of its address in bytes; constant: it does not change while the
    program runs, so that a kernel may read it before the previous one has ended.
    """

    dtype: DType
    lens: tuple[int, ...]
    strides: tuple[int, ...]
    align: int = 16
    constant: bool = False

    @classmethod
    def of(cls, x: Shape | Tensor) -> Tensor:
        return x if isinstance(x, Tensor) else cls(x.dtype, tuple(x.lens()), tuple(x.strides()))

    @property
    def elements(self) -> int:
        return math.prod(self.lens)

    @property
    def space(self) -> int:
        """Elements from the first to past the last."""
        return (
            0
            if 0 in self.lens
            else 1 + sum((plain(n) - 1) * plain(s) for n, s in zip(self.lens, self.strides, strict=True))
        )

    @property
    def nbytes(self) -> int:
        """Bytes of its distinct elements, each accessed once."""
        count: int = math.prod(plain(n) for n, s in zip(self.lens, self.strides, strict=True) if s)
        return self.dtype.size * count

    @property
    def shape(self) -> Shape:
        return Shape(self.dtype, self.lens, self.strides)


def tensors(xs: Sequence[Shape | Tensor | None]) -> list[Tensor | None]:
    """Returns shapes as tensors aligned to 16 bytes; absent ones stay None."""
    return [None if x is None else Tensor.of(x) for x in xs]


class Buffer(NamedTuple):
    """A kernel argument: the address of an input, an output or a scratch buffer."""

    kind: Literal["input", "output", "scratch"]
    index: int  # type: ignore[assignment]


class Number(NamedTuple):
    """A kernel argument: a number of a C type."""

    ctype: Literal["u32", "i32", "u64", "i64", "float", "double"]
    value: int | float


class Chained(NamedTuple):
    """A kernel argument: 1 if the next launch is a generated kernel that may start early, else 0.

    A library kernel must not be started early: cuDNN 9 launches kernels with that attribute, and they would read memory that this
    kernel has not written yet.
    """

    ctype: Literal["u32"] = "u32"
    value: int = 0


Arg: TypeAlias = "Buffer | Number | Chained"


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of one kernel of the source."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    shared_bytes: int = 0  # dynamic shared memory only


@dataclass(frozen=True)
class KernelSource:
    """Kernel source with its launches.

    name: of the kernel (a prefix of all, for several launches), with a hash of the source, so that equal sources are one kernel.
    launches: in order; none for tensors without elements.  scratch: bytes of each scratch buffer (multiples of 16).  extents:
    (output, axis, count output): the actual extent of an axis allocated at its upper bound, an int64 that the kernel writes.
    title: its name in reports, if not `name`; origin: the package it comes from, for messages; overlaps: it waits
    (``grid_wait``) for the previous kernel.
    """

    name: str
    text: str
    launches: tuple[KernelLaunch, ...]
    inputs: int
    outputs: int
    scratch: tuple[int, ...] = ()
    extents: tuple[tuple[int, int, int], ...] = ()
    flops: int = 0
    bytes: int = 0
    title: str = ""
    origin: str = ""
    overlaps: bool = True

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.launches[0].grid if self.launches else (0, 0, 0)

    @property
    def block(self) -> tuple[int, int, int]:
        return self.launches[0].block if self.launches else (0, 0, 0)

    @property
    def shared_bytes(self) -> int:
        return max((la.shared_bytes for la in self.launches), default=0)

    @property
    def args(self) -> tuple[Arg, ...]:
        return self.launches[0].args if self.launches else ()


def entry_word(words: Sequence[str]) -> str:
    """Returns a C identifier from the names of a kernel's ops, without repetitions."""
    word = "_".join(dict.fromkeys(re.sub(r"\W", "_", w) for w in words))
    return word[:48].rstrip("_") or "kernel"


def pointers(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> tuple[list[str], list[Buffer]]:
    """Returns parameters p0.. and q0.. with their arguments; absent inputs are omitted."""
    given = [(i, x) for i, x in enumerate(inputs) if x is not None]
    names = [f"const {storage_type(x.dtype)}* RESTRICT p{i}" for i, x in given]
    names += [f"{storage_type(y.dtype)}* RESTRICT q{i}" for i, y in enumerate(outputs)]
    return names, [*(Buffer("input", i) for i, _ in given), *(Buffer("output", i) for i in range(len(outputs)))]


def finish(
    word: str,
    text: str,
    launches: Sequence[KernelLaunch],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    scratch: Sequence[int] = (),
    extents: Sequence[tuple[int, int, int]] = (),
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Returns the kernel, named by its word and a hash of its source, with the snippets it uses prepended.

    Symbolic extents and scalars in the source become kernel arguments.
    """
    recorder = current()
    text, added = (text, {}) if recorder is None else recorder.resolved(text)
    text, scalars = scalar_arguments(text)
    body = needed(text) + text
    name = f"{word}_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    sizes = sum(t.nbytes for t in (*inputs, *outputs) if t is not None) if moved is None else moved
    return KernelSource(
        name=name,
        text=body.replace(NAME, name),
        launches=tuple(
            KernelLaunch(
                la.entry.replace(NAME, name),
                (plain(la.grid[0]), plain(la.grid[1]), plain(la.grid[2])),
                (plain(la.block[0]), plain(la.block[1]), plain(la.block[2])),
                (
                    *la.args,
                    Chained(),
                    *(Number(kind, value) for kind, value in added.get(la.entry, ())),  # type: ignore[arg-type]
                    *(Number("float", value) for value in scalars.get(la.entry, ())),
                ),
                la.shared_bytes,
            )
            for la in launches
            if math.prod(la.grid)
        ),
        inputs=len(inputs),
        outputs=len(outputs),
        scratch=tuple(plain(-(-s // 16) * 16) for s in scratch),
        extents=tuple(extents),
        flops=plain(flops),
        bytes=plain(sizes),
    )


_STORED: Final = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "half_t", "bfloat16": "bf16_t", "float32": "float", "float64": "double",
    "float8_e4m3fn": "f8e4m3_t", "float8_e5m2": "f8e5m2_t", "float8_e4m3fnuz": "f8e4m3z_t", "float8_e5m2fnuz": "f8e5m2z_t",
}  # fmt: skip


def storage_type(of: DType) -> str:
    """Returns the C type of elements in memory.  Errors: KeyError for unsupported types (see `supported`)."""
    return _STORED[of.name]


def compute_type(of: DType) -> str:
    """Returns the C type for computation: float for the narrow floats."""
    return "float" if of.kind == "f" and of.bits < 32 else _STORED[of.name]


def supported(*of: DType) -> bool:
    """Returns True if kernels support all of these types."""
    return all(t.name in _STORED for t in of)


def to_compute(code: str, of: DType) -> str:
    """Returns a stored element as a computed value."""
    return f"to_f({code})" if of.kind == "f" and of.bits < 32 else code


def to_storage(code: str, of: DType) -> str:
    """Returns a computed value as an element to store."""
    if of.kind != "f" or of.bits >= 32:
        return code
    if of.bits == 8:
        return f"convert<{storage_type(of)}>({code})"
    return f"to_h({code})" if of is dtype.float16 else f"to_b({code})"
