"""Pointwise work with gathers of single elements: one thread computes an element with all its lookups."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction, Module, No
from mgx_core.ops.axes import normalize
from mgx_core.ops.index import GatherElements

from .bodies import LOOKUPS, Access, Body, Source, flat
from .elements import Coordinates, each_element, offset_of
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .source import DeviceTraits, KernelSource, Tensor, compute_type, entry_word, to_compute

__all__ = ["lookup"]


def lookup(
    module: Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor], traits: DeviceTraits
) -> KernelSource | No:
    """Generates a kernel for a module of pointwise ops, views and gathers over the same elements.

    Errors: UnsupportedError for anything else.
    """
    body = Body.of(flat(module), inputs, lookups=True)
    if any(lens != body.dims for lens in body.output_dims):
        return No("a result has other extents than the lookups")

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines, found = Lines(), dict[Instruction, Value]()

        def loaded(index: int, offset: int, code: str) -> Value:
            of = inputs[index].dtype
            read = f"p{index}[{f'{offset} + ' if offset else ''}{code}]"
            value = to_compute(read, of)
            if value == read:
                return Value(lines.let(compute_type(of), read), compute_type(of))
            return Value(lines.let("float", value), "float", read, of)

        def leaf(source: Source) -> Value | None:
            if isinstance(source, Access):
                seen = Tensor(inputs[source.index].dtype, body.dims, source.strides)
                return loaded(source.index, source.offset, offset_of(seen, at))
            if not isinstance(source, Instruction) or not isinstance(source.op, LOOKUPS):
                return None
            if source not in found:
                table, index = body.tables[source], evaluator.value(body.operands[source][0])
                axis = normalize(source.op.axis, len(table.tensor.lens))
                place = index.code if index.ctype == "u64" else f"(i64)({index.code})"  # as of indexing.position
                g = lines.let("u32", f"(u32)wrapped({place}, {table.tensor.lens[axis]})")
                where = [*at[:axis], g, *at[axis + 1 :]] if isinstance(source.op, GatherElements) else [g]
                found[source] = loaded(table.index, table.offset, offset_of(table.tensor, where))
            return found[source]

        evaluator = Evaluator(body, lines, leaf)
        stores = [store_value(evaluator.value(s), y.dtype) for s, y in zip(body.outputs, outputs, strict=True)]
        return lines.lines, stores

    word = entry_word(["lookup", *body.words])
    flops = outputs[0].elements * len(body.members)
    return each_element(word, inputs, outputs, traits, element, flops=flops)
