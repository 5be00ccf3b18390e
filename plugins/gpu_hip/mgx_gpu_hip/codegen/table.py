"""Which generator writes the kernel of an op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from mgx_core import Instruction, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import MgxError, ShapeError, UnsupportedError
from mgx_core.ops.operation import Operation, Pointwise
from mgx_core.rules.engine import Builder
from mgx_core.types.shape import row_major

from . import (
    arithmetic,
    indexing,
    pooling,
    products,
    random,
    recurrent,
)
from . import (
    convolution as convolving,
)
from . import (
    movement as moving,
)
from . import (
    resize as resizing,
)
from . import (
    scan as scanning,
)
from . import (
    scatter as scattering,
)
from . import (
    selection as selecting,
)
from . import (
    sort as sorting,
)
from .attention import attention_kernel
from .attention_pattern import from_group, from_op
from .bodies import REDUCTIONS, flat, single
from .depthwise import depthwise_group
from .elements import carried
from .extents import arguments
from .pointwise import pointwise
from .reduce import fused_reduce
from .source import DeviceTraits, KernelSource, Tensor, entry_word, supported, tensors

__all__ = ["generate", "generates"]

Inputs: TypeAlias = Sequence["Tensor | None"]
Answer: TypeAlias = "KernelSource | No"
Generator = Callable[[Any, Inputs, Sequence[Tensor], DeviceTraits], Answer]


def generate(
    op: Operation,
    inputs: Sequence[Shape | Tensor | None],
    outputs: Sequence[Shape | Tensor],
    traits: DeviceTraits,
    modules: Sequence[Module] = (),
) -> KernelSource | No:
    """Kernel text for an op on strided tensors, or why there is none.

    inputs and outputs: fixed extents with strides (tensors may state how their addresses are aligned; shapes: to 16 bytes);
    outputs of ops whose extents depend on data have their upper bounds, and `KernelSource.extents` says where the true
    ones are written (those counts are outputs behind the op's own).  modules: the body, for groups.
    """
    xs = tensors(inputs)
    ys = [Tensor.of(y) for y in outputs]
    with arguments() as recorder:
        try:
            return _generate(op, xs, ys, traits, modules)
        except (UnsupportedError, ShapeError) as error:
            return No(recorder.fixed(str(error)))


def generates(op: Operation) -> bool:
    """Whether there is a generator for ops of this name at all."""
    return isinstance(op, Pointwise) or op.name in {*_GROUPS, *REDUCTIONS, *_VIEWS, *_TABLE} or op.decompose is not None


_GROUPS: Final = frozenset({"pointwise", "fused_reduce"})
_VIEWS: Final = frozenset(
    {"contiguous", "layout", "transpose", "multibroadcast", "broadcast", "squeeze", "unsqueeze", "reshape", "flatten",
     "identity", "broadcast_for_dot", "step", "diagonal", "fill", "scalar", "reshape_lazy"}
)  # fmt: skip


def _generate(op: Operation, xs: Inputs, ys: list[Tensor], traits: DeviceTraits, modules: Sequence[Module]) -> Answer:
    present = [x for x in xs if x is not None]
    name = op.name
    if name == "pointwise" or (isinstance(op, Pointwise) and len(present) == len(xs)):
        module = modules[0] if name == "pointwise" else single(op, present)
        return pointwise(module, present, ys, traits)
    if name == "fused_reduce" or (name in REDUCTIONS and len(xs) == 1):
        module = modules[0] if name == "fused_reduce" else single(op, present)
        return fused_reduce(module, present, ys, traits)
    if name == "group" and op.tag == "attention":
        pattern = from_group(modules[0], present, ys[0])
        return pattern if isinstance(pattern, No) else attention_kernel(pattern, traits)
    if name == "group" and op.tag == "concat":
        return pointwise(flat(modules[0]), present, ys, traits)
    if name == "group" and op.tag == "convolution":
        return depthwise_group(modules[0], present, ys[0], traits)
    if name in _TABLE:
        return _TABLE[name](op, xs, ys, traits)
    if name in _VIEWS:
        return _view(op, xs, ys[0], traits)
    if op.decompose is not None and not modules:
        return _decomposed(op, xs, ys, traits)
    return No(f"no generator for {name}")


def _view(op: Operation, xs: Inputs, y: Tensor, traits: DeviceTraits) -> Answer:
    """A copy of a window on an input's memory."""
    x = xs[0]
    if x is None or not supported(carried(x).dtype):
        return No(f"{op.name} of elements of {0 if x is None else x.dtype.size} bytes")
    if op.name in ("contiguous", "layout", "identity"):
        return moving.copy(x, y, traits, op.name)
    seen = op.view(*(t.shape for t in xs if t is not None)) if op.view is not None else None
    if seen is not None and seen[0] == 0:
        return moving.copy(x._replace(lens=tuple(seen[1].lens()), strides=tuple(seen[1].strides())), y, traits, op.name)
    if op.name in ("reshape", "flatten", "squeeze", "unsqueeze", "reshape_lazy") and y.shape.standard():
        return moving.copy(x, y._replace(lens=x.lens, strides=tuple(row_major(x.lens))), traits, op.name)
    return No(f"{op.name} of {x.shape} is no window on memory")


def _decomposed(op: Operation, xs: Inputs, ys: list[Tensor], traits: DeviceTraits) -> Answer:
    """One kernel for what an op decomposes to, if that is one loop."""
    module = Module(op.name)
    given: list[Instruction] = []
    present: list[Tensor] = []
    for n, x in enumerate(xs):
        if x is None:
            given.append(module.add_absent())
        else:
            given.append(module.add_parameter(f"x{n}", Shape.of(x.dtype, x.lens)))
            present.append(x)
    made = module.add(op, *given)
    module.add_return([made])
    try:
        new = op.decompose(Builder(module, made), *(None if i.is_absent else i for i in given))  # type: ignore[attr-defined]
    except MgxError as error:
        return No(f"{op.name} does not decompose: {error}")
    if new is None:
        return No(f"{op.name} does not decompose here")
    module.replace(made, new)
    module.remove(made)
    module.sweep()
    word = entry_word([op.name])
    if any(i.op.name in REDUCTIONS for i in module):
        return fused_reduce(module, present, ys, traits, word)
    return pointwise(module, present, ys, traits, word)


def _carrying(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Refuses elements whose size no integer type has."""

    def checked(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Answer:
        if any(t is not None and t.dtype.size not in (1, 2, 4, 8) for t in (*xs, *ys)):
            return No(f"{op.name} of elements of 16 bytes")
        return function(op, xs, ys, traits)

    return checked


def _static(count: int, function: Callable[..., Answer]) -> Generator:
    """An op whose run-time attributes are absent: `count` inputs."""

    def checked(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Answer:
        if any(x is not None for x in xs[count:]):
            return No(f"{op.name} with attributes that are known only while running")
        return function(op, *xs[:count], *ys, traits)

    return _carrying(checked)


def _computed(function: Callable[..., Answer]) -> Generator:
    """An op that computes with its elements."""

    def checked(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Answer:
        if not supported(*(t.dtype for t in (*xs, *ys) if t is not None)):
            return No(f"{op.name} of {', '.join(str(t.dtype) for t in (*xs, *ys) if t is not None)}")
        return function(op, xs, ys, traits)

    return checked


def _spread(function: Callable[..., Answer]) -> Generator:
    """An op with as many inputs as the generator takes, each given."""
    return _computed(lambda op, xs, ys, traits: function(op, *xs, *ys, traits))


def _attention(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> Answer:
    if any(x is not None and x.dtype is dt.float64 for x in xs):
        return No("attention in float64")
    pattern = from_op(op, xs, ys[0])
    return pattern if isinstance(pattern, No) else attention_kernel(pattern, traits)


_TABLE: Final[dict[str, Generator]] = {
    "attention": _attention,
    "slice": _static(1, moving.slices),
    "pad": _static(1, moving.pad),
    "fixed_pad": _static(1, moving.pad),
    "reverse": _static(1, moving.reverse),
    "tile": _static(1, lambda op, x, y, traits: moving.tile(x, y, traits)),
    "concat": _carrying(lambda op, xs, ys, traits: moving.concat(op, xs, ys[0], traits)),
    "gather": _static(2, indexing.gather),
    "gather_elements": _static(2, indexing.gather_elements),
    "gathernd": _static(2, indexing.gathernd),
    "scan_slice": _static(2, indexing.scan_slice),
    "reverse_sequence": _static(2, indexing.reverse_sequence),
    "onehot": _computed(lambda op, xs, ys, traits: indexing.onehot(op, xs[0], xs[2], ys[0], traits, 2)),
    "pooling": _computed(lambda op, xs, ys, traits: pooling.pooling(op, xs[0], ys[0], traits)),
    "max_pool_indices": _spread(pooling.max_pool_indices),
    "argmax": _computed(lambda op, xs, ys, traits: sorting.extreme(op, xs[0], ys[0], traits)),
    "argmin": _computed(lambda op, xs, ys, traits: sorting.extreme(op, xs[0], ys[0], traits)),
    "topk": _computed(lambda op, xs, ys, traits: _static(1, sorting.topk)(op, xs, ys, traits)),
    "prefix_scan_sum": _computed(lambda op, xs, ys, traits: _static(1, scanning.prefix_scan)(op, xs, ys, traits)),
    "prefix_scan_prod": _computed(lambda op, xs, ys, traits: _static(1, scanning.prefix_scan)(op, xs, ys, traits)),
    "resize": _computed(lambda op, xs, ys, traits: _static(1, resizing.resize)(op, xs, ys, traits)),
    **{f"scatter_{r}": _static(3, scattering.scatter) for r in ("none", "add", "mul", "min", "max")},
    **{f"scatternd_{r}": _static(3, scattering.scatternd) for r in ("none", "add", "mul", "min", "max")},
    "tensor_scatter": _carrying(scattering.tensor_scatter),
    "concat_past_present": _static(3, scattering.concat_past_present),
    "nonzero": _spread(selecting.nonzero),
    "compress": _static(2, selecting.compress),
    "nonmaxsuppression": _computed(selecting.nonmaxsuppression),
    "convolution": _spread(convolving.convolution),
    "convolution_backwards": _spread(convolving.backwards),
    "dot": _spread(products.product),
    "rnn": _computed(recurrent.recurrent),
    "gru": _computed(recurrent.recurrent),
    "lstm": _computed(recurrent.recurrent),
    "random_uniform": _computed(random.random),
    "random_normal": _computed(random.random),
    "reduce_any": _computed(lambda op, xs, ys, traits: _static(1, arithmetic.logical)(op, xs, ys, traits)),
    "reduce_all": _computed(lambda op, xs, ys, traits: _static(1, arithmetic.logical)(op, xs, ys, traits)),
    "dynamic_range": _spread(arithmetic.dynamic_range),
    "eye_like": _computed(lambda op, xs, ys, traits: arithmetic.eye_like(op, xs[0], ys[0], traits)),
    "trilu": _carrying(arithmetic.trilu),
    "lrn": _computed(lambda op, xs, ys, traits: arithmetic.lrn(op, xs[0], ys[0], traits)),
    "rotary_embedding": _computed(arithmetic.rotary),
    "gqa_rotary_embedding": _computed(arithmetic.rotary),
}
