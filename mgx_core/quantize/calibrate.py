"""Runs of a program on calibration data, with the tensors that are to be quantized as further results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from ..ops.reduce import ReduceMax, ReduceMin
from ..options import CompileOptions
from ..run.compile_module import compile_module
from ..types.argument import Array
from .config import Calibration, Range
from .ranges import Observer

__all__ = ["observe", "watch"]


def observe(
    main: Module, tensors: Sequence[Instruction], names: Sequence[str], data: Calibration, target: Any, method: Range
) -> list[Observer]:
    """The ranges of tensors of a module over all batches, which are taken one at a time.

    With ``max`` the target gives each batch's extremes alone; other methods read the tensors.
    Errors: ParameterError without data, or for values that are not finite.
    """
    observers = [Observer(name) for name in names]
    if method == "max":
        whole: list[Operation] = [ReduceMin(), ReduceMax()]

        def extremes(values: Sequence[Array]) -> None:
            for n, observer in enumerate(observers):
                observer.see_range(float(values[2 * n].min()), float(values[2 * n + 1].max()))

        watch(main, tensors, whole, data, target, extremes)
    else:

        def all_values(values: Sequence[Array]) -> None:
            for observer, value in zip(observers, values, strict=True):
                observer.see(value)

        watch(main, tensors, [], data, target, all_values)
    return observers


def watch(
    main: Module,
    tensors: Sequence[Instruction],
    summaries: Sequence[Operation],
    data: Calibration,
    target: Any,
    see: Callable[[Sequence[Array]], None],
) -> int:
    """Calls `see` with the tensors of each batch, or with what `summaries` make of each; returns the number of batches.

    Errors: ParameterError without data, or for a batch that is not a mapping.
    """
    copies: dict[Instruction, Instruction] = {}
    copy = main.clone(outer=copies)
    place = {ins: n for n, ins in enumerate(main)}
    found = list(copy)
    wanted = [found[place[t]] for t in tensors]
    if summaries:
        wanted = [copy.add(op, t) for t in wanted for op in summaries]
    copy.replace_return(wanted)
    copy.sweep()
    executable = compile_module(copy, target, CompileOptions())
    count = 0
    for batch in data:
        if not isinstance(batch, Mapping):
            raise ParameterError(f"calibration data must be mappings from parameter names to values, got {type(batch)}")
        results = executable.run({n: v for n, v in batch.items() if n in copy.parameters} if len(batch) else batch)
        see([np.asarray(r) for r in results])
        count += 1
    if not count:
        raise ParameterError("calibration data is empty: at least one batch of inputs is required")
    return count
