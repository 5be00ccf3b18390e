"""Kernels that compute each output element from input elements selected by per-axis tables: pads and resizing.

An axis is iterated directly, or through a table of input offsets (taps) and weights by output index.
``copy`` copies bits, with at most one tap per axis and a fill value elsewhere; ``sum`` adds weighted taps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mgx_core.errors import No
from mgx_core.types.shape import Shape

from .code import Code
from .cost import grain_for
from .element import computed, raw_type, supported
from .engine import Engine
from .kernel import JitKernel
from .lines import compile_lines
from .taps_plan import Plan, Taps, planned

__all__ = ["compile_taps"]

GRAIN = 24576


def compile_taps(
    x: Shape,
    out: Shape,
    taps: Mapping[int, Taps],
    how: Literal["copy", "sum"],
    engine: Engine,
    name: str,
    filler: Any = 0,
) -> JitKernel | No:
    """Returns a kernel from x to out of the same rank, or `No`; extents of axes without taps must be equal."""
    if min((*x.strides(), *out.strides()), default=0) < 0:
        return No(f"negative strides are not supported, got {x} and {out}")
    pattern = 0
    if how == "copy":
        raw = raw_type(x.dtype)
        if raw is None or x.dtype is not out.dtype:
            return No(f"loops do not copy {x.dtype} to {out.dtype}")
        pattern = int.from_bytes(np.asarray(filler, x.dtype.numpy).tobytes(), "little")
        x, out = (Shape(raw, s.lens(), s.strides()) for s in (x, out))
        lines = compile_lines(x, out, taps, pattern, name)
        if lines is not None:
            return lines
    elif not supported(x.dtype) or not supported(out.dtype):
        return No(f"loops do not support {x.dtype} and {out.dtype}")
    elif not computed(x.dtype).is_float:
        return No(f"weighted sums of {x.dtype} are not supported")
    plan = planned(x, out, taps, how, pattern)
    elements = out.elements()
    inner = plan.axes[-1].extent
    work = elements // inner if elements else 0
    times = math.prod(a.most for a in plan.axes if a.table >= 0)
    return JitKernel(
        name=name,
        code=engine.function(plan.key, lambda c: _write(c, plan)),
        work=work,
        grain=grain_for(GRAIN, inner * (2 + times)),
        args=tuple(plan.args.values),
        scratch_bytes=0,
        inputs=1,
        outputs=1,
        flops=elements * times,
        bytes=x.bytes() + out.bytes(),
    )


def _write(c: Code, plan: Plan) -> None:
    """Generates the code; imports the generator lazily, since most processes never need it."""
    from .taps_loops import write

    write(c, plan)
