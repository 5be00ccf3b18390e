"""Matches an `attention` group or op: strided operands, and the expression of the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import UnsupportedError
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.compare import Equal, Isnan
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Add, Div, Mul, Where
from mgx_core.ops.reshape import regroup
from mgx_core.ops.softmax import Softmax
from mgx_core.ops.trigonometry import Tanh
from mgx_core.rules.constants import scalar_of
from mgx_core.rules.outline import through_views
from mgx_core.types.dtype import DType

from .bodies import VIEWS, Access, Body, flat, through_chain
from .expressions import store_value
from .extents import remembered
from .geometry import offset_code
from .product_epilogue import FusedEpilogue, product_epilogue
from .source import NAME, Tensor, storage_type

__all__ = ["Pattern", "from_group", "from_op", "transposed_from"]


@dataclass
class Pattern:
    """softmax(score(q k^T)) v, with leading batch axes.

    batch: extents of the batch axes; q [*batch, s, d], k [*batch, t, d], v [*batch, t, e] as reads of inputs, out strides
    [*batch, s, e].  score: the pointwise work from products to logits over [*batch, s, t]; scale: the positive factor that it
    consists of, None if it does more.  lines and keep: statements, and the condition under which query `row` attends key
    `col`; they declare `present`, the number of keys, if it is not t, and `start`, the last key of query 0, if causal.  sees:
    condition on a row's sum of weights below which the result is zero.  after: epilogue of the result, which may read rows
    along its last axis; after_module: the same as a module of the result and these rows.
    """

    inputs: list[Tensor | None]
    out: Tensor
    batch: tuple[int, ...]
    s: int
    t: int
    d: int
    e: int
    q: Access
    k: Access
    v: Access
    o: tuple[int, ...]
    score: FusedEpilogue | None = None
    scale: float | None = None
    lines: list[str] = field(default_factory=list)
    keep: str = ""
    present: bool = False
    causal: bool = False
    sees: str = ""
    after: FusedEpilogue | None = None
    after_module: Module | None = None

    @property
    def dtype(self) -> DType:
        """Element type of the operands."""
        return self.tensor(self.q).dtype

    @property
    def word(self) -> str:
        """The operands' C type."""
        return storage_type(self.dtype)

    @property
    def rows(self) -> list[int]:
        """Returns indices of the inputs that `after` reads."""
        return [] if self.after is None else sorted({self.after.index[a.index] for a in self.after.reads()})

    def finishing(self) -> str:
        """Returns the device function that applies `after` to a sum and its channel; empty without `after`."""
        if self.after is None:
            return ""
        strides = [a.strides[-1:] for a in self.after.reads()]
        loads, work, (made,) = self.after.code(["sum"], strides, ["channel"], "u32")
        rows = "".join(f", const {storage_type(self.tensor(Access(n, (), 0)).dtype)}* p{n}" for n in self.rows)
        body = [*loads, *work, f"y = {store_value(made, self.out.dtype)};"]
        text = f"DEV void {NAME}_finished(float sum, u32 channel, {storage_type(self.out.dtype)}& y{rows}) {{\n"
        return text + "".join(f"  {line}\n" for line in body) + "}\n"

    @property
    def names(self) -> list[str]:
        return [f"h{i}" for i in range(len(self.batch))]

    def tensor(self, access: Access) -> Tensor:
        found = self.inputs[access.index]
        assert found is not None
        return found

    def base(self, access: Access) -> str:
        n = len(self.batch)
        return offset_code(self.names, access.strides[:n], access.offset, "u64")

    def out_base(self) -> str:
        return offset_code(self.names, self.o[: len(self.batch)], 0, "u64")

    def logits(self) -> tuple[list[str], str]:
        """Returns statements that compute a logit from the product `s` of query `row` and key `col`, and its variable."""
        if self.score is None:
            return [], "s"
        strides = [a.strides for a in self.score.reads()]
        loads, work, (made,) = self.score.code(["s"], strides, [*self.names, "row", "col"], "u64", prefix="z")
        return [*loads, *work], made.code


