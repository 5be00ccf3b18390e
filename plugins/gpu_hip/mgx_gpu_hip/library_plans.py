"""Products and convolutions through the vendor's libraries, with pointwise work in their epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Instruction, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.pad import Pad
from mgx_core.ops.window import explicit_padding, per_axis
from mgx_core.targets.epilogue import Link, read_chain
from mgx_core.types.argument import Array

from .codegen.unfold import Windows, unfold
from .emitter import Declined, Emitter, KernelStep
from .library.convolution import ConvProblem
from .library.epilogue import Activation
from .library.gemm import GemmProblem, Matrix
from .tuning import Timed
from .values import Value, channels_last

__all__ = ["emit_convolution", "emit_group", "emit_product"]

FLOATS = (dt.float32, dt.float16, dt.bfloat16)
MOST_UNFOLDED: Final = 512 << 20  # bytes of windows laid out as a matrix


def emit_group(e: Emitter, body: Module, args: Sequence[Any]) -> Any:
    """An anchor with its epilogue in one library call, or the parts one after the other."""
    if e.context.libraries is None:
        raise Declined("the emulated device has no libraries")
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    parts = [i for i in body if not (i.is_param or i.is_return)]
    tail = parts[-1]
    anchor = next((i for i in parts if i.op.name in ("dot", "convolution", "convolution_backwards")), None)
    if anchor is None:
        raise Declined("there is no product or convolution in it")
    joint = next((i for i in tail.inputs if _leads_to(i, anchor)), None)
    if tail.op.name != "pointwise" or joint is None or (joint is not anchor and anchor.op.name != "dot"):
        raise Declined("something stands between the anchor and its epilogue")
    skipped = {anchor, joint}
    at = joint
    while at is not anchor:
        at = at.inputs[0]
        skipped.add(at)
    for ins in parts[:-1]:
        if ins not in skipped:
            env[ins] = e.emit(ins, env)
    epilogue = _read(e, tail, anchor, joint, env)
    if isinstance(epilogue, No):
        raise Declined(epilogue.why)
    left, right = (e.value_of(i, env) for i in anchor.inputs)
    if anchor.op.name == "dot":
        made = emit_product(e, left, right, epilogue)
        return made if joint is anchor else Value(Shape(made.shape.dtype, joint.shape.lens()), made.buffer, made.offset)
    if anchor.op.name == "convolution":
        return emit_convolution(e, anchor.op, left, right, epilogue)
    raise Declined(f"no library plan for {anchor.op.name}")


def _leads_to(ins: Instruction, anchor: Instruction) -> bool:
    while ins is not anchor and ins.op.name in ("reshape", "squeeze", "unsqueeze") and len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return ins is anchor


@dataclass
class Steps:
    """An epilogue as the libraries say it, its operands by name, and what the product is multiplied by first."""

    steps: list[Any] = field(default_factory=list)
    operands: dict[str, Value] = field(default_factory=dict)
    alpha: float = 1.0


def _read(
    e: Emitter, tail: Instruction, anchor: Instruction, joint: Instruction, env: dict[Instruction, Any]
) -> Steps | No:
    body = tail.modules[0]
    if len(body.outputs) != 1 or body.outputs[0].shape.dtype is not anchor.shape.dtype:
        return No("the group gives another type, or several results")
    parameters = list(body.parameters.values())
    links = read_chain(body, parameters[tail.inputs.index(joint)], anchor.shape.dtype)
    if not isinstance(links, list):
        return links
    inner = {
        p: env[i] if i in env else e.value_of(i, env)
        for p, i in zip(parameters, tail.inputs, strict=True)
        if i is not joint
    }
    found = Steps()
    for link in links:
        if link.kind == "eltwise":
            if link.algorithm == "linear" and link.beta == 0 and not found.steps and anchor.op.name == "dot":
                found.alpha *= link.alpha
                continue
            step = _activation(link)
            if step is None:
                return No(f"no activation {link.algorithm}")
            found.steps.append(step)
            continue
        if link.algorithm != "add" or link.operand is None:
            return No(f"{link.algorithm} of an operand")
        for term in _terms(link.operand, inner):
            operand = _resolved(e, term, inner)
            if operand is None:
                return No("an operand of the epilogue is computed inside the group")
            refused = _add(e, found, operand, anchor)
            if refused is not None:
                return refused
    return found


def _terms(ins: Instruction, env: dict[Instruction, Any]) -> list[Instruction]:
    """What a sum inside the group adds."""
    if ins in env or ins.op.name != "add":
        return [ins]
    return [t for i in ins.inputs for t in _terms(i, env)]


def _add(e: Emitter, found: Steps, operand: Value, anchor: Instruction) -> No | None:
    """Another summand; two constant biases become one."""
    lens = anchor.shape.lens()
    if operand.lens[-1] != lens[-1]:
        return No("an operand of the epilogue has other columns than the product")
    if not _is_bias(operand, anchor):
        name = "residual"
        if any(s == 0 and n != 1 for n, s in zip(operand.lens, operand.strides, strict=True)):
            return No("the epilogue adds something that is repeated")
        if operand.lens != lens:
            operand = Value(Shape(operand.shape.dtype, lens), e.row_major(operand).buffer, e.row_major(operand).offset)
    else:
        name = "bias"
        mine, other = e.constant(operand), found.operands.get("bias")
        theirs = None if other is None else e.constant(other)
        if mine is not None and theirs is not None and other is not None and found.steps[-1] in ("bias", "residual"):
            axis = 1 if anchor.op.name == "convolution" else -1
            total = _along(mine, axis).astype(np.float32) + _along(theirs, axis).astype(np.float32)
            made = e.literal(total.astype(mine.dtype))
            found.operands["bias"] = Value(other.shape, made.buffer)
            return None
    if name in found.operands:
        return No("the epilogue adds more than one bias and one residual")
    found.operands[name] = operand
    found.steps.append(name)
    return None


def _along(array: Any, axis: int) -> Any:
    """The values along the one axis on which an array varies."""
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])[0]


def _activation(link: Link) -> Activation | None:
    match link.algorithm:
        case "relu":
            return Activation("relu", slope=link.alpha)
        case "clip":
            return Activation("relu", low=link.alpha, high=link.beta)
        case "logistic":
            return Activation("sigmoid")
        case "tanh" | "gelu_erf" | "gelu_tanh":
            return Activation(link.algorithm)
        case "swish":
            return Activation("swish", alpha=link.alpha)
        case "elu":
            return Activation("elu", alpha=link.alpha)
    return None


def _is_bias(operand: Value, anchor: Instruction) -> bool:
    """Whether an operand varies along the result's columns (dot) or channels (convolution) alone."""
    axis = 1 if anchor.op.name == "convolution" else anchor.shape.rank - 1
    varies = [a for a, (n, s) in enumerate(zip(operand.lens, operand.strides, strict=True)) if s and n != 1]
    return varies == [axis] and operand.strides[axis] == 1


