"""Translates a group's module to a loop body: values over one iteration space, read through strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mgx_core import Instruction, Module, Shape
from mgx_core.errors import UnsupportedError, counted
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.builtin import Param
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.index import Gather, GatherElements
from mgx_core.ops.movement import Contiguous, Transpose
from mgx_core.ops.operation import Operation
from mgx_core.ops.pointwise import Identity
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.rules.decomposition import module_of
from mgx_core.types.shape import row_major

from .expressions import Value, literal_value
from .source import Tensor, supported

__all__ = ["LOOKUPS", "Access", "Body", "Source", "Table", "flat", "single"]

LOOKUPS = (Gather, GatherElements)

# views that can be folded into strides
VIEWS = (Multibroadcast, Broadcast, Squeeze, Unsqueeze, Reshape, Transpose, Identity, Contiguous)


@dataclass(frozen=True)
class Access:
    """A read of parameter `index` with `strides` along the axes of the iteration space, from `offset` on."""

    index: int
    strides: tuple[int, ...]
    offset: int = 0

    def __hash__(self) -> int:
        return hash(self.index)  # traced numbers compare, but do not hash


@dataclass(frozen=True, eq=False)
class Table:
    """Parameter `index` that a lookup reads, as `tensor`, from `offset` on."""

    index: int
    tensor: Tensor
    offset: int


Source: TypeAlias = "Access | Instruction | Value"  # an element of memory, another member's value, or a constant


@dataclass
class Body:
    """Members in order with the source of each operand.

    dims: the iteration space.  axes: the reduced ones (empty without reductions).  rows: members with one value for all positions
    along `axes`; passes: for each member the number of sequential reductions before it; tables: what members look up.
    """

    dims: tuple[int, ...]
    axes: tuple[int, ...] = ()
    members: list[Instruction] = field(default_factory=list)
    operands: dict[Instruction, list[Source]] = field(default_factory=dict)
    rows: set[Instruction] = field(default_factory=set)
    passes: dict[Instruction, int] = field(default_factory=dict)
    tables: dict[Instruction, Table] = field(default_factory=dict)
    outputs: list[Source] = field(default_factory=list)
    output_dims: list[tuple[int, ...]] = field(default_factory=list)

    @classmethod
    def of(
        cls, module: Module, inputs: Sequence[Tensor], axes: tuple[int, ...] | None = None, lookups: bool = False
    ) -> Body:
        """Errors: UnsupportedError for members or views that a single loop nest cannot compute.

        lookups: the generator supports gathers of single elements; their operand is the index.
        """
        if any(i.result.dynamic() for i in module if isinstance(i.result, Shape)):
            fixed = {w: Shape.of(x.dtype, x.lens) for w, x in zip(module.parameters, inputs, strict=True)}
            module = module.clone(parameters=fixed)
        return _Reader(module, inputs, axes, lookups).body

    @property
    def words(self) -> list[str]:
        return [m.op.name for m in self.members]

    @property
    def accesses(self) -> list[Access]:
        """The distinct reads of memory, in order."""
        found = [s for m in self.members for s in self.operands[m] if isinstance(s, Access)]
        found += [s for s in self.outputs if isinstance(s, Access)]
        return list(dict.fromkeys(found))

    def is_row(self, source: Source) -> bool:
        """Returns True if there is one value per row."""
        if isinstance(source, Instruction):
            return source in self.rows
        if isinstance(source, Access):
            return bool(self.axes) and all(source.strides[a] == 0 or self.dims[a] == 1 for a in self.axes)
        return True

    def after(self, source: Source) -> int:
        """Returns the number of passes over a row before a value is available (including its own, for a reduction)."""
        if not isinstance(source, Instruction):
            return 0
        return self.passes[source] + is_reduction(source)


def is_reduction(ins: Instruction) -> bool:
    return bool(ins.op.combine)


class _Reader:
    def __init__(
        self, module: Module, inputs: Sequence[Tensor], axes: tuple[int, ...] | None, lookups: bool = False
    ) -> None:
        self.places = {p: n for n, p in enumerate(module.parameters.values())}
        self.inputs = inputs
        self.copies: dict[tuple[Instruction, tuple[int, ...], tuple[Operation, ...]], Instruction] = {}
        if len(self.places) != len(inputs):
            raise UnsupportedError(
                f"module {module.name!r} takes {counted(len(self.places), 'value')}, got {len(inputs)}"
            )
        members = [
            i
            for i in module
            if isinstance(i.op, Pointwise) or is_reduction(i) or (lookups and isinstance(i.op, LOOKUPS))
        ]
        first = next((m for m in members if is_reduction(m)), None)
        if first is not None:
            dims = _lens(first.inputs[0].result)
            if axes is None:
                axes = first.op.reduced_axes(len(dims))
            if not axes:
                raise UnsupportedError(f"{first.op} of a scalar has no axis to reduce along")
        else:
            source = members or list(module.outputs)
            dims = _lens(source[-1].result)
            axes = ()
        self.body = Body(tuple(dims), tuple(sorted(axes or ())))
        self.row_dims = tuple(1 if n in self.body.axes else d for n, d in enumerate(dims))
        for ins in module:
            if ins in self.places or ins.is_literal or ins.is_return or ins.is_absent or isinstance(ins.op, VIEWS):
                continue
            if ins not in members:
                raise UnsupportedError(f"a loop nest cannot contain {ins.op.name}")
            if is_reduction(ins) or self._fits(_lens(ins.result)):
                self._member(ins)
        for out in module.outputs:
            at = _lens(out.result)
            self.body.outputs.append(self._source(out, at))
            self.body.output_dims.append(at)

    def _fits(self, dims: tuple[int, ...]) -> bool:
        return dims in (self.body.dims, self.row_dims)

    def _member(self, ins: Instruction) -> None:
        body = self.body
        dims = _lens(ins.inputs[0].result) if is_reduction(ins) else _lens(ins.result)
        if is_reduction(ins) and (
            ins.op.reduced_axes(len(dims)) != body.axes or dims != body.dims or len(ins.inputs) != 1
        ):
            raise UnsupportedError(f"{ins.op} does not reduce {list(body.dims)} along {body.axes}")
        if isinstance(ins.op, LOOKUPS):
            body.tables[ins] = self._table(ins.inputs[0])
            self._keep(ins, dims, [self._source(ins.inputs[1], dims)])
            return
        self._keep(ins, dims, [self._source(i, _lens(i.result)) for i in ins.inputs])

    def _table(self, ins: Instruction) -> Table:
        chain: list[Operation] = []
        while isinstance(ins.op, VIEWS):
            chain.insert(0, ins.op)
            ins = ins.inputs[0]
        if ins not in self.places:
            raise UnsupportedError("what is looked up must be an input")
        given = self.inputs[self.places[ins]]
        offset, shape = through_chain(chain, given.shape)
        seen = given._replace(lens=tuple(shape.lens()), strides=tuple(shape.strides()))
        return Table(self.places[ins], seen, offset)

    def _keep(self, ins: Instruction, dims: tuple[int, ...], operands: list[Source]) -> None:
        body = self.body
        if not supported(ins.shape.dtype):
            raise UnsupportedError(f"kernels do not support {ins.result}")
        body.members.append(ins)
        body.operands[ins] = operands
        body.passes[ins] = max((body.after(s) for s in operands), default=0)
        if body.axes and (is_reduction(ins) or (dims == self.row_dims and all(map(body.is_row, operands)))):
            body.rows.add(ins)

    def _source(self, ins: Instruction, dims: tuple[int, ...], views: Sequence[Operation] = ()) -> Source:
        """Returns the source of an instruction read over `dims` (the iteration space, or its rows) through `views`."""
        chain: list[Operation] = list(views)
        while isinstance(ins.op, VIEWS):
            chain.insert(0, ins.op)
            ins = ins.inputs[0]
        if ins.is_literal and ins.literal is not None:
            value = ins.literal.value
            if value.size != 1:
                raise UnsupportedError("a constant with several elements must be an input")
            return literal_value(value, ins.shape.dtype)
        if ins in self.places:
            given = self.inputs[self.places[ins]]
            if not supported(given.dtype):
                raise UnsupportedError(f"kernels do not read {given.dtype}")
            offset, shape = through_chain(chain, given.shape)
            if tuple(shape.lens()) != dims:
                raise UnsupportedError(f"an input is read as {list(shape.lens())}, required is {list(dims)}")
            strides = [0 if n == 1 else s for n, s in zip(shape.lens(), shape.strides(), strict=True)]
            return Access(self.places[ins], tuple(strides), offset)
        own = _lens(ins.result)
        if isinstance(ins.op, Pointwise) and not self._fits(own):
            return self._repeated(ins, dims, chain)
        if chain:
            self._same_place(chain, own, dims)
        return ins

    def _repeated(self, ins: Instruction, dims: tuple[int, ...], chain: list[Operation]) -> Source:
        """Returns a pointwise op on fewer elements than the iteration space, recomputed at each use."""
        key = (ins, dims, tuple(chain))
        made = self.copies.get(key)
        if made is None:
            if not self._fits(dims):
                raise UnsupportedError(f"{ins.op.name} on {list(dims)} does not fit a loop over {list(self.body.dims)}")
            operands = [self._source(i, dims, chain) for i in ins.inputs]
            made = self.copies[key] = Instruction(ins.op, Shape.of(ins.shape.dtype, dims), ())
            self._keep(made, dims, operands)
        return made

    def _same_place(self, chain: Sequence[Operation], own: tuple[int, ...], dims: tuple[int, ...]) -> None:
        """Errors: UnsupportedError if views of a member read elements at other positions than its own."""
        tags = row_major(own)
        _, seen = through_chain(chain, Shape("float32", own))
        wanted = [0 if n == 1 else t for n, t in zip(own, tags, strict=True)]
        got = [0 if n == 1 else s for n, s in zip(seen.lens(), seen.strides(), strict=True)]
        if tuple(seen.lens()) != dims or got != wanted:
            raise UnsupportedError("a member is read at another position than it is computed at")


def through_chain(chain: Sequence[Operation], shape: Shape) -> tuple[int, Shape]:
    offset = 0
    for op in chain:
        if isinstance(op, (Identity, Contiguous)):
            continue
        seen = op.view(shape) if op.view is not None else None
        if seen is None:
            raise UnsupportedError(f"{op} of {shape} is not a strided view of memory")
        offset, shape = offset + seen[0], seen[1]
    return offset, shape


def _lens(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, Shape):
        raise UnsupportedError(f"a loop nest cannot iterate over {shape}")
    return tuple(shape.lens())


def flat(module: Module) -> Module:
    """Returns a copy with nested groups inlined."""
    if not any(i.modules for i in module):
        return module
    made = Module(module.name)
    went: dict[Instruction, Instruction | list[Instruction]] = {}

    def several(ins: Instruction) -> list[Instruction]:
        found = went[ins]
        return [found] if isinstance(found, Instruction) else found

    def one(ins: Instruction) -> Instruction:
        return several(ins)[0]

    for ins in module:
        if isinstance(ins.op, Param):
            went[ins] = made.add_parameter(ins.op.label, ins.result)
        elif ins.is_literal and ins.literal is not None:
            went[ins] = made.add_literal(ins.literal)
        elif ins.is_absent:
            went[ins] = made.add_absent()
        elif ins.is_return:
            made.add_return([result for i in ins.inputs for result in several(i)])
        elif isinstance(ins.op, GetTupleElem) and isinstance(items := went[ins.inputs[0]], list):
            went[ins] = items[ins.op.index]
        elif len(ins.modules) == 1 and ins.op.fused:
            went[ins] = made.inline(flat(ins.modules[0]), [one(i) for i in ins.inputs])
        else:
            went[ins] = made.add(ins.op, *(one(i) for i in ins.inputs), modules=ins.modules)
    return made


def single(op: Operation, inputs: Sequence[Tensor]) -> Module:
    """Returns a module that applies one op to its parameters."""
    return module_of(op, [Shape.of(x.dtype, x.lens) for x in inputs])