def from_group(module: Module, inputs: Sequence[Tensor], out: Tensor) -> Pattern | No:
    """Returns the pattern of an `attention` group's module."""
    module = flat(module)
    softmax = next((i for i in module if isinstance(i.op, Softmax)), None)
    dots = [i for i in module if isinstance(i.op, Dot)]
    if softmax is None or len(dots) != 2:
        return No("the group does not have the form product, softmax, product")
    first, second = dots
    places = {p: n for n, p in enumerate(module.parameters.values())}

    def read(ins: Instruction, order: tuple[int, int]) -> Access:
        chain: list[Any] = []
        while isinstance(ins.op, VIEWS):
            chain.insert(0, ins.op)
            ins = ins.inputs[0]
        if ins not in places:
            raise UnsupportedError(f"an operand of a product is computed by {ins.op.name}")
        offset, shape = through_chain(chain, inputs[places[ins]].shape)
        strides = [0 if n == 1 else s for n, s in zip(shape.lens(), shape.strides(), strict=True)]
        lead = strides[:-2]
        return Access(places[ins], (*lead, strides[-2 + order[0]], strides[-2 + order[1]]), offset)

    try:
        q, k = read(first.inputs[0], (0, 1)), read(first.inputs[1], (1, 0))
        v = read(second.inputs[1], (0, 1))
        lens = [x.lens for x in inputs]
        dims = (*first.shape.lens()[:-2], *(remembered(n, lens) for n in first.shape.lens()[-2:]))
        sees = _weights(softmax, second)
        o, after = _way_out(module, second, inputs, out)
        pattern = Pattern(
            list(inputs), out, dims[:-2], dims[-2], dims[-1], first.inputs[0].shape.lens()[-1],
            second.shape.lens()[-1], q, k, v, o, sees=sees,
        )  # fmt: skip
        if after is not None:
            pattern.after, pattern.after_module = after
        if softmax.inputs[0] is not first:
            pattern.score = product_epilogue(module, [first], inputs, dims, outputs=softmax.inputs)
            pattern.scale = _scale(softmax.inputs[0], first)
    except UnsupportedError as error:
        return No(str(error))
    return pattern


def _scale(logits: Instruction, product: Instruction) -> float | None:
    """Returns the factor if the logits are the product times a positive number, not near the limits of the range."""
    if not isinstance(logits.op, Mul) or product not in logits.inputs:
        return None
    factor = scalar_of(logits.inputs[1 - logits.inputs.index(product)])
    return float(factor) if factor is not None and 1e-30 < factor < 1e30 else None


def _weights(softmax: Instruction, second: Instruction) -> str:
    """Returns `Pattern.sees`; declines weights that are changed except from NaN to zero."""
    at, sees = second.inputs[0], ""
    while at is not softmax:
        if isinstance(at.op, Where) and isinstance(at.inputs[0].op, Isnan):
            sees, at = "> 0.f", at.inputs[2]  # covers NaN scores too
        elif isinstance(at.op, Convert):
            at = at.inputs[0]
        else:
            raise UnsupportedError(f"{at.op.name} of the weights before the second product is not supported")
    return sees


