"""Gathers, one-hot, and reversed sequences: elements at positions given by an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import dtype as dt
from mgx_core.ops.axes import normalize

from .elements import Coordinates, ElementSource, as_unsigned, each_element, each_move, offset_of
from .movement import inner_axis, straight
from .source import DeviceTraits, KernelSource, Tensor

__all__ = ["gather", "gather_elements", "gathernd", "onehot", "position", "reverse_sequence", "scan_slice"]


def position(indices: Tensor, at: Sequence[str], pointer: str = "p1") -> str:
    """Returns an index read from the second operand for `wrapped`; u64 is passed unchanged, as it may exceed i64."""
    place = f"{pointer}[{offset_of(indices, at)}]"
    return place if indices.dtype is dt.uint64 else f"(i64){place}"


def gather(op: Any, x: Tensor, indices: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    axis, k = normalize(op.axis, len(x.lens)), len(indices.lens)

    def found(at: Coordinates) -> ElementSource:
        lines = [f"const u32 g = (u32)wrapped({position(indices, at[axis : axis + k])}, {x.lens[axis]});"]
        return ElementSource(lines, f"p0 + ({offset_of(x, [*at[:axis], 'g', *at[axis + k :]])})")

    return _moved("gather", [x, indices], y, traits, found, _source_axis(x, y, axis, k))


def _source_axis(x: Tensor, y: Tensor, axis: int, k: int) -> int:
    """Returns the widest vector along the result's innermost axis, which must not be the gathered one."""
    inner = inner_axis(y)
    if axis <= inner < axis + k or inner < 0:
        return 1
    return straight(x, inner if inner < axis else inner - k + 1)


def _moved(word: str, inputs: list[Tensor], y: Tensor, traits: DeviceTraits, found: Any, width: int) -> KernelSource:
    moved = y.nbytes * 2 + sum(t.nbytes for t in inputs[1:])
    return each_move(word, inputs, y, traits, found, width, moved=moved)


def gather_elements(op: Any, x: Tensor, indices: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    axis = normalize(op.axis, len(x.lens))

    def found(at: Coordinates) -> ElementSource:
        lines = [f"const u32 g = (u32)wrapped({position(indices, at)}, {x.lens[axis]});"]
        place = [*at[:axis], "g", *at[axis + 1 :]]
        # x may be longer than the indices along other axes, so its own strides are used
        return ElementSource(lines, f"p0 + ({offset_of(x, place)})")

    return _moved("gather_elements", [x, indices], y, traits, found, 1)


def gathernd(op: Any, x: Tensor, indices: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    b, k = op.batch_dims, indices.lens[-1]
    lead = len(indices.lens) - 1

    def found(at: Coordinates) -> ElementSource:
        lines = [
            f"const u32 g{j} = (u32)wrapped({position(indices, [*at[:lead], str(j)])}, {x.lens[b + j]});"
            for j in range(k)
        ]
        place = [*at[:b], *(f"g{j}" for j in range(k)), *at[lead:]]
        return ElementSource(lines, f"p0 + ({offset_of(x, place)})")

    inner = inner_axis(y)
    width = straight(x, inner - lead + b + k) if inner >= lead else 1
    return _moved("gathernd", [x, indices], y, traits, found, width)


def onehot(
    op: Any, indices: Tensor, values: Tensor, y: Tensor, traits: DeviceTraits, values_at: int = 1
) -> KernelSource:
    values, y = as_unsigned(values), as_unsigned(y)
    axis = normalize(op.axis, len(y.lens))
    n = y.lens[axis]

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        own = [*at[:axis], *at[axis + 1 :]]
        lines = [f"const i64 g = convert<i64>(p0[{offset_of(indices, own)}]);"]
        hit = f"g == (i64){at[axis]} || g + {n} == (i64){at[axis]}"
        return lines, [f"p{values_at}[{hit} ? {values.strides[0]} : 0]"]

    inputs: list[Tensor | None] = [indices, *([None] * (values_at - 1)), values]
    return each_element("onehot", inputs, [y], traits, element)


def scan_slice(op: Any, x: Tensor, index: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    axis = normalize(op.axis, len(x.lens))
    n = x.lens[axis]

    def found(at: Coordinates) -> ElementSource:
        place = f"{n - 1} - (i64)p1[0]" if op.direction else "(i64)p1[0]"
        return ElementSource(
            [f"const u32 g = (u32)wrapped({place}, {n});"],
            f"p0 + ({offset_of(x, [*at[:axis], 'g', *at[axis + 1 :]])})",
        )

    inner = inner_axis(y)
    return _moved("scan_slice", [x, index], y, traits, found, straight(x, inner) if inner not in (axis, -1) else 1)


def reverse_sequence(op: Any, x: Tensor, lengths: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    batch, time = op.batch_and_time(len(x.lens))

    def found(at: Coordinates) -> ElementSource:
        lines = [
            f"const i64 length = (i64)p1[{offset_of(lengths, [at[batch]])}];",
            f"const i32 m = length < {x.lens[time]} ? (i32)length : {x.lens[time]};",
            f"const u32 g = (i32){at[time]} < m ? (u32)(m - 1 - (i32){at[time]}) : {at[time]};",
        ]
        return ElementSource(lines, f"p0 + ({offset_of(x, ['g' if a == time else c for a, c in enumerate(at)])})")

    inner = inner_axis(y)
    return _moved(
        "reverse_sequence", [x, lengths], y, traits, found, 1 if inner in (batch, time, -1) else straight(x, inner)
    )
