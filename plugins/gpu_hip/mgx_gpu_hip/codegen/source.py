"""Input and output of a generator: tensors and device traits; kernel text with its launches."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from mgx_core import Shape, dtype
from mgx_core.types.dtype import DType

from .extents import current, plain
from .snippets import needed

__all__ = [
    "Arg", "Buffer", "Chained", "DeviceTraits", "KernelLaunch", "KernelSource", "Number", "Tensor", "entry_word",
    "finish", "pointers", "tensors",
]  # fmt: skip

NAME: Final = "@NAME@"  # stands for the kernel's name until the text is complete and can be hashed


class DeviceTraits(NamedTuple):
    """Device properties for generators: wave width, limits of a block, number of multiprocessors, architecture, vendor.

    shared_bytes: of shared memory that any kernel may declare; shared_most: that a launch may ask for.
    """

    wave: int = 32
    max_threads: int = 1024
    shared_bytes: int = 49152
    sm_count: int = 132
    arch: str = "sm_90"
    vendor: str = "nvidia"
    shared_most: int = 49152


class Tensor(NamedTuple):
    """A strided view of device memory.

    strides: in elements, not negative; align: bytes that its address is known to be a multiple of; constant: it is there
    before the program runs, so that a kernel may read it while the one before it is ending.
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
        """Elements from the first to the last."""
        return (
            0
            if 0 in self.lens
            else 1 + sum((plain(n) - 1) * plain(s) for n, s in zip(self.lens, self.strides, strict=True))
        )

    @property
    def nbytes(self) -> int:
        """Bytes that are read or written if each element of memory is touched once."""
        count: int = math.prod(plain(n) for n, s in zip(self.lens, self.strides, strict=True) if s)
        return self.dtype.size * count

    @property
    def shape(self) -> Shape:
        return Shape(self.dtype, self.lens, self.strides)


def tensors(xs: Sequence[Shape | Tensor | None]) -> list[Tensor | None]:
    """Returns shapes as tensors at addresses that are multiples of 16; absent ones stay None."""
    return [None if x is None else Tensor.of(x) for x in xs]


class Buffer(NamedTuple):
    """A kernel argument that is the address of an input, an output or scratch memory."""

    kind: Literal["input", "output", "scratch"]
    index: int  # type: ignore[assignment]


class Number(NamedTuple):
    """A kernel argument that is a number of a C type."""

    ctype: Literal["u32", "i32", "u64", "i64", "float", "double"]
    value: int | float


class Chained(NamedTuple):
    """A kernel argument that is 1 where the launch behind is one of ours that may start early, else 0.

    A library's kernel behind it must not be let start early: cuDNN 9 launches kernels so that they may, which then read what
    this one has not written yet.
    """

    ctype: Literal["u32"] = "u32"
    value: int = 0


Arg: TypeAlias = "Buffer | Number | Chained"


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of one entry of the text."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    shared_bytes: int = 0  # dynamic shared memory; what the text declares itself is not counted


@dataclass(frozen=True)
class KernelSource:
    """Kernel text with its launches.

    name: of the entry (entries, for several launches, begin with it); it follows from the text, so equal texts are one kernel.
    launches: in order; none for tensors without elements.  scratch: bytes of each scratch buffer (multiples of 16).
    zeroed: scratch buffers that must be zero before the first launch.  extents: (output, axis, count output): the true
    extent of an axis that is allocated at its upper bound, an int64 that the kernel writes.  title: its name in reports, if that
    is not the entry's; origin: who brought it, for messages; overlaps: it waits (``grid_wait``) for the kernel before it.
    """

    name: str
    text: str
    launches: tuple[KernelLaunch, ...]
    inputs: int
    outputs: int
    scratch: tuple[int, ...] = ()
    zeroed: tuple[int, ...] = ()
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
    """Returns a C identifier made of the names of a kernel's ops, repeated ones once."""
    word = "_".join(dict.fromkeys(re.sub(r"\W", "_", w) for w in words))
    return word[:48].rstrip("_") or "kernel"


def pointers(inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> tuple[list[str], list[Buffer]]:
    """Returns parameters p0.. and q0.. with their arguments; absent inputs are left out."""
    given = [(i, x) for i, x in enumerate(inputs) if x is not None]
    names = [f"const {stored(x.dtype)}* RESTRICT p{i}" for i, x in given]
    names += [f"{stored(y.dtype)}* RESTRICT q{i}" for i, y in enumerate(outputs)]
    return names, [*(Buffer("input", i) for i, _ in given), *(Buffer("output", i) for i in range(len(outputs)))]


def finish(
    word: str,
    text: str,
    launches: Sequence[KernelLaunch],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    scratch: Sequence[int] = (),
    zeroed: Sequence[int] = (),
    extents: Sequence[tuple[int, int, int]] = (),
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Returns the kernel named after its word and its text, with the snippets that the text uses in front.

    Symbolic extents in the text become arguments of the kernels that name them.
    """
    recorder = current()
    text, added = (text, {}) if recorder is None else recorder.resolved(text)
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
                (*la.args, Chained(), *(Number(kind, value) for kind, value in added.get(la.entry, ()))),  # type: ignore[arg-type]
                la.shared_bytes,
            )
            for la in launches
            if math.prod(la.grid)
        ),
        inputs=len(inputs),
        outputs=len(outputs),
        scratch=tuple(plain(-(-s // 16) * 16) for s in scratch),
        zeroed=tuple(zeroed),
        extents=tuple(extents),
        flops=plain(flops),
        bytes=plain(sizes),
    )


_STORED: Final = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "half_t", "bfloat16": "bf16_t", "float32": "float", "float64": "double",
    "float8_e4m3fn": "f8e4m3_t", "float8_e5m2": "f8e5m2_t", "float8_e4m3fnuz": "f8e4m3z_t", "float8_e5m2fnuz": "f8e5m2z_t",
}  # fmt: skip


def stored(of: DType) -> str:
    """Returns the C type of elements in memory.  Errors: KeyError for types that kernels do not read (see `supported`)."""
    return _STORED[of.name]


def computed(of: DType) -> str:
    """Returns the C type that elements are computed in: float for the narrow floats."""
    return "float" if of.kind == "f" and of.bits < 32 else _STORED[of.name]


def supported(*of: DType) -> bool:
    """Returns True if kernels read and write all of these types."""
    return all(t.name in _STORED for t in of)


def read(code: str, of: DType) -> str:
    """Returns the stored element `code` as a value to compute with."""
    return f"to_f({code})" if of.kind == "f" and of.bits < 32 else code


def written(code: str, of: DType) -> str:
    """Returns a computed value as an element to store."""
    if of.kind != "f" or of.bits >= 32:
        return code
    if of.bits == 8:
        return f"convert<{stored(of)}>({code})"
    return f"to_h({code})" if of is dtype.float16 else f"to_b({code})"