def _way_out(
    module: Module, second: Instruction, inputs: Sequence[Tensor], out: Tensor
) -> tuple[tuple[int, ...], tuple[FusedEpilogue, Module] | None]:
    """Returns the output's strides along the axes of the second product, and `Pattern.after`."""
    chain: list[Instruction] = []
    at = module.outputs[0]
    while at is not second:
        chain.append(at)
        onward = [i for i in at.inputs if not through_views(i).is_literal and not through_views(i).is_param]
        if len(onward) != 1:
            raise UnsupportedError(
                f"{at.op.name} of {len(onward)} computed values is not supported after the second product"
            )
        at = onward[0]
    shape = out.shape
    work = [ins for ins in chain if isinstance(ins.op, Pointwise)]
    for ins in chain:
        if ins in work:
            continue
        before = tuple(ins.inputs[0].shape.lens())
        if isinstance(ins.op, Transpose):
            shape = transposed_from(ins.op, shape)
        elif ins.op.reshapes:
            seen = regroup(shape, before)
            if seen is None:
                raise UnsupportedError("the output's layout interleaves the heads")
            shape = seen[1]
        else:
            raise UnsupportedError(f"{ins.op.name} is not supported after the second product")
    steps = tuple(0 if n == 1 else s for n, s in zip(shape.lens(), shape.strides(), strict=True))
    if all(isinstance(ins.op, Convert) for ins in work) and out.dtype is second.shape.dtype:
        return steps, None
    return steps, _finish(work[::-1], second, module, inputs, out)


def transposed_from(op: Transpose, shape: Shape) -> Shape:
    """Returns the layout of a transpose's operand, of which its result with this layout is a view."""
    order, lens, strides = op.order(shape.rank), shape.lens(), shape.strides()
    back = sorted(range(shape.rank), key=order.__getitem__)
    return Shape(shape.dtype, [lens[n] for n in back], [strides[n] for n in back])


def _finish(
    work: Sequence[Instruction], second: Instruction, module: Module, inputs: Sequence[Tensor], out: Tensor
) -> tuple[FusedEpilogue, Module]:
    """Returns the epilogue of the second product, in the layout of `out`, with operands that are scalars or rows of channels."""
    made = Module("after")
    given, index = [Tensor.of(Shape.of(second.shape.dtype, out.lens))], [-1]
    at = made.add_parameter("sum", Shape.of(second.shape.dtype, out.lens))
    places = {p: n for n, p in enumerate(module.parameters.values())}
    for ins in work:
        operands = []
        for x in ins.inputs:
            number, source = scalar_of(x), through_views(x)
            if number is not None:
                operands.append(made.add_literal(np.asarray(number, x.shape.dtype.numpy)))
            elif source in places:
                n = places[source]
                given.append(inputs[n])
                index.append(n)
                operands.append(made.add_parameter(f"x{n}.{len(given)}", Shape.of(inputs[n].dtype, inputs[n].lens)))
            else:
                operands.append(at)
                continue
            operands[-1] = made.add(Multibroadcast(out_lens=out.lens), operands[-1])
        at = made.add(ins.op, *operands)
    made.add_return([at])
    finish = FusedEpilogue(Body.of(made, given), tuple(given), tuple(index), approximate=True)
    if any(any(a.strides[:-1]) for a in finish.reads()) or not out.shape.standard():
        raise UnsupportedError("operands of the epilogue vary along other axes than the last")
    return finish, made


def from_op(op: Any, inputs: Sequence[Tensor | None], out: Tensor) -> Pattern | No:
    """Returns the pattern of the `attention` op: q, k, v, then mask, kv_lengths, offsets, sink."""
    q, k, v, mask, lengths, offsets, sink = [*inputs, *[None] * 7][:7]
    assert q is not None and k is not None and v is not None
    if sink is not None or op.precision not in (None, dt.float32) or op.result_of != "output" or q.dtype is dt.float64:
        return No("sinks, softmax types and results besides the output are not supported")
    b, h, s, d = q.lens
    g, t, e = k.lens[1], k.lens[2], v.lens[3]
    r = h // g
    batch = (b, g, r)

    def heads(x: Tensor, repeated: bool) -> tuple[int, ...]:
        sb, sh, *rest = (0 if n == 1 else st for n, st in zip(x.lens, x.strides, strict=True))
        return (sb, sh, 0, *rest) if repeated else (sb, sh * r, sh, *rest)

    pattern = Pattern(
        list(inputs), out, batch, s, t, d, e, Access(0, heads(q, False)), Access(1, heads(k, True)),
        Access(2, heads(v, True)), heads(out, False), sees="!= 0.f", causal=op.causal,
    )  # fmt: skip
    conditions = _windows(pattern, op, lengths, offsets)
    if mask is not None and mask.lens[-1] < t:
        if mask.lens[-1] == 1:
            return No("a mask broadcast over the keys is not supported")
        conditions.insert(0, f"col < {mask.lens[-1]}u")
    pattern.keep = " && ".join(conditions)
    pattern.score = _masked_scores(pattern, op, mask)
    return pattern