def _resolved(e: Emitter, ins: Instruction, env: dict[Instruction, Any]) -> Value | None:
    if ins in env:
        found: Value = env[ins]
        return found
    if ins.literal is not None:
        return e.literal(ins.literal.to_numpy())
    view = ins.op.view
    if view is None or len(ins.inputs) != 1:
        return None
    source = _resolved(e, ins.inputs[0], env)
    seen = None if source is None else view(source.shape)
    return None if source is None or seen is None else source.seen_as(*seen)


def emit_product(e: Emitter, a: Value, b: Value, epilogue: Steps | None = None) -> Value:
    """a [.., m, k] times b [.., k, n], row-major."""
    epilogue = epilogue or Steps()
    operands = dict(epilogue.operands)
    if a.shape.dtype not in FLOATS or a.shape.dtype is not b.shape.dtype:
        raise Declined(f"a product of {a.shape.dtype} and {b.shape.dtype}")
    lens = [*a.lens[:-1], b.lens[-1]]
    m, k, n = a.lens[-2], a.lens[-1], b.lens[-1]
    if 0 in lens or k == 0:
        raise Declined("an extent is 0")
    batch = a.lens[:-2]
    a_matrix, a = _matrix(e, a, batch)
    b_matrix, b = _matrix(e, b, batch)
    count = prod(batch)
    residual = operands.get("residual")
    r_matrix = None
    if residual is not None:
        r_matrix, residual = _matrix(e, residual, batch)
        if r_matrix.transposed:
            residual = e.copy(residual)
            r_matrix, residual = _matrix(e, residual, batch)
        operands["residual"] = residual
    problem = GemmProblem(
        m,
        n,
        k,
        a=a_matrix,
        b=b_matrix,
        d=Matrix(a.shape.dtype, n, batch_stride=m * n if count > 1 else 0, align=16),
        batch=count,
        residual=r_matrix,
        epilogue=tuple(epilogue.steps),
        alpha=epilogue.alpha,
        bias_dtype=a.shape.dtype if "bias" in epilogue.steps else None,
        compute="tf32" if e.tf32 and a.shape.dtype is dt.float32 else "f32",
    )
    found = _timed_product(e, problem)
    if isinstance(found, No):
        raise Declined(found.why)
    if epilogue.steps and e.context.tuner is not None and found.choice.get("library") == "cudnn":
        bare = _timed_product(e, replace(problem, epilogue=(), residual=None, bias_dtype=None))
        moved = 2 * count * m * n * a.shape.dtype.size
        if not isinstance(bare, No) and bare.us + 2.0 + moved / 3e6 < found.us:
            raise Declined("a product and a launch for the rest are faster than cuDNN's fused product")
    out = e.allocate(a.shape.dtype, lens)
    e.library(found.plan, "d", a=a, b=b, d=out, **operands)
    return out


