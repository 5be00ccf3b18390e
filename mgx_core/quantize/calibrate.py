"""Calibration: runs a program on sample data and collects tensor statistics as additional results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from operator import length_hint
from typing import Any, Final

import numpy as np

from ..errors import MgxError, ParameterError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.reduce import ReduceMax, ReduceMin
from ..ops.scalar import widen
from ..ops.slice import Slice
from ..options import CompileOptions
from ..run.compile_module import compile_module
from ..run.executable import Executable
from ..types.argument import Array
from ..types.dim import Dim
from .config import Calibration
from .products import name_of
from .ranges import Observer

__all__ = ["observe", "watch"]

SAMPLE: Final = 1 << 13  # sampled elements of a tensor per run
SAMPLES: Final = 1 << 17  # sampled elements of a tensor over all runs
ROWS: Final = 8  # minimum sampled elements per channel and run, if they fit `SAMPLE`


def observe(main: Module, tensors: Mapping[Instruction, int], data: Calibration, target: Any) -> list[Observer]:
    """Returns statistics of tensors of a module over all batches, consumed one at a time.

    tensors: with their channel axes.  Extremes and samples are computed within the run, so that no tensor outlives it.
    Errors: ParameterError if there is no data, or for non-finite values.
    """
    observers = [Observer(name_of(t), axis=axis) for t, axis in tensors.items()]
    share = SAMPLES // max(length_hint(data, 1), 1)  # of one batch
    most = [max(min(SAMPLE, share), min(SAMPLE, ROWS * known(t.shape.dims[axis]))) for t, axis in tensors.items()]
    after: dict[Instruction, Instruction | None] = {}  # directly after the first reader, while the tensor is in cache

    def summaries(copy: Module, tensor: Instruction, axis: int, most: int) -> list[Instruction]:
        dims = tensor.shape.dims
        others = tuple(a for a in range(len(dims)) if a != axis)
        found = [tensor, tensor]
        if others:
            found = [copy.add(op(axes=others), tensor, before=after[tensor]) for op in (ReduceMin, ReduceMax)]
        steps = sample_steps(dims, axis, most)
        picked = tuple(a for a, s in enumerate(steps) if s > 1)  # their extents are known
        ends = tuple(known(dims[a]) for a in picked)
        by = tuple(steps[a] for a in picked)
        # centered, so that image borders are not over-represented
        starts = tuple((n - 1) % s // 2 for n, s in zip(ends, by, strict=True))
        part = Slice(axes=picked, starts=starts, ends=ends, steps=by)
        return [*found, copy.add(part, tensor, before=after[tensor]) if picked else tensor]

    def add(copy: Module, wanted: Sequence[Instruction]) -> list[Instruction]:
        place = {ins: n for n, ins in enumerate(copy)}
        for tensor in wanted:
            readers = [u for u in tensor.users if u in place]
            after[tensor] = min(readers, key=place.__getitem__, default=tensor).next
        kinds = zip(wanted, tensors.values(), most, strict=True)
        return [s for t, axis, n in kinds for s in summaries(copy, t, axis, n)]

    def see(values: Sequence[Array]) -> None:
        for n, (observer, limit) in enumerate(zip(observers, most, strict=True)):
            low, high, sample = (widen(v).astype(np.float32, copy=False) for v in values[3 * n : 3 * n + 3])
            if not sample.size:
                continue
            axis, rank = observer.axis, sample.ndim
            first = sample.transpose(axis, *range(axis), *range(axis + 1, rank))
            rows = first.reshape(sample.shape[axis], -1).T  # no copy of one image's channels
            observer.see(low.reshape(-1), high.reshape(-1), rows[:: max(1, rows.size // limit)])

    watch(main, list(tensors), add, data, target, see)
    return observers


def known(extent: Dim) -> int:
    """Returns an extent, 1 if it is symbolic."""
    return extent if isinstance(extent, int) else 1


def sample_steps(dims: Sequence[Dim], axis: int, most: int) -> list[int]:
    """Returns sampling strides for all axes but the channel axis, largest for the longest, for at most `most` elements."""
    steps = [1] * len(dims)
    while True:
        left = [-(-n // s) for n, s in zip(map(known, dims), steps, strict=True)]
        longest = max((a for a in range(len(dims)) if a != axis), key=lambda a: left[a], default=axis)
        if prod(left) <= most or left[longest] == 1:
            return steps
        steps[longest] += 1


def watch(
    main: Module,
    tensors: Sequence[Instruction],
    add: Callable[[Module, Sequence[Instruction]], Sequence[Instruction]],
    data: Calibration,
    target: Any,
    see: Callable[[Sequence[Array]], None],
) -> None:
    """Runs each batch and calls `see` with the results that `add` appends.

    add: receives a copy of the module and its tensors; returns the results to compute.
    Errors: ParameterError if there is no data, for a single batch instead of an iterable, or for a batch that is not a mapping
    or lacks a parameter.
    """
    require_batches(data)
    copy = main.clone()
    place = {ins: n for n, ins in enumerate(main)}
    found = list(copy)
    copy.replace_return(list(add(copy, [found[place[t]] for t in tensors])))
    copy.sweep()
    executable = compile_module(copy, target, CompileOptions.of())
    empty = True
    for number, batch in enumerate(data):
        try:
            see(_results(executable, copy.parameters, batch))
        except MgxError as error:
            raise error.located(f"batch {number} of the calibration data (the first is 0)") from None
        empty = False
    if empty:
        raise ParameterError("calibration data is empty: at least one batch of inputs is required")


def _results(executable: Executable, parameters: Collection[str], batch: Any) -> list[Array]:
    if not isinstance(batch, Mapping):
        raise ParameterError(
            "calibration data must be mappings from parameter names to values, got an element of type "
            f"{type(batch).__name__}"
        )
    missing = [n for n in parameters if n not in batch]
    if missing:
        raise ParameterError(
            f"calibration data has no value of {_listed(missing)}; a batch has "
            f"{_listed(batch) if batch else 'no names at all'}"
        )
    return [np.asarray(r) for r in executable.run({n: v for n, v in batch.items() if n in parameters})]


def require_batches(data: Calibration) -> None:
    """Rejects a single batch (a mapping), whose keys would be iterated as batches.  Errors: ParameterError."""
    if isinstance(data, Mapping):
        raise ParameterError(
            f"calibration data must be a list (or any iterable) of batches, each a mapping from parameter names to "
            f"values; got one mapping ({_listed(data)}): pass it in a list"
        )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names))
