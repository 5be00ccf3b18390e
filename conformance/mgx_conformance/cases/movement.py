"""Cases of ops that move, repeat, slice and concatenate data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mgx_core import Operation, ShapeError, dtype
from mgx_core.ops import STANDARD
from mgx_core.types.dtype import DType

from .case import FLOATS, FP8, LAYOUTS, NARROW, Case, Family, data, given, refused

__all__ = ["family"]

family = Family("movement")
make = STANDARD.make
KINDS: tuple[DType, ...] = (dtype.float32, dtype.float16, dtype.int64, dtype.bool_, dtype.int8, dtype.float64, dtype.bfloat16,
                            FP8[0], NARROW[0], dtype.string)  # fmt: skip


def each(op: Operation, label: str, *dims: int, kinds: tuple[DType, ...] = KINDS[:5]) -> Iterator[Case]:
    """Yields one case per type: data of all widths move in the same way."""
    for n, kind in enumerate(kinds):
        x = data(kind, *dims, low=0 if kind.kind == "u" or kind.bits < 8 else -3, high=3 if kind.bits >= 8 else 1)
        yield Case(op, (x,), label, LAYOUTS if n == 0 else LAYOUTS[:1])


@family.cases("transpose", "layout")
def transpose(name: str) -> Iterable[Case]:
    yield from each(make(name, permutation=(1, 0)), "matrix", 5, 7, kinds=KINDS)
    yield from each(make(name, permutation=(0, 2, 3, 1)), "channels-last", 2, 3, 5, 4, kinds=KINDS[:3])
    yield from each(make(name, permutation=(2, 0, 1)), "turn", 3, 4, 5, kinds=KINDS[:2])
    yield from each(make(name, permutation=(1, 0, 2)), "outer", 3, 4, 65, kinds=KINDS[:1])
    yield from each(make(name, permutation=(1, 0)), "large", 129, 257, kinds=KINDS[:1])
    yield from each(make(name, permutation=(1, 0)), "empty", 0, 3, kinds=KINDS[:1])
    if name == "transpose":
        yield from each(make(name), "default", 2, 3, 4, kinds=KINDS[:1])


@family.cases("contiguous")
def contiguous(name: str) -> Iterable[Case]:
    yield from each(make(name), "", 3, 4, 5, kinds=KINDS)
    yield from each(make(name), "empty", 3, 0, kinds=KINDS[:1])


@family.cases("reverse")
def reverse(name: str) -> Iterable[Case]:
    yield from each(make(name, axes=(0,)), "first", 5, 3)
    yield from each(make(name, axes=(0, 2)), "two", 2, 3, 5, kinds=KINDS[:2])
    yield from each(make(name, axes=(-1,)), "last", 2, 33, kinds=KINDS[:2])


@family.cases("reverse_sequence")
def reverse_sequence(name: str) -> Iterable[Case]:
    for kind in KINDS[:3]:
        yield Case(make(name), (data(kind, 5, 3, 2), given([5, 1, 3])), "time-first", LAYOUTS[:3])
        yield Case(make(name, batch_axis=0, time_axis=1), (data(kind, 3, 5), given([2, 5, 1])), "batch-first")


@family.cases("multibroadcast")
def multibroadcast(name: str) -> Iterable[Case]:
    yield from each(make(name, out_lens=(2, 3, 4)), "middle", 2, 1, 4)
    yield from each(make(name, out_lens=(5, 2, 3)), "new-axis", 3, kinds=KINDS[:2])
    yield from each(make(name, out_lens=(2, 2)), "scalar", kinds=KINDS[:1])
    yield from each(make(name, out_lens=(0, 3)), "empty", 1, 3, kinds=KINDS[:1])
    yield Case(make(name), (data(dtype.float32, 3, 1), data(dtype.float32, 2, 1, 4)), "like")


@family.cases("broadcast")
def broadcast(name: str) -> Iterable[Case]:
    yield from each(make(name, axis=1, out_lens=(2, 3, 4)), "channel", 3)
    yield from each(make(name, axis=0, out_lens=(2, 3, 4)), "leading", 2, 3, kinds=KINDS[:2])
    yield Case(make(name, axis=1), (data(dtype.float32, 3), data(dtype.float32, 2, 3, 4)), "like")


@family.cases("broadcast_for_dot")
def broadcast_for_dot(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(dtype.float32, 3, 4), data(dtype.float32, 2, 5, 4, 6)), "", LAYOUTS[:3])


@family.cases("broadcast_with_dims")
def broadcast_with_dims(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(dtype.float32, 3, 1), given([2, 3, 4])), "", LAYOUTS[:3])
    yield Case(make(name), (data(dtype.int64, 1), given([4])), "vector")


@family.cases("scalar")
def scalar(name: str) -> Iterable[Case]:
    yield from each(make(name, scalar_bcst_dims=(2, 3)), "", 1)


@family.cases("tile")
def tile(name: str) -> Iterable[Case]:
    yield from each(make(name, repeats=(2, 1, 3)), "", 2, 3, 4)
    yield from each(make(name, repeats=(0, 2)), "empty", 2, 3, kinds=KINDS[:1])
    yield Case(make(name), (data(dtype.float32, 2, 3), given([3, 2])), "while-running")


@family.cases("concat")
def concat(name: str) -> Iterable[Case]:
    for n, kind in enumerate(KINDS):
        low = 0 if kind.bits < 8 else -3
        parts = [data(kind, 2, m, 3, low=low, high=1 if kind.bits < 8 else 3) for m in (1, 4, 2)]
        yield Case(make(name, axis=1), tuple(parts), "middle", LAYOUTS if n == 0 else LAYOUTS[:1])
    f = dtype.float32
    yield Case(make(name, axis=0), (data(f, 3, 5), data(f, 1, 5)), "first", LAYOUTS)
    yield Case(make(name, axis=-1), (data(f, 3, 5), data(f, 3, 33)), "last", LAYOUTS)
    yield Case(make(name, axis=0), (data(f, 0, 5), data(f, 2, 5)), "with-empty")
    yield Case(make(name, axis=0), (data(f, 2, 5),), "alone")
    yield Case(make(name, axis=1), tuple(data(f, 3, 2) for _ in range(40)), "many")


@family.cases("reshape", "reshape_lazy")
def reshape(name: str) -> Iterable[Case]:
    yield from each(make(name, dims=(6, 4)), "join", 2, 3, 4, kinds=KINDS)
    yield from each(make(name, dims=(2, 2, 6)), "split", 4, 6, kinds=KINDS[:2])
    yield from each(make(name, dims=(0, -1)), "rest", 3, 4, 5, kinds=KINDS[:1])
    if name == "reshape":
        yield Case(make(name), (data(dtype.float32, 2, 6), given([3, 4])), "while-running", LAYOUTS[:3])
        yield refused(make(name), data(dtype.float32, 2, 6), given([5, 4]), label="elements", error=ShapeError)


@family.cases("flatten")
def flatten(name: str) -> Iterable[Case]:
    for axis in (0, 1, 2, -1):
        yield from each(make(name, axis=axis), f"axis{axis}", 2, 3, 4, kinds=KINDS[: 3 if axis == 1 else 1])


@family.cases("squeeze")
def squeeze(name: str) -> Iterable[Case]:
    yield from each(make(name, axes=(1, 3)), "", 2, 1, 3, 1)
    yield from each(make(name), "all", 1, 3, 1, kinds=KINDS[:1])
    yield Case(make(name), (data(dtype.float32, 3, 1), given([1])), "while-running")


@family.cases("unsqueeze")
def unsqueeze(name: str) -> Iterable[Case]:
    yield from each(make(name, axes=(0, 2)), "", 3, 4)
    yield from each(make(name, axes=(-1,)), "last", 3, 4, kinds=KINDS[:1])
    yield Case(make(name), (data(dtype.float32, 3), given([0, 2])), "while-running")


@family.cases("slice")
def cut(name: str) -> Iterable[Case]:
    yield from each(make(name, axes=(0, 2), starts=(1, 1), ends=(3, 4)), "", 4, 3, 5, kinds=KINDS)
    yield from each(make(name, axes=(1,), starts=(-3,), ends=(-1,)), "negative", 2, 7, kinds=KINDS[:2])
    yield from each(make(name, axes=(0,), starts=(1,), ends=(9,)), "past-the-end", 5, 3, kinds=KINDS[:1])
    yield from each(make(name, axes=(0,), starts=(2,), ends=(2,)), "empty", 5, 3, kinds=KINDS[:1])
    yield from each(make(name, axes=(1,), starts=(0,), ends=(9,), steps=(3,)), "step", 2, 9, kinds=KINDS[:2])
    yield from each(make(name, axes=(1,), starts=(-1,), ends=(-99,), steps=(-2,)), "backwards", 2, 9, kinds=KINDS[:2])
    x = data(dtype.float32, 4, 6)
    yield Case(make(name), (x, given([1, 0]), given([3, 5]), given([0, 1])), "while-running", LAYOUTS[:3])
    yield Case(make(name), (x, given([3]), given([0]), given([1]), given([-1])), "while-running-backwards")


@family.cases("split")
def split(name: str) -> Iterable[Case]:
    for kind in KINDS[:3]:
        yield Case(make(name, axis=1, count=3), (data(kind, 2, 7, 3), given([2, 1, 4])), "", LAYOUTS[:3])
    wrong = given([2, 9])
    yield refused(make(name, axis=0, count=2), data(dtype.float32, 4), wrong, label="sizes", error=ShapeError)


@family.cases("step")
def step(name: str) -> Iterable[Case]:
    yield from each(make(name, axes=(0, 1), steps=(2, 3)), "", 5, 7)


@family.cases("scan_slice")
def scan_slice(name: str) -> Iterable[Case]:
    for direction in (0, 1):
        op = make(name, axis=1, direction=direction)
        yield Case(op, (data(dtype.float32, 3, 4, 2), given([1])), f"direction{direction}", LAYOUTS[:3])


@family.cases("pad")
def pad(name: str) -> Iterable[Case]:
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield from each(
            make(name, pads=(1, 0, 2, 1), mode=mode), mode, 4, 5, kinds=KINDS[: 4 if mode == "constant" else 2]
        )
    yield from each(make(name, pads=(0, 2, 0, 1), value=1.5), "value", 3, 4, kinds=FLOATS[:2])
    yield from each(make(name, pads=(-1, 0, 1, -2)), "negative", 4, 5, kinds=KINDS[:2])
    yield from each(make(name, pads=(1, 1, 0, 0)), "empty", 0, 2, kinds=KINDS[:1])
    yield from each(make(name, pads=(-1, -2)), "cropped to nothing", 3, kinds=KINDS[:1])
    yield Case(make(name), (data(dtype.float32, 3, 4), given([0, 1, 1, 0]), given(2.5, dtype.float32)), "while-running")
    yield Case(make(name), (data(dtype.float32, 3, 4), given([1, 2]), None, given([1])), "axes-while-running")


@family.cases("fixed_pad")
def fixed_pad(name: str) -> Iterable[Case]:
    yield from each(make(name, output_lens=(4, 6)), "", 3, 5)


@family.cases("trilu")
def trilu(name: str) -> Iterable[Case]:
    for upper in (True, False):
        for k in (-1, 0, 2):
            op, label = make(name, upper=upper, k=k), f"{'upper' if upper else 'lower'}{k}"
            yield from each(op, label, 2, 4, 5, kinds=KINDS[: 4 if k == 0 else 1])
    yield Case(make(name), (data(dtype.float32, 4, 4), given(1)), "k-while-running")


@family.cases("diagonal")
def diagonal(name: str) -> Iterable[Case]:
    yield from each(make(name), "", 4, 4, kinds=KINDS[:2])
    yield from each(make(name, axis1=0, axis2=2), "outer", 3, 2, 3, kinds=KINDS[:2])


@family.cases("sliding_windows")
def sliding_windows(name: str) -> Iterable[Case]:
    yield from each(make(name, axis=0, size=3), "", 7, kinds=KINDS)
    yield from each(make(name, axis=1, size=4, step=2), "overlapping", 3, 9, 5, kinds=KINDS[:2])
    yield from each(make(name, axis=-1, size=2, step=3), "apart", 2, 3, 11, kinds=KINDS[:2])


@family.cases("dimensions_of")
def dimensions_of(name: str) -> Iterable[Case]:
    yield Case(make(name), (data(dtype.float32, 2, 3, 4),), "", ("contiguous", "symbolic"))
    yield Case(make(name, start=1, end=3), (data(dtype.float32, 2, 3, 4),), "some")


@family.cases("fill")
def fill(name: str) -> Iterable[Case]:
    for kind in (dtype.float32, dtype.float16, dtype.int64, dtype.bool_):
        yield Case(make(name), (given(1, kind), data(kind, 3, 4)), "", ("contiguous", "symbolic"))


@family.cases("eye_like")
def eye_like(name: str) -> Iterable[Case]:
    for k in (-1, 0, 2):
        yield Case(make(name, k=k), (data(dtype.float32, 3, 4),), f"k{k}", ("contiguous", "symbolic"))
    yield Case(make(name, dtype=dtype.int32), (data(dtype.float32, 3, 3),), "dtype")


@family.cases("dynamic_range")
def dynamic_range(name: str) -> Iterable[Case]:
    yield Case(make(name), (given(1), given(10), given(3)), "")
    yield Case(make(name), (given(5), given(1), given(-1)), "down")
    f = dtype.float32
    yield Case(make(name), (given(0.5, f), given(3.0, f), given(0.5, f)), "")
    yield Case(make(name), (given(3), given(3), given(1)), "empty")


family.none("names memory without contents; frontends give it to ops that read its extents alone", "allocate")
family.none("a stand-in without a value", "undefined", "unknown", "unreachable")
