"""Epilogues that a kernel applies to the sums of a product before it stores them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mgx_core import Instruction, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import UnsupportedError
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.scalar import primitives
from mgx_core.types.dtype import DType

from .bodies import VIEWS, Access, Body, Source
from .coarse import Coarse
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .geometry import Reader, index_type, offset_code, store_code
from .primitives import constant
from .reductions import element_value
from .source import Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["FusedEpilogue", "product_epilogue", "read_and_store", "store_results", "store_vectors"]

WORD: Final = 4  # 8-bit floats that are converted together
EXPOSING: Final = frozenset({
    "sign", "mod", "fmod", "floor", "ceil", "trunc", "where", "lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf",
})  # fmt: skip


@dataclass(frozen=True)
class FusedEpilogue:
    """Pointwise work on sums: `body` has the sums as its first inputs, and the `given` tensors as inputs from `index` on.

    sums: how many it reads per result, from adjacent parts of one product; coarse: whether all its results have 8 bits;
    approximate: the sums are approximations, so that integers may be rounded from inexact quotients.
    """

    body: Body
    given: tuple[Tensor, ...]
    index: tuple[int, ...]
    sums: int = 1
    coarse: Coarse = Coarse.NO
    approximate: bool = False

    def reads(self) -> list[Access]:
        """Returns its reads of memory, except the sums."""
        return [a for a in self.body.accesses if a.index >= self.sums]

    def code(
        self,
        sums: Sequence[str],
        strides: Sequence[Sequence[int]],
        places: Sequence[str],
        offsets: str,
        width: int = 1,
        prefix: str = "t",
        repeated: Collection[str] | None = None,
    ) -> tuple[list[str], list[str], list[Value]]:
        """Returns statements that read memory, statements that compute element `k` of a group, and the results.

        sums: expressions of the sums; strides: of each of `reads` along `places`, the coordinates, the innermost in groups of
        `width`; offsets: the type of memory offsets; prefix: for variable names; repeated: coordinates for which the statements
        are repeated: reads that do not depend on them are not returned (see `fixed_reads`).
        """
        accesses, lines, loads = self.reads(), Lines(prefix), []
        readers = [Reader(self.given[a.index], s, a.offset, width) for a, s in zip(accesses, strides, strict=True)]
        for n, (access, reader) in enumerate(zip(accesses, readers, strict=True)):
            at = offset_code(places, reader.strides, access.offset, offsets, width)
            if repeated is None or _moves(places, reader.strides, repeated):
                loads += reader.lines(f"e{n}", f"p{self.index[access.index]}", at)
        kind = compute_type(self.given[0].dtype)

        def leaf(source: Source) -> Value | None:
            if not isinstance(source, Access):
                return None
            if source.index < self.sums:
                return Value(lines.let(kind, sums[source.index]), kind)
            n = accesses.index(source)
            reader = readers[n]
            if repeated is not None and _converted(reader.x) and not _moves(places, reader.strides, repeated):
                return Value(f"w{n}[k]", "float")
            return element_value(source, self.given, reader.element(f"e{n}"), lines)

        def finite(read: Access) -> bool:
            return self.given[read.index].constant or self.given[read.index].dtype.is_integer

        evaluator = Evaluator(self.body, lines, leaf, self.coarse, finite)
        evaluator.approximate = self.approximate
        results = [evaluator.value(o) for o in self.body.outputs]
        return loads, lines.lines, results

    def fixed_reads(
        self, strides: Sequence[Sequence[int]], places: Sequence[str], width: int, repeated: Collection[str]
    ) -> list[str]:
        """Returns statements that read memory independently of the coordinates `repeated`; otherwise as `code`."""
        index, loads = index_type(*self.given[self.sums :]), []
        for n, (access, steps) in enumerate(zip(self.reads(), strides, strict=True)):
            reader = Reader(self.given[access.index], steps, access.offset, width)
            if not _moves(places, reader.strides, repeated):
                at = offset_code(places, reader.strides, access.offset, index, width)
                loads += reader.lines(f"e{n}", f"p{self.index[access.index]}", at)
                if _converted(reader.x):
                    value = to_compute(reader.element(f"e{n}"), reader.x.dtype)
                    loads += [f"float w{n}[{width}];", f"UNROLL for (int k = 0; k < {width}; ++k) w{n}[k] = {value};"]
        return loads


def _converted(x: Tensor) -> bool:
    """Returns True if elements are floats that are computed in a wider type."""
    return x.dtype.is_float and compute_type(x.dtype) == "float" != storage_type(x.dtype)


def _moves(places: Sequence[str], strides: Sequence[int], repeated: Collection[str]) -> bool:
    """Returns True if an address depends on one of the coordinates `repeated`."""
    return any(s and p in repeated for p, s in zip(places, strides, strict=True))


def store_results(
    ys: Sequence[Tensor], after: FusedEpilogue | None, places: Sequence[str], first: int = 0
) -> list[str]:
    """Returns statements that write the results at one position, from its sums `whole0` and so on; see `read_and_store`."""
    loads, stores = read_and_store(ys, after, places, first)
    return [*loads, *stores]


def read_and_store(
    ys: Sequence[Tensor], after: FusedEpilogue | None, places: Sequence[str], first: int = 0
) -> tuple[list[str], list[str]]:
    """Returns statements that read the epilogue's operands at one position, and those that write the results from its sums.

    places: coordinates along the last axes of the results; first: index of the first of `ys` among the kernel's results.  The
    sums are variables `whole0` and so on.
    """
    axes = len(places)
    index = index_type(*ys, *(after.given[after.sums :] if after else ()))
    loads: list[str] = []
    work: list[str] = []
    if after is None:
        stores = [to_storage("whole0", y.dtype) for y in ys]
    else:
        sums, strides = [f"whole{n}" for n in range(after.sums)], [a.strides[-axes:] for a in after.reads()]
        loads, work, values = after.code(sums, strides, places, index)
        stores = [store_value(v, y.dtype) for v, y in zip(values, ys, strict=True)]
    targets = [
        f"q{n}[{offset_code(places, y.strides[-axes:], 0, index)}] = {v};"
        for n, (y, v) in enumerate(zip(ys, stores, strict=True), first)
    ]
    return loads, [*work, *targets]


def store_vectors(
    ys: Sequence[Tensor],
    after: FusedEpilogue | None,
    strides: Sequence[Sequence[int]],
    places: Sequence[str],
    width: int,
    total: str = "v[k]",
    repeated: Collection[str] | None = None,
) -> list[str]:
    """Returns statements that apply the epilogue to `width` adjacent sums and store the results as vectors.

    strides: along `places` of each result, then of each read of the epilogue; total: the sum of element `k`; repeated: as for
    `FusedEpilogue.code`.
    """
    index = index_type(*ys, *(after.given[1:] if after else ()))
    loads: list[str] = []
    work: list[str] = []
    values: list[Value] = []
    if after is None:
        stores = [to_storage(total, y.dtype) for y in ys]
    else:
        loads, work, values = after.code([total], strides[len(ys) :], places, index, width, repeated=repeated)
        stores = [store_value(v, y.dtype) for v, y in zip(values, ys, strict=True)]
    declared, each, targets = [], [], []
    for n, (y, value) in enumerate(zip(ys, stores, strict=True)):
        at, kind = f"q{n} + ({offset_code(places, strides[n], 0, index, width)})", storage_type(y.dtype)
        if width % WORD == 0 and values and values[n].wide and values[n].packed_as is y.dtype:
            bounds = ", ".join(constant(float(bound), "float") for bound in (y.dtype.lowest, y.dtype.highest))
            declared.append(f"float wide{n}[{width}];")
            each.append(f"wide{n}[k] = {values[n].wide};")
            targets += [
                f"vec<u32, {width // WORD}> out{n};",
                f"UNROLL for (int k = 0; k < {width // WORD}; ++k) "
                f"out{n}.v[k] = saturated_four<{kind}>(wide{n} + {WORD} * k, {bounds});",
                f"stv<u32, {width // WORD}>((u32*)({at}), out{n});",
            ]
            continue
        declared.append(f"vec<{kind}, {width}> out{n};")
        each.append(f"out{n}.v[k] = {value};")
        targets.append(f"{store_code(y, width)}({at}, out{n});")
    return [
        *loads,
        *declared,
        f"UNROLL for (int k = 0; k < {width}; ++k) {{",
        *(f"  {line}" for line in (*work, *each)),
        "}",
        *targets,
    ]


def product_epilogue(
    body: Module,
    joints: Sequence[Instruction],
    inputs: Sequence[Tensor | None],
    dims: Sequence[int],
    first: int = 0,
    outputs: Sequence[Instruction] = (),
    held: DType | None = None,
) -> FusedEpilogue:
    """Returns the computation of a flat group after `joints`, over the extents `dims`: the product, its reshape, or slices of it.

    inputs: the group's, the first of which is input `first` of the kernel; outputs: values to compute, by default the group's;
    held: a float type in which the kernel has exact sums of integers; the epilogue reads these if it converts the sums to floats.
    Errors: UnsupportedError for members that a single loop nest cannot compute.
    """
    outputs = outputs or body.outputs
    places = {p: n for n, p in enumerate(body.parameters.values())}
    made = Module("finish")
    sums = [Shape.of(held if held and _is_widened(j) else j.shape.dtype, dims) for j in joints]
    went = {j: made.add_parameter(f"sum{n}", shape) for n, (j, shape) in enumerate(zip(joints, sums, strict=True))}
    given, index = list(map(Tensor.of, sums)), [-1] * len(joints)

    def take(ins: Instruction) -> Instruction:
        if ins in went:
            return went[ins]
        tensor = inputs[places[ins]] if ins in places else None
        if tensor is not None:
            went[ins] = made.add_parameter(f"x{places[ins]}", Shape.of(tensor.dtype, tensor.lens))
            given.append(tensor)
            index.append(first + places[ins])
        elif ins.is_literal and ins.literal is not None:
            went[ins] = made.add_literal(ins.literal)
        elif isinstance(ins.op, (Pointwise, *VIEWS)):
            went[ins] = made.add(ins.op, *map(take, ins.inputs))
        else:
            raise UnsupportedError(f"{ins.op.name} is not supported after a product")
        return went[ins]

    made.add_return([take(o) for o in outputs])
    return FusedEpilogue(Body.of(made, given), tuple(given), tuple(index), len(joints), _coarse(outputs, made))


def _is_widened(joint: Instruction) -> bool:
    return joint.shape.dtype.is_integer and all(
        isinstance(u.op, Convert) and u.shape.dtype.is_float for u in joint.users
    )


def _coarse(outputs: Sequence[Instruction], body: Module) -> Coarse:
    """Returns whether results of 8 bits hide small errors of members; comparisons and steps would expose them."""
    if any(o.shape.dtype.bits > 8 or o.shape.dtype is dt.bool_ for o in outputs):
        return Coarse.NO
    if any(isinstance(i.op, Pointwise) and primitives(type(i.op).scalar) & EXPOSING for i in body):
        return Coarse.NO
    return Coarse.BYTES if all(o.shape.dtype.is_integer for o in outputs) else Coarse.FLOATS
