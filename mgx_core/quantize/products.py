"""Selects products to quantize, and quantizes their tensors and weights."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from math import prod
from typing import Final

import numpy as np

from ..compile.stages import RULES
from ..errors import ParameterError, suggestion
from ..hashing import sha256
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..log import log
from ..ops.broadcast import Multibroadcast
from ..ops.builtin import Param
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.pointwise import Add, Mul
from ..ops.quantized import Dequantizelinear, Quantizelinear
from ..ops.scalar import widen
from ..passes.fold_constants import FoldConstants
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize
from ..passes.rewrite import Rewrite
from ..rules.engine import ROUNDING
from ..rules.integer_products import NARROW_FLOAT_PRODUCTS
from ..rules.outline import through_views
from ..rules.selection import OPTIONAL
from ..targets.groups import inline_groups
from ..types import dtype as dt
from ..types.argument import Argument, Array
from ..types.dtype import DType
from ..types.shape import AnyShape
from .config import QuantizeConfig
from .scales import rounded_with_error, scale_of
from .unbounded import attention_products

__all__ = [
    "add_bias", "candidates", "channel_axis", "constant_bytes", "constant_weights", "mean_shift", "name_of",
    "place_literals", "prepare", "prepare_chosen", "quantize_tensor", "quantize_weights", "scaled", "swept",
]  # fmt: skip

LARGE: Final = 1024  # elements of a literal whose copies are found


def prepare(main: Module) -> None:
    """Prepares a program: folds constants, factors and norms into the weights, so that they are final."""
    inline_groups(main)
    main.sweep()
    rules = RULES.within(ROUNDING).without([*OPTIONAL, *(r.name for r in NARROW_FLOAT_PRODUCTS.rules)])
    for one in (Normalize(), FoldConstants(), MergeCommon(), Rewrite(rules), FoldConstants()):
        one.apply(main)
        main.sweep()


def name_of(ins: Instruction) -> str:
    """Returns a name for messages: the parameter, the first source node, or the op."""
    if isinstance(ins.op, Param):
        return f"parameter {ins.op.label!r}"
    return ins.sources[0] if ins.sources else ins.op.name


def names_in(given: Iterable[str], what: str) -> frozenset[str]:
    """Returns names given as a collection.  Errors: ParameterError for a single string."""
    if isinstance(given, str):
        raise ParameterError(f"{what} must be a list of names, got {given!r}; did you mean [{given!r}]?")
    return frozenset(given)


def product_names(main: Module) -> frozenset[str]:
    """Returns the source names of all products."""
    products = (i for m in nested(main) for i in m if isinstance(i.op, (Dot, Convolution)))
    return frozenset(name for ins in products for name in ins.sources)


def prepare_chosen(main: Module, config: QuantizeConfig) -> int:
    """Prepares a program whose products `config` names, before or after; returns the bytes of its literals.

    Errors: as `require_names`.
    """
    known = product_names(main)
    prepare(main)
    require_names(config, known | product_names(main))
    return constant_bytes(main)


def require_names(config: QuantizeConfig, known: Collection[str]) -> None:
    """Checks that every pattern matches a product.  Errors: ParameterError."""
    for use, parts in (("names", config.names), ("skip", config.skip)):
        for part in sorted(parts):
            if all(part not in name for name in known):
                words = {word for name in known for word in re.split(r"[/.]", name) if word}
                near = suggestion(part, sorted({*known, *words})) if known else "no product of this program has a name"
                raise ParameterError(f"{use}: no product (convolution or dot) has {part!r} in its name; {near}")


def candidates(main: Module, config: QuantizeConfig, attention: bool = True) -> list[tuple[Instruction, str]]:
    """Returns the products of a module, each with the reason why it must stay in float (else empty).

    attention: includes the products of attention.
    """
    found = []
    apart = frozenset[Instruction]() if attention else attention_products(main)
    for ins in main:
        if not isinstance(ins.op, (Dot, Convolution)):
            continue
        why = ""
        if not isinstance(ins.op, config.classes):
            why = f"{ins.op.name} is not in `ops`"
        elif any(part in s for part in config.skip for s in ins.sources):
            why = "its name is in `skip`"
        elif config.names and not any(part in s for part in config.names for s in ins.sources):
            why = "its name is not in `names`"
        elif ins in apart:
            why = "products of attention stay in float"
        elif ins.shape.dtype not in (dt.float32, dt.float16, dt.bfloat16):
            why = f"it computes in {ins.shape.dtype}"
        elif through_views(ins.inputs[0]).is_literal:
            why = "its left operand is constant"
        elif isinstance(ins.op, Convolution) and not ins.inputs[1].is_literal:
            why = "its weights are not constant"
            log.warning("%s stays in float: %s", name_of(ins), why)
        found.append((ins, why))
    return found


def constant_bytes(main: Module) -> int:
    """Returns the bytes of all literals, also of nested modules."""
    return sum(i.shape.elements() * i.shape.dtype.bits // 8 for m in nested(main) for i in m if i.is_literal)


def swept(main: Module) -> int:
    """Removes what is no longer read, and copies of literals in branches and loops; returns the bytes of all literals."""
    for module in [*nested(main)][::-1]:  # the enclosing module last, since it may hold their weights
        module.sweep()
    alike: dict[AnyShape, list[tuple[Instruction, Argument]]] = {}
    for ins in (i for m in nested(main) for i in m):
        if ins.literal is not None and ins.shape.elements() >= LARGE:
            alike.setdefault(ins.result, []).append((ins, ins.literal))
    for several in alike.values():
        if len(several) == 1 or all(ins.parent is main for ins, _ in several):
            continue
        equal: dict[str, list[tuple[Instruction, Argument]]] = {}
        for ins, value in several:
            equal.setdefault(sha256(np.asarray(value.value).tobytes()).hexdigest(), []).append((ins, value))
        for copies in (c for c in equal.values() if len(c) > 1):
            one = main.add_literal(copies[0][1], before=main.first)
            main.replace_each({ins: one for ins, _ in copies})
    for module in nested(main):
        module.sweep()
    return constant_bytes(main)


def constant_weights(product: Instruction) -> tuple[Array, list[Instruction]]:
    """Returns a product's constant right operand in float32, and the views that broadcast it, innermost first."""
    at, views = product.inputs[1], list[Instruction]()
    while not at.is_literal:
        views.insert(0, at)
        at = at.inputs[0]
    assert at.literal is not None
    value = np.asarray(at.literal.value)
    while views and not isinstance(views[0].op, Multibroadcast):
        compute = views.pop(0).op.compute
        assert compute is not None
        value = np.asarray(compute(value))
    return widen(value).astype(np.float32, copy=False), views


