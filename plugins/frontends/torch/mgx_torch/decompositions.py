"""Which operators of torch stay whole, and which break down before conversion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mgx_core.converting.converters import Converters
from mgx_core.converting.joined import with_plugins

from .calls import flat, name_of
from .composed import composed
from .converter import COMPLEX
from .converters import STANDARD
from .grouped import grouped_products

__all__ = ["PASSED_BY", "all_converters", "differentiable_layers", "kept_whole", "table", "traced_table"]


def all_converters() -> Converters:
    """Our converters and those of installed plugins."""
    return with_plugins(STANDARD, "pt2")


def converts(converters: Converters, op: Any) -> bool:
    """Returns True if an overload has a converter of its own."""
    namespace, packet, overload = name_of(op)
    names = (f"{packet}.{overload}", packet)
    return any(converters.find(space + namespace, name, 1) for space in ("", COMPLEX) for name in names)


def reals_only(converters: Converters, op: Any) -> bool:
    """Returns True if an overload has a converter that takes no complex numbers."""
    namespace, packet, overload = name_of(op)
    return not any(converters.find(COMPLEX + namespace, name, 1) for name in (f"{packet}.{overload}", packet))


def complex_apart(apart: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a decomposition that is taken where an operand is complex; of real ones there is a converter."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = any(isinstance(x, torch.Tensor) and x.is_complex() for x in flat([list(args), kwargs]))
        return apart(*args, **kwargs) if given else NotImplemented

    return decompose


# whole only in part of their cases: the decomposition is taken where torch draws random numbers or mutates
BREAK = ("native_dropout", "dropout", "_fused_moving_avg_obs_fq_helper")


def table(converters: Converters) -> dict[Any, Callable[..., Any]]:
    """Returns decompositions of all operators that nothing converts, for `ExportedProgram.run_decompositions`."""
    from torch.export import default_decompositions

    # with those of other packages
    found = {**default_decompositions().materialize(), **composed(), **grouped_products()}
    kept = [op for op in found if isinstance(op, torch._ops.OpOverload) and converts(converters, op)]
    for op in kept:
        if op._schema.name.partition("::")[2] not in BREAK:
            apart = found.pop(op)
            if reals_only(converters, op):
                found[op] = complex_apart(apart)
    return found


def traced_table(converters: Converters) -> dict[Any, Callable[..., Any]]:
    """Returns the same for graphs that AOTAutograd traces, without operators that are made of others in any case."""
    from torch._decomp import core_aten_decompositions

    found = {**core_aten_decompositions(), **composed()}
    out: dict[Any, Callable[..., Any]] = {}
    for op, apart in found.items():
        if not isinstance(op, torch._ops.OpOverload) or not converts(converters, op):
            out[op] = apart
        elif reals_only(converters, op):
            out[op] = complex_apart(apart)
    return out


@contextmanager
def kept_whole(converters: Converters, autocast: bool = False) -> Iterator[None]:
    """While it lasts, operators that are made of others and have a converter are traced as they are.

    autocast: parts of the graph are cast; operators that autocast passes by are taken apart, for it casts what they are made of.
    """
    from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia, _special_op_to_preserve_cia
    from torch.export.exported_program import _override_composite_implicit_decomp

    names = WHOLE - PASSED_BY if autocast else WHOLE
    ops = [
        op
        for op in _collect_all_valid_cia_ops()
        if converts(converters, op) and (op.namespace != "aten" or op._schema.name.partition("::")[2] in names)
    ]
    callables: dict[Any, Callable[..., Any]] = {
        op: complex_apart(_get_decomp_for_cia(op)) if reals_only(converters, op) else _special_op_to_preserve_cia
        for op in ops
    }
    if "einsum" in names:
        callables[torch.ops.aten.einsum.default] = products_only(_get_decomp_for_cia(torch.ops.aten.einsum.default))
    instance_norm = torch.ops.aten.instance_norm.default
    if instance_norm in callables:
        callables[instance_norm] = unless_written(_get_decomp_for_cia(instance_norm))
    with _override_composite_implicit_decomp(callables):
        yield


def unless_written(apart: Callable[..., Any]) -> Callable[..., Any]:
    """An instance norm that writes to running statistics taken apart: the operator's schema denies that it does."""

    def instance_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, *rest: Any) -> Any:
        writes = use_input_stats and not (mean is None and var is None)
        return apart(x, weight, bias, mean, var, use_input_stats, *rest) if writes else NotImplemented

    return instance_norm


def products_only(apart: Callable[..., Any]) -> Callable[..., Any]:
    """An einsum of one operand taken apart: it may be a view, though the operator's schema denies that memory is shared."""

    def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
        return NotImplemented if len(operands) > 1 else apart(equation, operands, path=path)

    return einsum


TRACING = threading.RLock()  # compiling one graph may compile another


@contextmanager
def differentiable_layers() -> Iterator[None]:
    """While it lasts, LSTM layers are traced step by step: AOTAutograd cannot differentiate oneDNN's, which torch takes else.

    torch has one switch for oneDNN in a process: other threads compute without it meanwhile. Only one thread at a time is in
    here, so that each finds the user's setting and restores it.
    """
    with TRACING:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(before)


# made of others in torch, and better whole here
WHOLE = frozenset((
    "linear", "matmul", "einsum", "scaled_dot_product_attention", "layer_norm", "rms_norm", "group_norm", "instance_norm",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "pad", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "conv1d", "conv2d", "conv3d", "max_pool2d",
    "max_pool1d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "repeat_interleave",
    "bilinear",
))  # fmt: skip
# of these, those that autocast does not cast, while it does cast products that they are made of
PASSED_BY = frozenset((
    "einsum", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "bilinear",
))  # fmt: skip