def _masked_scores(pattern: Pattern, op: Any, mask: Tensor | None) -> FusedEpilogue:
    """Returns `Pattern.score` of the `attention` op: scale, softcap and mask, which is input 3 of the kernel."""
    made = Module("score")
    _, g, r = pattern.batch
    dims = (*pattern.batch, pattern.s, pattern.t)
    at = made.add_parameter("product", Shape.of(dt.float32, dims))
    given, index = [Tensor.of(Shape.of(dt.float32, dims))], [-1]

    def full(value: float) -> Instruction:
        return made.add(Multibroadcast(out_lens=dims), made.add_literal(np.asarray(value, np.float32)))

    at = made.add(Mul(), at, full(1 / math.sqrt(max(pattern.d, 1)) if op.scale is None else op.scale))
    if op.softcap:
        at = made.add(Mul(), full(op.softcap), made.add(Tanh(), made.add(Div(), at, full(op.softcap))))
    if mask is not None:
        lens = (*(1,) * (4 - len(mask.lens)), *mask.lens)
        strides = (*(0,) * (4 - len(mask.lens)), *mask.strides)
        split = (lens[0], 1 if lens[1] == 1 else g, 1 if lens[1] == 1 else r, lens[2], pattern.t)
        sb, sh, ss, st = (0 if n == 1 else x for n, x in zip(lens, strides, strict=True))
        given.append(Tensor(mask.dtype, split, (sb, sh * r, sh, ss, st), mask.align))
        index.append(3)
        wide = made.add(Multibroadcast(out_lens=dims), made.add_parameter("mask", Shape.of(mask.dtype, split)))
        if mask.dtype is dt.bool_:
            at = made.add(Where(), wide, at, full(-math.inf))
        else:
            if mask.dtype is not dt.float32:
                wide = made.add(Convert(target_type=dt.float32), wide)
            closed = full(-math.inf)  # the score of a masked key may be infinite or NaN
            at = made.add(Where(), made.add(Equal(), wide, closed), closed, made.add(Add(), at, wide))
    made.add_return([at])
    return FusedEpilogue(Body.of(made, given), tuple(given), tuple(index))


def _windows(pattern: Pattern, op: Any, lengths: Tensor | None, offsets: Tensor | None) -> list[str]:
    """Returns the conditions for lengths, causality and windows; adds the statements they need to `Pattern.lines`."""
    conditions: list[str] = []
    if lengths is not None:
        t = pattern.t
        pattern.lines += [
            f"const i64 length = (i64)p4[h0 * {lengths.strides[0]}u];",
            f"const u32 present = length < 0 ? 0u : length < {t} ? (u32)length : {t}u;",
        ]
        pattern.present = True
        conditions.append("col < present")
    if op.causal or op.left_window_size >= 0 or op.right_window_size >= 0:
        if offsets is not None:
            pattern.lines.append(f"const i64 start = (i64)p5[h0 * {offsets.strides[0]}u];")
        else:
            pattern.lines.append(f"const i64 start = {int(op.offset)};")
    if op.causal:
        conditions.append("(i64)col <= start + (i64)row")
    if op.left_window_size >= 0:
        conditions.append(f"(i64)col + {op.left_window_size} >= start + (i64)row")
    if op.right_window_size >= 0:
        conditions.append(f"(i64)col <= start + (i64)row + {op.right_window_size}")
    return conditions
