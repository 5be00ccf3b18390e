"""Work on the sums of a product that its kernel does, apart from the product itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mgx_core import Instruction, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import UnsupportedError
from mgx_core.ops.activation import GeluErf, Sigmoid
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.pointwise import Add, Min, Mul

from ..coarse_gelu import ERF, SATURATED
from .bodies import VIEWS, Access, Body, Source
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .geometry import Reader, index_type, offset_code, store_code
from .reductions import element_value
from .source import Tensor, computed, stored, written

__all__ = ["Finish", "after_product", "stored_results", "stored_vectors"]


@dataclass(frozen=True)
class Finish:
    """Pointwise work on sums: `body` reads them as its first inputs and the `given` tensors, inputs `index`, behind.

    sums: how many it reads for a result, parts of one product side by side.
    """

    body: Body
    given: tuple[Tensor, ...]
    index: tuple[int, ...]
    sums: int = 1

    def reads(self) -> list[Access]:
        """Returns elements of memory that it reads, the sums left out."""
        return [a for a in self.body.accesses if a.index >= self.sums]

    def reader(self, access: Access, strides: Sequence[int], width: int) -> Reader:
        """Reads `width` neighbours; strides: along the axes of the loop at hand, the innermost last."""
        return Reader(self.given[access.index], strides, access.offset, width)

    def load(self, n: int, reader: Reader, places: Sequence[str], offsets: str) -> list[str]:
        """Statements that read the n-th of `reads`; places: coordinates, the innermost in groups of the reader's width."""
        access = self.reads()[n]
        code = offset_code(places, reader.strides, access.offset, offsets, reader.width)
        return reader.lines(f"e{n}", f"p{self.index[access.index]}", code)

    def values(self, sums: Sequence[str], readers: Sequence[Reader], lines: Lines) -> list[Value]:
        """Returns the results for element `k` of a group, from the code of its sums."""
        accesses = self.reads()
        kind = computed(self.given[0].dtype)

        def leaf(source: Source) -> Value | None:
            if not isinstance(source, Access):
                return None
            if source.index < self.sums:
                return Value(lines.let(kind, sums[source.index]), kind)
            n = accesses.index(source)
            return element_value(source, self.given, readers[n].element(f"e{n}"), lines)

        evaluator = Evaluator(self.body, lines, leaf)
        return [evaluator.value(o) for o in self.body.outputs]


def stored_results(ys: Sequence[Tensor], after: Finish | None, places: Sequence[str], first: int = 0) -> list[str]:
    """Returns statements that write the results of one place, from its sums `whole0` and so on.

    places: coordinates along the last axes of the results; first: the number of the first of `ys` among the kernel's results.
    """
    axes = len(places)
    index = index_type(*ys, *(after.given[after.sums :] if after else ()))
    inner = Lines("t")
    lines: list[str] = []
    if after is None:
        stores = [written("whole0", y.dtype) for y in ys]
    else:
        readers = [after.reader(a, a.strides[-axes:], 1) for a in after.reads()]
        for n, reader in enumerate(readers):
            lines += after.load(n, reader, places, index)
        values = after.values([f"whole{n}" for n in range(after.sums)], readers, inner)
        stores = [store_value(v, y.dtype) for v, y in zip(values, ys, strict=True)]
    targets = [
        f"q{n}[{offset_code(places, y.strides[-axes:], 0, index)}] = {v};"
        for n, (y, v) in enumerate(zip(ys, stores, strict=True), first)
    ]
    return [*lines, *inner.lines, *targets]


