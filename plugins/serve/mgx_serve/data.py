"""Offline inference on Ray Data data sets, in many processes, with Ray's progress, retries and backpressure.

Needs ``mgx-serve[ray]``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import BadRequest
from .on_ray.publishing import PublishedModel, publish
from .on_ray.resources import missing
from .settings import ModelSettings
from .tensors import Array, Tensor

__all__ = ["Predictor", "map_batches"]

log = logging.getLogger("mgx_serve")


def map_batches(
    dataset: Any,
    model: Path | str,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    batch_size: int = 32,
    concurrency: int | tuple[int, int] = 1,
    target: str = "",
    precision: str = "",
    cpus: float = 1.0,
    gpus: float = 0.0,
    **options: Any,
) -> Any:
    """Returns the data set with one more column per model output; evaluated lazily, as Ray data sets are.

    The model is read here, compiled once per kind of machine, and memory-mapped once per machine.
    inputs, outputs: column names by input and output name, by default the same names; concurrency: number of processes, or a
    (minimum, maximum) pair; cpus, gpus: per process; options: passed to Ray's `Dataset.map_batches`.
    Errors: MgxError if the file cannot be read; BadRequest during evaluation for columns that do not fit.
    """
    where = Path(model)
    settings = ModelSettings(target=target, precision=precision, max_batch=batch_size, cpus=cpus, gpus=gpus)
    published = publish(where.stem, "1", where, settings)
    least = concurrency if isinstance(concurrency, int) else concurrency[0]
    lack = missing(least * cpus + 1, least * gpus)  # one for the tasks that read the data set
    if lack:
        log.warning(
            "%s, one for reading the data set: unless machines join, lower concurrency, cpus or gpus, or Ray waits forever",
            lack,
        )
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=(published, dict(inputs or {}), dict(outputs or {})),
        batch_size=batch_size,
        batch_format="numpy",
        concurrency=concurrency,
        num_cpus=cpus,
        num_gpus=gpus,
        **options,
    )


class Predictor:
    """The model in one Ray Data worker process."""

    def __init__(self, published: PublishedModel, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self._model = published.open()
        known = [t.name for t in (*self._model.signature.inputs, *self._model.signature.outputs)]
        for name in (*inputs, *outputs):
            if name not in known:
                raise BadRequest(f"the model has no input or output {name!r}; it has {', '.join(known)}")
        self._inputs, self._outputs = inputs, outputs

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        signature = self._model.signature
        feeds = {t.name: _column(batch, self._inputs.get(t.name, t.name), t) for t in signature.inputs}
        signature.check(feeds)
        results = self._model.run(feeds)
        named = {self._outputs.get(t.name, t.name): r for t, r in zip(signature.outputs, results, strict=True)}
        return batch | named


def _column(batch: Mapping[str, Array], column: str, tensor: Tensor) -> Array:
    """Errors: BadRequest for a missing column, or values that the input's type cannot represent."""
    if column not in batch:
        raise BadRequest(f"input {tensor.name!r} requires a column {column!r}; known are {', '.join(batch)}")
    given = batch[column]
    if given.dtype.hasobject and not tensor.dtype.hasobject:
        try:
            given = np.stack([np.asarray(row) for row in given])
        except ValueError as error:
            raise BadRequest(f"column {column!r}: rows of one shape are required: {error}") from None
    if tensor.dtype.hasobject:
        return given.astype(object)
    if not np.can_cast(given.dtype, tensor.dtype, "same_kind"):
        raise BadRequest(f"input {tensor.name!r} requires {tensor.datatype}, column {column!r} holds {given.dtype}")
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(given, tensor.dtype)
    same = made == given if tensor.dtype.kind in "iu" else np.isfinite(made) == np.isfinite(given)
    if not same.all():
        lost = given[~same].flat[0]
        raise BadRequest(
            f"input {tensor.name!r} requires {tensor.datatype}, which cannot hold {lost} of column {column!r}"
        )
    return made
