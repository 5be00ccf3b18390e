"""Values of a body's members as statements, from the names of its reads."""

from __future__ import annotations

from collections.abc import Callable

from mgx_core import Instruction
from mgx_core.ops.elementwise import Pointwise

from .bodies import Access, Body, Source
from .expressions import Lines, Value, pointwise_value, store_value
from .source import Tensor, computed, read, stored

__all__ = ["Evaluator", "body_function"]


class Evaluator:
    """Writes the statements for values into `lines`; `leaf` names values that are not computed here (None: compute it)."""

    def __init__(self, body: Body, lines: Lines, leaf: Callable[[Source], Value | None]) -> None:
        self.body = body
        self.lines = lines
        self.leaf = leaf
        self.known: dict[Instruction, Value] = {}

    def value(self, source: Source) -> Value:
        if isinstance(source, Value):
            return source
        if isinstance(source, Instruction) and source in self.known:
            return self.known[source]
        given = self.leaf(source)
        if given is not None:
            return given
        assert isinstance(source, Instruction) and isinstance(source.op, Pointwise), source
        operands = [self.value(s) for s in self.body.operands[source]]
        made = pointwise_value(source.op, operands, source.shape.dtype, self.lines)
        self.known[source] = made
        return made


def body_function(name: str, body: Body, inputs: list[Tensor], outputs: list[Tensor]) -> tuple[str, list[Access]]:
    """Returns a device function ``name(x.., y&..)`` for one element, stored inputs to stored outputs, and its reads in order."""
    reads = body.accesses
    types = [inputs[r.index].dtype for r in reads]
    lines = Lines()

    def leaf(source: Source) -> Value | None:
        if isinstance(source, Access):
            of = types[reads.index(source)]
            code = f"x{reads.index(source)}"
            value = read(code, of)
            if value == code:
                return Value(code, computed(of))
            return Value(lines.let("float", value), "float", code, of)
        return None

    evaluator = Evaluator(body, lines, leaf)
    stores = [f"y{i} = {store_value(evaluator.value(s), outputs[i].dtype)};" for i, s in enumerate(body.outputs)]
    parameters = [f"{stored(of)} x{i}" for i, of in enumerate(types)]
    parameters += [f"{stored(o.dtype)}& y{i}" for i, o in enumerate(outputs)]
    text = f"DEV void {name}({', '.join(parameters)}) {{\n"
    return text + "".join(f"  {line}\n" for line in (*lines.lines, *stores)) + "}\n", reads
