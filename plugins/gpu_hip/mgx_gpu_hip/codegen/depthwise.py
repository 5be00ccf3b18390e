"""Depthwise convolutions, channels-last: vectors of channels, strips of neighbouring outputs, the epilogue at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Module, No, Shape
from mgx_core.errors import UnsupportedError
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.window import explicit_padding, per_axis

from .bodies import VIEWS, Access, Body, Source, flat
from .elements import pointers
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .geometry import Reader, ceil_div, decompose, index_type, load_code, offset_code, store_code
from .movement import inner_axis, straight
from .pointwise import kernel, threads_of
from .reductions import element_value
from .source import NAME, DeviceTraits, KernelLaunch, KernelSource, Tensor, computed, finish, read, stored

__all__ = ["depthwise", "depthwise_group"]


def depthwise_group(module: Module, inputs: Sequence[Tensor], y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Returns a `convolution` group whose anchor is depthwise."""
    body = flat(module)
    anchor = next((i for i in body if isinstance(i.op, Convolution)), None)
    places = {p: n for n, p in enumerate(body.parameters.values())}
    if anchor is None or any(i not in places for i in anchor.inputs):
        return No("the group is not a convolution of its inputs")
    x, w = (inputs[places[i]] for i in anchor.inputs)
    epilogue = Module("epilogue")
    went: dict[Instruction, Instruction] = {
        anchor: epilogue.add_parameter("sum", Shape.of(anchor.shape.dtype, anchor.shape.lens()))
    }
    given, index = [Tensor.of(Shape.of(anchor.shape.dtype, anchor.shape.lens()))], [-1]
    try:
        for ins in body:
            if ins in went or ins.is_return or (ins.is_param and ins.users == (anchor,)):
                continue
            if ins.is_param:
                went[ins] = epilogue.add_parameter(
                    f"x{places[ins]}", Shape.of(inputs[places[ins]].dtype, inputs[places[ins]].lens)
                )
                given.append(inputs[places[ins]])
                index.append(places[ins])
            elif ins.is_literal and ins.literal is not None:
                went[ins] = epilogue.add_literal(ins.literal)
            elif isinstance(ins.op, (Pointwise, *VIEWS)):
                went[ins] = epilogue.add(ins.op, *(went[i] for i in ins.inputs))
            else:
                return No(f"{ins.op.name} after the convolution")
        if len(body.outputs) != 1:
            return No("the group gives several results")
        epilogue.add_return([went[body.outputs[0]]])
        return depthwise(
            anchor.op,
            x,
            w,
            y,
            traits,
            list(inputs),
            tuple(places[i] for i in anchor.inputs),
            Body.of(epilogue, given),
            given,
            index,
        )
    except UnsupportedError as error:
        return No(str(error))