def _timed_product(e: Emitter, problem: GemmProblem, compiled: bool = True) -> Timed | No:
    tuner, libraries = e.context.tuner, e.context.libraries
    assert libraries is not None
    if tuner is not None:
        found = tuner.gemm(problem, compiled)
    else:
        plan = libraries.gemm(problem)
        found = plan if isinstance(plan, No) else Timed.of(plan, 0.0)
    if isinstance(found, No):
        return found
    if problem.a.dtype is dt.float32 and problem.compute == "f32" and found.choice.get("library") == "cudnn":
        return No("cuDNN computes float32 products with shortened operands")
    return found


def _matrix(e: Emitter, x: Value, batch: list[int]) -> tuple[Matrix, Value]:
    """How a [.., rows, columns] value lies, copied if no library can read it so."""
    for attempt in (x, None):
        value = e.copy(x) if attempt is None else attempt
        rows, columns = value.strides[-2:]
        height, width = value.lens[-2:]
        step = _batch_stride(value.lens[:-2], value.strides[:-2])
        if step is None:
            continue
        align = max(1, min(value.align, 256))
        if columns == 1 or width == 1:
            ld = rows if height > 1 and rows >= width else width
            if height == 1 or rows >= width:
                return Matrix(value.shape.dtype, ld, batch_stride=step, align=align), value
        if rows == 1 or height == 1:
            ld = columns if width > 1 and columns >= height else height
            if width == 1 or columns >= height:
                return Matrix(value.shape.dtype, ld, True, step, align), value
    raise Declined(f"a matrix that lies like {x.shape}")


def _batch_stride(lens: list[int], strides: list[int]) -> int | None:
    """One step from product to product, 0 where all share one, None where there is no single one."""
    real = [(n, s) for n, s in zip(lens, strides, strict=True) if n != 1]
    if not real or all(s == 0 for _, s in real):
        return 0
    expected = real[-1][1]
    if expected == 0:
        return None
    step = expected
    for n, s in reversed(real):
        if s != expected:
            return None
        expected *= n
    return step


