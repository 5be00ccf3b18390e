"""`migraphx.quantize_fp16` and related functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mgx_core as mgx
from mgx_core import ParameterError

from .arguments import generate_argument
from .programs import program, target

__all__ = ["autocast_fp8", "quantize_bf16", "quantize_fp16", "quantize_fp8", "quantize_int8"]

ALL = ("all",)
PRODUCTS = ("dot", "convolution")
BATCHES = 8  # of random inputs for calibration


def quantize_fp16(prog: program, ins_names: Iterable[str] = ALL) -> program:
    """Converts the named operations, or all, to float16; modifies the program and returns it."""
    mgx.quantize_fp16(prog.core, _named(prog, ins_names))
    return prog


def quantize_bf16(prog: program, ins_names: Iterable[str] = ALL) -> program:
    """Converts the named operations, or all, to bfloat16; modifies the program and returns it."""
    mgx.quantize_bf16(prog.core, _named(prog, ins_names))
    return prog


def quantize_int8(
    prog: program, t: Any = None, calibration: Iterable[Mapping[str, Any]] = (), ins_names: Iterable[str] = PRODUCTS
) -> program:
    """Quantizes matrix products and convolutions to int8; modifies the program and returns it.

    t: the target on which calibration runs, or the calibration data; calibration: batches, each a mapping of inputs by name
    (default: random numbers).
    Errors: ParameterError for names other than dot and convolution.
    """
    names = set(ins_names)
    if not names <= set(PRODUCTS):
        raise ParameterError(f"quantize_int8 takes the operations dot and convolution, got {sorted(names)}")
    mgx.quantize_int8(prog.core, *_calibrated(prog, t, calibration), names)
    return prog


def quantize_fp8(prog: program, t: Any = None, calibration: Iterable[Mapping[str, Any]] = ()) -> program:
    """Quantizes matrix products and convolutions to 8-bit floats; modifies the program and returns it."""
    mgx.quantize_fp8(prog.core, *_calibrated(prog, t, calibration))
    return prog


def autocast_fp8(prog: program) -> program:
    """Changes parameters and results of 8-bit float types to float32; modifies the program and returns it."""
    mgx.autocast_fp8(prog.core)
    return prog


def _calibrated(prog: program, t: Any, calibration: Iterable[Mapping[str, Any]]) -> tuple[Any, list[Mapping[str, Any]]]:
    """Returns the core's target (None: the best one) and the calibration batches."""
    if t is not None and not isinstance(t, target):
        t, calibration = None, t
    batches = list(calibration) or [_random(prog, seed) for seed in range(BATCHES)]
    return None if t is None else t.core, batches


def _random(prog: program, seed: int) -> dict[str, Any]:
    """Returns random inputs; floats are at most 2, the range that MIGraphX's default scale covers."""
    made = {}
    for n, (name, s) in enumerate(prog.get_parameter_shapes().items()):
        values = generate_argument(s, seed * 1000 + n).to_numpy()
        made[name] = values * values.dtype.type(2) if values.dtype.kind not in "biu" else values
    return made


def _named(prog: program, names: Iterable[str]) -> set[str]:
    """Returns the names; ``all`` is expanded to all ops of the program: the core's "all" excludes ops that need the range."""
    from mgx_core.ir.module import nested

    chosen = set(names)
    if "all" in chosen:
        return {ins.name for m in nested(prog.core.get_main_module()) for ins in m}
    return chosen
