"""Products, convolutions and attention through the vendor's libraries, with pointwise work in their epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.window import explicit_padding, per_axis

from .codegen.table import generate
from .emitter import Declined, Emitter
from .epilogue_links import Link, read_chain
from .library.convolution import ConvProblem
from .library.epilogue import Activation
from .library.gemm import GemmProblem, Matrix
from .values import Value, channels_last

__all__ = ["emit_attention", "emit_convolution", "emit_group", "emit_product"]

FLOATS = (dt.float32, dt.float16, dt.bfloat16)


def emit_group(e: Emitter, body: Module, args: Sequence[Any]) -> Any:
    """An anchor with its epilogue in one library call, or the parts one after the other."""
    if e.context.libraries is None:
        raise Declined("the emulated device has no libraries")
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    parts = [i for i in body if not (i.is_param or i.is_return)]
    tail = parts[-1]
    anchor = next(i for i in parts if i.op.name in ("dot", "convolution", "convolution_backwards"))
    if tail.op.name != "pointwise" or anchor not in tail.inputs:
        raise Declined("something stands between the anchor and its epilogue")
    for ins in parts[:-1]:
        if ins is not anchor:
            env[ins] = e.emit(ins, env)
    epilogue = _read(e, tail, anchor, env)
    if isinstance(epilogue, No):
        raise Declined(epilogue.why)
    steps, operands = epilogue
    left, right = (e.value_of(i, env) for i in anchor.inputs)
    if anchor.op.name == "dot":
        return emit_product(e, left, right, steps, operands)
    if anchor.op.name == "convolution":
        return emit_convolution(e, anchor.op, left, right, steps, operands)
    raise Declined(f"no library plan for {anchor.op.name}")


def _read(e: Emitter, tail: Instruction, anchor: Instruction, env: dict[Instruction, Any]) -> Any:
    """The epilogue as the libraries say it, and its operands by name."""
    body = tail.modules[0]
    if len(body.outputs) != 1 or body.outputs[0].shape.dtype is not anchor.shape.dtype:
        return No("the group gives another type, or several results")
    parameters = list(body.parameters.values())
    at = tail.inputs.index(anchor)
    links = read_chain(body, parameters[at], anchor.shape.dtype)
    if isinstance(links, No):
        return links
    inner = {p: env[i] if i in env else e.value_of(i, env) for p, i in zip(parameters, tail.inputs, strict=True) if i is not anchor}
    steps: list[Any] = []
    operands: dict[str, Value] = {}
    for link in links:
        if link.kind == "eltwise":
            step = _activation(link)
            if step is None:
                return No(f"no activation {link.algorithm}")
            steps.append(step)
            continue
        if link.algorithm != "add" or link.operand is None:
            return No(f"{link.algorithm} of an operand")
        operand = _resolved(e, link.operand, inner)
        if operand is None:
            return No("an operand of the epilogue is computed inside the group")
        name = "bias" if _is_bias(operand, anchor) else "residual"
        if name in operands or (name == "residual" and any(s == 0 and n != 1 for n, s in zip(operand.lens, operand.strides, strict=True))):
            return No("the epilogue adds more than one bias and one residual")
        operands[name] = operand
        steps.append(name)
    return tuple(steps), operands


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
    view = getattr(ins.op, "view", None)
    if view is None or len(ins.inputs) != 1:
        return None
    source = _resolved(e, ins.inputs[0], env)
    seen = None if source is None else view(source.shape)
    return None if source is None or seen is None else source.seen_as(*seen)


def emit_product(e: Emitter, a: Value, b: Value, steps: Any = (), operands: dict[str, Value] | None = None) -> Value:
    """a [.., m, k] times b [.., k, n], row-major."""
    operands = operands or {}
    if a.shape.dtype not in FLOATS or a.shape.dtype is not b.shape.dtype:
        raise Declined(f"a product of {a.shape.dtype} and {b.shape.dtype}")
    lens = [*a.lens[:-1], b.lens[-1]]
    m, k, n = a.lens[-2], a.lens[-1], b.lens[-1]
    if 0 in lens or k == 0:
        raise Declined("an extent is 0")
    batch = a.lens[:-2]
    a_matrix, a = _matrix(e, a, batch)
    b_matrix, b = _matrix(e, b, batch)
    out = e.allocate(a.shape.dtype, lens)
    count = 1
    for x in batch:
        count *= x
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
        epilogue=tuple(steps),
        bias_dtype=a.shape.dtype if "bias" in steps else None,
    )
    assert e.context.libraries is not None
    plan = e.context.libraries.gemm(problem)
    if isinstance(plan, No):
        raise Declined(plan.why)
    if a.shape.dtype is dt.float32 and plan.choice.get("library") == "cudnn":
        raise Declined("cuDNN computes float32 products with shortened operands")
    e.library(plan, "d", a=a, b=b, d=out, **operands)
    return out


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


def emit_convolution(
    e: Emitter, op: Any, x: Value, w: Value, steps: Any = (), operands: dict[str, Value] | None = None
) -> Value:
    """x [n, c, ..] with weights [o, c / group, ..], channels last in and out."""
    operands = dict(operands or {})
    dtype = x.shape.dtype
    if dtype not in FLOATS or w.shape.dtype is not dtype:
        raise Declined(f"a convolution of {dtype} and {w.shape.dtype}")
    window = w.lens[2:]
    if len(window) not in (1, 2):
        raise Declined(f"{len(window)} spatial axes")
    strides = per_axis(op.stride, len(window), "stride")
    dilations = per_axis(op.dilation, len(window), "dilation")
    begin, end = explicit_padding(x.lens[2:], window, strides, dilations, op.padding, op.padding_mode)
    result = op.infer(Shape(dtype, x.lens), Shape(dtype, w.lens))
    lens = result.lens()
    if 0 in lens or 0 in x.lens:
        raise Declined("an extent is 0")
    x = _channels_last(e, x)
    packed = e.packed(w, channels_last(w.lens))
    if "residual" in operands:
        operands["residual"] = _channels_last(e, operands["residual"])
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
        epilogue=tuple(steps),
        bias_dtype=dtype if "bias" in steps else None,
    )
    assert e.context.libraries is not None
    plan = e.context.libraries.convolution(problem)
    if isinstance(plan, No):
        raise Declined(plan.why)
    out = e.allocate(dtype, lens, channels_last(lens))
    e.library(plan, "y", x=x, w=packed, y=out, **operands)
    return out


def _channels_last(e: Emitter, value: Value) -> Value:
    wanted = channels_last(value.lens)
    if all(n == 1 or s == t for n, s, t in zip(value.lens, value.strides, wanted, strict=True)):
        return Value(Shape(value.shape.dtype, value.lens, wanted), value.buffer, value.offset)
    return e.copy(value, wanted)


def emit_attention(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any], ins: Instruction) -> Any:
    """One generated kernel that never holds all scores."""
    body = modules[0]
    out_shape = body.outputs[0].shape
    out = e.allocate(out_shape.dtype, out_shape.lens())
    source = generate(op, [a.tensor for a in args], [out.tensor], e.context.traits, modules)
    if isinstance(source, No):
        raise Declined(source.why)
    e.kernel(op, modules, list(args), [out])
    return out