def depthwise(
    op: Any,
    x: Tensor,
    w: Tensor,
    y: Tensor,
    traits: DeviceTraits,
    inputs: list[Tensor] | None = None,
    at: tuple[int, ...] = (0, 1),
    body: Body | None = None,
    given: Sequence[Tensor] = (),
    index: Sequence[int] = (),
) -> KernelSource | No:
    """Writes a kernel for filters of one channel each, x and y channels last.  Weights are read in vectors where they lie so.

    A channel may have several filters: vectors of results then read the fewer channels that theirs are.
    body: computed from the sums (its input 0) and the `given` tensors, which are the inputs `index`.
    """
    rank = len(x.lens) - 2
    if rank != 2 or op.group != x.lens[1] or w.lens[1] != 1:
        return No("the convolution is not a depthwise convolution of images")
    filters = w.lens[0] // op.group  # of each channel
    if inner_axis(y) != 1 or straight(x, 1) < 2 or straight(y, 1) < 2 or y.lens[1] % 2 or y.elements == 0:
        return No("images are not channels-last")
    (sh, sw), (dh, dw) = per_axis(op.stride, 2, "stride"), per_axis(op.dilation, 2, "dilation")
    (top, left), _ = explicit_padding(x.lens[2:], w.lens[2:], (sh, sw), (dh, dw), op.padding, op.padding_mode)
    kh, kw = w.lens[2:]
    n, c, high, wide = y.lens
    width = min(straight(x, 1) * filters, straight(y, 1), 16 // max(x.dtype.size, 2))
    while c % width or max(width, filters) % min(width, filters):
        width //= 2
    if width == 1:
        return No(f"{filters} filters of each channel do not fill vectors")
    strip = 4
    while strip > 1 and (wide < strip or y.elements // (width * strip) < traits.sm_count * 512):
        strip //= 2
    if strip == 1:
        while width > 2 and y.elements // width < traits.sm_count * 256:
            width //= 2
    kind, narrow, channels = computed(x.dtype), stored(x.dtype), max(1, width // filters)
    strips = ceil_div(wide, strip)
    dims = [n, high, strips, c // width]
    setup, names = decompose("i", dims, "c")
    offsets = index_type(x, y)
    used = sorted({r * sw + j * dw for r in range(strip) for j in range(kw)})
    weights = Reader(w, [w.strides[2], w.strides[3], w.strides[0]], 0, width)
    channel = names[3] if filters <= width else f"({names[3]} / {filters // width}u)"
    base = offset_code([names[0], channel], [x.strides[0], x.strides[1]], 0, offsets, channels)
    left_edge = left == 0
    right_edge = (strips * strip - 1) * sw + (kw - 1) * dw - left < x.lens[3]
    rows_inside = top == 0 and (high - 1) * sh + (kh - 1) * dh < x.lens[2]
    own = "a.v[k]" if filters == 1 else f"a.v[k / {filters}]" if channels > 1 else "a.v[0]"
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} channels of {strip} neighbours each",
        f"if (i >= {math.prod(dims)}u) return;",
        *setup,
        f"const {narrow}* const x0 = p{at[0]} + ({base});",
        f"const i32 row0 = (i32){names[1]} * {sh} - {top}, col0 = (i32){names[2]} * {strip * sw} - {left};",
        f"{kind} acc[{strip}][{width}] = {{}};",
        f"UNROLL for (i32 j = 0; j < {kh}; ++j) {{",
        f"  const i32 row = row0 + j * {dh};",
        *([] if rows_inside else [f"  if ((u32)row >= {x.lens[2]}u) continue;"]),
        f"  const {narrow}* const x1 = x0 + ({offsets})row * {x.strides[2]}u;",
    ]
    for t in range(kw):
        code = offset_code(["(u32)j", names[3]], [w.strides[2], w.strides[0]], t * w.strides[3], "u32", width)
        lines += [f"  {line}" for line in weights.lines(f"f{t}", f"p{at[1]}", code)]
    for s in used:
        inside = [] if left_edge else [f"col0 + {s} >= 0"]
        inside += [] if right_edge else [f"col0 + {s} < {x.lens[3]}"]
        load = f"{load_code(x, channels)}(x1 + ({offsets})(col0 + {s}) * {x.strides[3]}u)"
        body_lines = [f"const vec<{narrow}, {channels}> a = {load};"]
        for r in range(strip):
            for t in range(kw):
                if r * sw + t * dw == s:
                    product = f"{read(own, x.dtype)} * {read(weights.element(f'f{t}'), w.dtype)}"
                    body_lines.append(f"UNROLL for (int k = 0; k < {width}; ++k) acc[{r}][k] += {product};")
        head = f"  if ({' && '.join(inside)}) {{" if inside else "  {"
        lines += [head, *(f"    {line}" for line in body_lines), "  }"]
    lines.append("}")
    lines += _epilogue(y, names, strip, width, offsets, strips * strip != wide, body, given, index)
    every = inputs if inputs is not None else [x, w]
    parameters, buffers = pointers(every, [y])
    threads = threads_of(math.prod(dims), traits)
    launch = KernelLaunch(NAME, (ceil_div(math.prod(dims), threads), 1, 1), (threads, 1, 1), tuple(buffers))
    flops = 2 * y.elements * kh * kw
    return finish("convolution_depthwise", kernel(NAME, parameters, lines, threads), [launch], every, [y], flops=flops)


def _epilogue(
    y: Tensor, names: Sequence[str], strip: int, width: int, offsets: str, ragged: bool, body: Body | None,
    given: Sequence[Tensor], index: Sequence[int],
) -> list[str]:  # fmt: skip
    """Returns statements that finish the sums and store them."""
    kind = computed(y.dtype)
    order = (0, 2, 3, 1)
    lines: list[str] = [f"UNROLL for (int r = 0; r < {strip}; ++r) {{", f"  const u32 col = {names[2]} * {strip}u + r;"]
    if ragged:
        lines.append(f"  if (col >= {y.lens[3]}u) break;")
    places = [names[0], names[1], "col", names[3]]
    inner = Lines("z")
    reads: list[str] = []
    result = "acc[r][k]"
    if body is None:
        value = Value(result, kind)
    else:
        accesses = [a for a in body.accesses if a.index]

        def leaf(source: Source) -> Value | None:
            if not isinstance(source, Access):
                return None
            if source.index == 0:
                return Value(inner.let(kind, result), kind)
            m = accesses.index(source)
            return element_value(source, given, reader(source).element(f"e{m}"), inner)

        def reader(source: Access) -> Reader:
            return Reader(given[source.index], [source.strides[a] for a in order], source.offset, width)

        for m, access in enumerate(accesses):
            found = reader(access)
            code = offset_code(places, found.strides, access.offset, offsets, width)
            reads += found.lines(f"e{m}", f"p{index[access.index]}", code)
        value = Evaluator(body, inner, leaf).value(body.outputs[0])
    target = offset_code(places, [y.strides[a] for a in order], 0, offsets, width)
    lines += [f"  {line}" for line in reads]
    lines += [
        f"  vec<{stored(y.dtype)}, {width}> out;",
        f"  UNROLL for (int k = 0; k < {width}; ++k) {{",
        *(f"    {line}" for line in inner.lines),
        f"    out.v[k] = {store_value(value, y.dtype)};",
        "  }",
        f"  {store_code(y, width)}(q0 + ({target}), out);",
        "}",
    ]
    return lines