def stored_vectors(
    ys: Sequence[Tensor],
    after: Finish | None,
    strides: Sequence[Sequence[int]],
    places: Sequence[str],
    width: int,
    bare: Callable[[Tensor], str] = lambda y: "v[k]",
) -> list[str]:
    """Returns statements that finish the sums `v[k]` of `width` neighbours and write the results in vectors.

    strides: along `places` of each result, then of each of the work's reads; bare: a sum as a result without work behind it.
    """
    index = index_type(*ys, *(after.given[1:] if after else ()))
    inner = Lines("t")
    lines: list[str] = []
    if after is None:
        stores = [bare(y) for y in ys]
    else:
        readers = [after.reader(a, s, width) for a, s in zip(after.reads(), strides[len(ys) :], strict=True)]
        for n, reader in enumerate(readers):
            lines += after.load(n, reader, places, index)
        values = after.values(["v[k]"], readers, inner)
        stores = [store_value(v, y.dtype) for v, y in zip(values, ys, strict=True)]
    targets = [
        f"{store_code(y, width)}(q{n} + ({offset_code(places, strides[n], 0, index, width)}), out{n});"
        for n, y in enumerate(ys)
    ]
    return [
        *lines,
        *(f"vec<{stored(y.dtype)}, {width}> out{n};" for n, y in enumerate(ys)),
        f"UNROLL for (int k = 0; k < {width}; ++k) {{",
        *(f"  {line}" for line in inner.lines),
        *(f"  out{n}.v[k] = {value};" for n, value in enumerate(stores)),
        "}",
        *targets,
    ]


def after_product(
    body: Module,
    joints: Sequence[Instruction],
    skipped: Sequence[Instruction],
    inputs: Sequence[Tensor | None],
    dims: Sequence[int],
    first: int = 0,
) -> Finish:
    """Returns the members of a flat group behind `joints`, over the extents `dims`: the product, a reshaped one, or parts of it.

    skipped: instructions up to `joints`, the product's operands too; inputs: the group's, of which the first is input `first` of
    the kernel.  Errors: UnsupportedError for members that one loop does not run.
    """
    places = {p: n for n, p in enumerate(body.parameters.values())}
    made = Module("finish")
    went = {j: made.add_parameter(f"sum{n}", Shape.of(j.shape.dtype, dims)) for n, j in enumerate(joints)}
    given, index = [Tensor.of(Shape.of(j.shape.dtype, dims)) for j in joints], [-1] * len(joints)
    coarse = all(
        o.shape.dtype.bits <= 8 and o.shape.dtype is not dt.bool_ for o in body.outputs
    )  # comparisons show all digits
    for ins in body:
        if ins in went or ins.is_return or ins.is_absent or (ins in skipped and not _read_behind(ins, skipped)):
            continue
        tensor = inputs[places[ins]] if ins in places else None
        if tensor is not None:
            went[ins] = made.add_parameter(f"x{places[ins]}", Shape.of(tensor.dtype, tensor.lens))
            given.append(tensor)
            index.append(first + places[ins])
        elif ins.is_literal and ins.literal is not None:
            went[ins] = made.add_literal(ins.literal)
        elif coarse and isinstance(ins.op, GeluErf):
            went[ins] = _coarse_gelu(made, went[ins.inputs[0]])
        elif isinstance(ins.op, (Pointwise, *VIEWS)):
            went[ins] = made.add(ins.op, *(went[i] for i in ins.inputs))
        else:
            raise UnsupportedError(f"{ins.op.name} after the product")
    made.add_return([went[o] for o in body.outputs])
    return Finish(Body.of(made, given), tuple(given), tuple(index), len(joints))


def _coarse_gelu(made: Module, x: Instruction) -> Instruction:
    """Returns GELU off by 2.5e-5, for results of 8 bits: x P(N(0, 1) < x) = x sigmoid(x (a + b x^2 + c x^4)).

    An exact erf takes a third of the time of a product whose results it follows.
    """

    def number(value: float) -> Instruction:
        return made.add(Multibroadcast(out_lens=x.shape.dims), made.add_literal(np.array(value, np.float32)))

    wide = made.add(Convert(target_type=dt.float32), x)
    square = made.add(Min(), made.add(Mul(), wide, wide), number(SATURATED))
    a, b, c = (2 * value for value in ERF)
    inner = made.add(Add(), made.add(Mul(), square, number(c)), number(b))
    argument = made.add(Mul(), wide, made.add(Add(), made.add(Mul(), square, inner), number(a)))
    share = made.add(Sigmoid(), made.add(Convert(target_type=dt.float16), argument))  # by the device's own exp
    result = made.add(Mul(), wide, made.add(Convert(target_type=dt.float32), share))
    return made.add(Convert(target_type=x.shape.dtype), result)


def _read_behind(ins: Instruction, skipped: Sequence[Instruction]) -> bool:
    """Returns True if something other than the product reads what it is computed from."""
    return any(u not in skipped for u in ins.users)