def emit_convolution(e: Emitter, op: Any, x: Value, w: Value, epilogue: Steps | None = None) -> Value:
    """x [n, c, ..] with weights [o, c / group, ..], channels last out; the fastest of convolution and product."""
    epilogue = epilogue or Steps()
    dtype = x.shape.dtype
    if dtype not in FLOATS or w.shape.dtype is not dtype:
        raise Declined(f"a convolution of {dtype} and {w.shape.dtype}")
    window = w.lens[2:]
    if len(window) not in (1, 2):
        raise Declined(f"{len(window)} spatial axes")
    strides = per_axis(op.stride, len(window), "stride")
    dilations = per_axis(op.dilation, len(window), "dilation")
    begin, end = explicit_padding(x.lens[2:], window, strides, dilations, op.padding, op.padding_mode)
    lens = op.infer(Shape(dtype, x.lens), Shape(dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens:
        raise Declined("an extent is 0")
    flat = len(window) == 1
    problem = ConvProblem(
        dims=(*x.lens[:2], 1, x.lens[2]) if flat else tuple(x.lens),
        filters=w.lens[0],
        kernel=(1, window[0]) if flat else tuple(window),
        stride=(1, strides[0]) if flat else tuple(strides),
        dilation=(1, dilations[0]) if flat else tuple(dilations),
        pads=((0, 0), (begin[0], end[0])) if flat else tuple(zip(begin, end, strict=True)),
        groups=op.group,
        dtype=dtype,
        epilogue=tuple(epilogue.steps),
        bias_dtype=dtype if "bias" in epilogue.steps else None,
        tf32=e.tf32 and dtype is dt.float32,
    )
    if problem.is_depthwise and dtype is dt.float32:
        raise Declined("cuDNN has no fast depthwise engine in full precision")
    route = _route(e, problem, x, w)
    if isinstance(route, No):
        raise Declined(route.why)
    operands = dict(epilogue.operands)
    if "residual" in operands:
        operands["residual"] = _channels_last(e, operands["residual"])
    out = e.allocate(dtype, lens, channels_last(lens))
    if route.windows is not None:
        rows, width = problem.dims[0] * prod(problem.image), route.windows.width
        matrix = e.allocate(dtype, (rows, width))
        image = _with_two_axes(x) if flat else x
        source = unfold(image.tensor, matrix.tensor, route.windows)
        e.steps.append(KernelStep(source, [image], [matrix], [], e.sources))
        e.library(route.timed.plan, "d", a=matrix, b=_unfolded_weights(e, w, route.windows), d=out, **operands)
    elif route.product:
        e.library(
            route.timed.plan, "d", a=_channels_last(e, x), b=e.packed(w, channels_last(w.lens)), d=out, **operands
        )
    else:
        wide = route.channels - x.lens[1]
        given = _more_channels(e, x, wide) if wide else _channels_last(e, x)
        weights = _more_channels(e, w, wide) if wide else w
        e.library(route.timed.plan, "y", x=given, w=e.packed(weights, channels_last(weights.lens)), y=out, **operands)
    return out


@dataclass
class Route:
    """How a convolution runs: a convolution over `channels`, a product, or a product of unfolded windows.

    us: with an estimate for what runs besides.
    """

    timed: Timed
    us: float
    channels: int = 0
    product: bool = False
    windows: Windows | None = None


def _route(e: Emitter, p: ConvProblem, x: Value, w: Value) -> Route | No:
    """The fastest way, by measured times and an estimate for what runs besides."""
    tuner, libraries = e.context.tuner, e.context.libraries
    assert libraries is not None
    constant = e.constant(w) is not None
    if tuner is None:
        plan = libraries.convolution(p)
        return plan if isinstance(plan, No) else Route(Timed.of(plan, 0.0), 0.0, p.dims[1])
    routes: list[Route] = []
    refused: No | None = None
    few = p.groups == 1 and p.dims[1] % 8 and p.dims[1] < 8 and p.dtype is not dt.float32 and constant
    for channels in (p.dims[1], 4, 8) if few else (p.dims[1],):
        if channels < p.dims[1]:
            continue
        timed = tuner.convolution(replace(p, dims=(p.dims[0], channels, *p.dims[2:])))
        if isinstance(timed, No):
            refused = timed
        else:
            routes.append(Route(timed, timed.us, channels))
    plain = set(p.kernel) == set(p.stride) == {1} and not any(map(any, p.pads))
    if p.groups == 1 and constant:
        image = prod(p.image) * p.dims[0]
        length = p.dims[1] * prod(p.kernel)
        width = length if plain else -(-length // 8) * 8
        apart = p.kernel == p.stride and p.dims[1] % 8
        if plain or ((p.dtype is dt.float32 or few or apart) and image * width * p.dtype.size <= MOST_UNFOLDED):
            windows = None
            cost = 0.0
            if not plain:
                inside = x.strides[1] == 1 and x.lens[1] > 1
                windows = Windows(p.kernel, p.stride, p.dilation, (p.pads[0][0], p.pads[1][0]), p.image, inside, width)  # type: ignore[arg-type]
                vectors = inside and p.dims[1] * p.dtype.size % 16 == 0
                cost = 2.0 + image * width * p.dtype.size / (2.5e6 if vectors else 1e6)
            product = _timed_product(e, _as_product(p, image, width), compiled=False)
            if not isinstance(product, No):
                routes.append(Route(product, product.us + cost, product=plain, windows=windows))
    if not routes:
        return refused or No("no library takes the convolution")
    return min(routes, key=lambda r: r.us)


def _as_product(p: ConvProblem, rows: int, width: int) -> GemmProblem:
    residual = "residual" in p.epilogue
    d = Matrix(p.dtype, p.filters, align=16)
    return GemmProblem(
        rows, p.filters, width, a=Matrix(p.dtype, width, align=16), b=Matrix(p.dtype, width, True, align=16), d=d,
        residual=d if residual else None, epilogue=p.epilogue, bias_dtype=p.bias_dtype, compute="tf32" if p.tf32 else "f32",
    )  # fmt: skip


def _with_two_axes(x: Value) -> Value:
    n, c, length = x.lens
    a, b, s = x.strides
    return Value(Shape(x.shape.dtype, (n, c, 1, length), (a, b, length * s, s)), x.buffer, x.offset)


def _unfolded_weights(e: Emitter, w: Value, windows: Windows) -> Value:
    """Weights as rows of a window's elements each, zeros behind them; made once."""

    def rows(array: Array) -> Array:
        turned = np.moveaxis(array, 1, -1) if windows.channels_inside else array
        flat = turned.reshape(array.shape[0], -1)
        made = np.zeros((flat.shape[0], windows.width), array.dtype)
        made[:, : flat.shape[1]] = flat
        return made

    found = e.derived(w, ("unfolded", windows.channels_inside, windows.width), rows)
    assert found is not None
    return found


def _more_channels(e: Emitter, x: Value, more: int) -> Value:
    """x with zeros for more channels, channels last."""
    lens = [x.lens[0], x.lens[1] + more, *x.lens[2:]]
    rank = len(lens)
    made = e.derived(x, ("channels", more), lambda a: np.pad(a, [(0, 0), (0, more)] + [(0, 0)] * (rank - 2)))
    if made is not None:
        return made
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    e.kernel(Pad(pads=(0,) * (rank + 1) + (more,) + (0,) * (rank - 2)), (), [x], [out])
    return out


def _channels_last(e: Emitter, value: Value) -> Value:
    wanted = channels_last(value.lens)
    if all(n == 1 or s == t for n, s, t in zip(value.lens, value.strides, wanted, strict=True)):
        return Value(Shape(value.shape.dtype, value.lens, wanted), value.buffer, value.offset)
    return e.copy(value, wanted)
