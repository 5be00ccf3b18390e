"""Selects which torch operators are decomposed before conversion."""

from __future__ import annotations

import functools
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
    """Returns this package's converters and those of installed plugins."""
    return with_plugins(STANDARD, "pt2")


def converts(converters: Converters, op: Any) -> bool:
    """Returns True if an overload has a converter."""
    namespace, packet, overload = name_of(op)
    names = (f"{packet}.{overload}", packet)
    return any(converters.find(space + namespace, name, 1) for space in ("", COMPLEX) for name in names)


def reals_only(converters: Converters, op: Any) -> bool:
    """Returns True if an overload's converter does not support complex tensors."""
    namespace, packet, overload = name_of(op)
    return not any(converters.find(COMPLEX + namespace, name, 1) for name in (f"{packet}.{overload}", packet))


def complex_apart(apart: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a decomposition that applies to complex operands only, since real ones have a converter."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = any(isinstance(x, torch.Tensor) and x.is_complex() for x in flat([list(args), kwargs]))
        return apart(*args, **kwargs) if given else NotImplemented

    return decompose


# decomposed although they have converters, if an axis is counted from the end
REWRITTEN = ("unique_consecutive",)
# the same, if they draw random numbers or mutate
BREAK = ("native_dropout", "dropout", "_fused_moving_avg_obs_fq_helper", *REWRITTEN)


def table(converters: Converters) -> dict[Any, Callable[..., Any]]:
    """Returns decompositions of all operators without converters, for `ExportedProgram.run_decompositions`."""
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
    """Returns the same for graphs that AOTAutograd traces, without composite operators, which it always decomposes."""
    found = {**core_decompositions(), **composed()}
    out: dict[Any, Callable[..., Any]] = {}
    for op, apart in found.items():
        if not isinstance(op, torch._ops.OpOverload) or not converts(converters, op) or name_of(op)[1] in REWRITTEN:
            out[op] = apart
        elif reals_only(converters, op):
            out[op] = complex_apart(apart)
    return out


@functools.cache
def core_decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns torch's table, which takes as long to make as a small graph to compile."""
    from torch._decomp import core_aten_decompositions

    return {**core_aten_decompositions()}


def composites(converters: Converters) -> list[Any]:
    """Returns the composite operators that have a converter; only namespaces of converters are searched."""
    from torch._export.utils import _collect_all_valid_cia_ops_for_aten_namespace as of_torch
    from torch._export.utils import _collect_all_valid_cia_ops_for_namespace as of_namespace

    domains = {domain.removeprefix(COMPLEX) for domain, _ in converters.names()} & set(torch.ops._dir) - {"aten"}
    spaces = [s for d in sorted(domains) if isinstance(s := getattr(torch.ops, d), torch._ops._OpNamespace)]
    found = [op for ops in (of_torch(), *map(of_namespace, spaces)) for op in ops]
    return [op for op in found if converts(converters, op)]


@contextmanager
def kept_whole(converters: Converters, autocast: bool = False) -> Iterator[None]:
    """Context manager in which composite operators with a converter are traced without decomposition.

    autocast: operators that autocast does not intercept are decomposed, since it casts their components.
    """
    from torch._export.utils import _get_decomp_for_cia, _special_op_to_preserve_cia
    from torch.export.exported_program import _override_composite_implicit_decomp

    names = WHOLE - PASSED_BY if autocast else WHOLE
    ops = [op for op in composites(converters) if op.namespace != "aten" or op._schema.name.partition("::")[2] in names]
    callables: dict[Any, Callable[..., Any]] = {
        op: complex_apart(_get_decomp_for_cia(op)) if reals_only(converters, op) else _special_op_to_preserve_cia
        for op in ops
    }
    for op in ops:
        callables[op] = apart_if_nested(callables[op], _get_decomp_for_cia(op))
    if "einsum" in names:
        callables[torch.ops.aten.einsum.default] = products_only(_get_decomp_for_cia(torch.ops.aten.einsum.default))
    instance_norm = torch.ops.aten.instance_norm.default
    if instance_norm in callables:
        callables[instance_norm] = unless_written(_get_decomp_for_cia(instance_norm))
    with _override_composite_implicit_decomp(callables):
        yield


def apart_if_nested(kept: Callable[..., Any], apart: Callable[..., Any]) -> Callable[..., Any]:
    """Decomposes calls with nested tensors, whose class dispatches the components."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        nested = any(isinstance(x, torch.Tensor) and x.is_nested for x in flat([list(args), kwargs]))
        return (apart if nested else kept)(*args, **kwargs)

    return decompose


def unless_written(apart: Callable[..., Any]) -> Callable[..., Any]:
    """Decomposes instance norms that update running statistics, which the operator's schema does not declare."""

    def instance_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, *rest: Any) -> Any:
        writes = use_input_stats and not (mean is None and var is None)
        return apart(x, weight, bias, mean, var, use_input_stats, *rest) if writes else NotImplemented

    return instance_norm


def products_only(apart: Callable[..., Any]) -> Callable[..., Any]:
    """Decomposes einsums of one operand, which may be views although the operator's schema declares no alias.

    Also those that sum over the axes of an ellipsis, which the operation does not.
    """

    def einsum(equation: str, operands: Sequence[Any], *, path: Sequence[int] | None = None) -> Any:
        terms, arrow, result = equation.partition("->")
        summed = "..." in terms and arrow and "..." not in result
        return NotImplemented if len(operands) > 1 and not summed else apart(equation, operands, path=path)

    return einsum


TRACING = threading.RLock()  # compiling one graph may compile another


@contextmanager
def differentiable_layers() -> Iterator[None]:
    """Context manager in which LSTMs are traced step by step, since AOTAutograd cannot differentiate oneDNN's LSTM.

    Disables oneDNN process-wide, so other threads compute without it meanwhile. A lock admits one thread at a time, so that each
    saves and restores the user's setting.
    """
    with TRACING:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(before)


# composite in torch, but better converted whole
WHOLE = frozenset((
    "linear", "matmul", "einsum", "scaled_dot_product_attention", "layer_norm", "rms_norm", "group_norm", "instance_norm",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "pad", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "conv1d", "conv2d", "conv3d", "max_pool2d",
    "max_pool1d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "repeat_interleave",
    "bilinear",
))  # fmt: skip
# of these, those that autocast does not cast although it casts the products inside
PASSED_BY = frozenset((
    "einsum", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "bilinear",
))  # fmt: skip