def place_literals(main: Module, before: Instruction | None, *values: Array) -> list[Instruction]:
    """Inserts literals before an instruction."""
    return [main.add_literal(np.asarray(v, order="C"), before=before) for v in values]


def quantize_tensor(main: Module, tensor: Instruction, low: float, high: float, to: DType) -> None:
    """Replaces a tensor, for all its readers, by its quantization to `to` over its range and dequantization."""
    scale, zero = scale_of(low, high, to)
    after = _after(main, tensor)
    readers = [(u, u.inputs) for u in tensor.users if u.parent is main and not u.is_return]
    numbers = [np.array(scale, np.float32)] + ([] if zero is None else [np.array(zero, to.numpy)])
    literals = place_literals(main, after, *numbers)
    narrow = main.add(Quantizelinear(out_type=to), tensor, *literals, before=after, sources=tensor.sources)
    form = Dequantizelinear(out_type=tensor.shape.dtype)
    wide = main.add(form, narrow, *literals, before=after, sources=tensor.sources)
    for user, inputs in readers:
        main.rewire(user, [wide if i is tensor else i for i in inputs])


def _after(main: Module, tensor: Instruction) -> Instruction | None:
    """Returns the first position after a tensor's definition."""
    return tensor.next if not tensor.is_param else next((i for i in main if not i.is_param), None)


def scaled(main: Module, tensor: Instruction, factors: Array) -> Instruction:
    """Multiplies a tensor by factors along its last axis."""
    after = _after(main, tensor)
    (row,) = place_literals(main, after, factors.astype(tensor.shape.dtype.numpy))
    wide = main.add(Multibroadcast(out_lens=tensor.shape.dims), row, before=after, sources=tensor.sources)
    return main.add(Mul(), tensor, wide, before=after, sources=tensor.sources)


def quantize_weights(
    main: Module, product: Instruction, to: DType, per_channel: bool, factors: Array | None = None
) -> tuple[float, Array]:
    """Replaces a product's constant right operand by quantized weights and their dequantization.

    factors [k]: multiply the rows of the weights first.  Returns the weights' SQNR in dB, and their error.
    """
    value, views = constant_weights(product)
    if factors is not None:
        value = value * factors[:, None]
    kept_last = all(isinstance(v.op, Multibroadcast) for v in views)
    axis = 0 if isinstance(product.op, Convolution) else value.ndim - 1
    narrow, scale, error, ratio = rounded_with_error(value, axis if per_channel and kept_last else None, to)
    values, numbers = place_literals(main, product, narrow, scale)
    form = Dequantizelinear(axis=axis, out_type=product.inputs[1].shape.dtype)
    made = main.add(form, values, numbers, before=product, sources=product.sources)
    for view in views:
        made = main.add(view.op, made, before=product, sources=view.sources)
    main.rewire(product, [product.inputs[0], made])
    return ratio, error


def channel_axis(product: Instruction, tensor: Instruction) -> int:
    """Returns the axis of a product's operand that the product sums over."""
    return 1 if isinstance(product.op, Convolution) else tensor.shape.rank - 1


def mean_shift(product: Instruction, error: Array, means: Array) -> Array:
    """Returns the mean error that the weights' rounding adds to a product, per output channel and batch of weights.

    means: of the left operand, per channel.  Padding of convolutions is treated as the mean.
    """
    if not isinstance(product.op, Convolution):
        shift = np.asarray(means @ error)
        return shift if error.ndim == 2 else shift[..., None, :]  # equal for all rows of a batch
    groups, taps = product.op.group, prod(error.shape[2:])
    rows = error.reshape(groups, -1, error.shape[1] * taps)
    spread = np.repeat(means.reshape(groups, -1), taps, axis=1).astype(np.float32)
    shift = np.einsum("gok,gk->go", rows, spread)
    return np.asarray(shift.reshape(-1, *[1] * (product.shape.rank - 2)))


def add_bias(main: Module, product: Instruction, bias: Array) -> None:
    """Adds a bias along the last axes of a product, for all its readers."""
    users = [(u, u.inputs) for u in product.users]
    after = product.next
    (row,) = place_literals(main, after, bias.astype(product.shape.dtype.numpy))
    wide = main.add(Multibroadcast(out_lens=product.shape.dims), row, before=after, sources=product.sources)
    new = main.add(Add(), product, wide, before=after, sources=product.sources)
    for user, inputs in users:
        main.rewire(user, [new if i is product else i for i in inputs])
