"""One version of a model: its signature, and how it is compiled and run."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import MgxError, Program, Shape

from .error_text import error_text
from .errors import BadRequest, Internal
from .extents import Buckets, Extents
from .padding import Padding
from .settings import ModelSettings
from .tensors import OPEN, Array, DeferredInput, Tensor, datatype_of, reshaped

__all__ = ["Model", "Signature", "batch_sizes", "compiled", "source"]

log = logging.getLogger("mgx_serve")


@dataclass(frozen=True)
class Signature:
    """The interface of one model version.

    timeout: default timeout of requests in seconds; max_batch: maximum rows of a batch, 0 if requests are not batched.
    """

    name: str
    version: str
    target: str
    timeout: float
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch: int = 0

    def chosen(self, names: Sequence[str]) -> Sequence[int]:
        """Returns the positions of the named outputs, of all if none is named.  Errors: BadRequest for an unknown name."""
        if not names:
            return range(len(self.outputs))
        known = {t.name: i for i, t in enumerate(self.outputs)}
        for name in names:
            if name not in known:
                raise BadRequest(f"model {self.name!r} has no output {name!r}; it has {', '.join(known)}")
        return [known[n] for n in names]

    def check(self, feeds: Mapping[str, Array | DeferredInput]) -> None:
        """Errors: BadRequest if names, element types or extents do not match."""
        for tensor in self.inputs:
            if tensor.name not in feeds:
                self._refuse_unknown(feeds)
                raise BadRequest(f"model {self.name!r} requires input {tensor.name!r} ({tensor})")
            given = feeds[tensor.name]
            shape, wanted = given.shape, tensor.shape
            fits = len(shape) == len(wanted) and all(w in (OPEN, n) for w, n in zip(wanted, shape, strict=True))
            if not fits or datatype_of(given.dtype) != tensor.datatype:
                raise BadRequest(
                    f"input {tensor.name!r} of model {self.name!r}: {tensor} is required, "
                    f"got {datatype_of(given.dtype)}{list(shape)}"
                )
        if len(feeds) != len(self.inputs):
            self._refuse_unknown(feeds)

    def _refuse_unknown(self, feeds: Mapping[str, Array | DeferredInput]) -> None:
        known = [t.name for t in self.inputs]
        for name in feeds:
            if name not in known:
                raise BadRequest(f"model {self.name!r} has no input {name!r}; it has {', '.join(known) or 'none'}")


class Model:
    """A compiled program with its inputs and outputs as the protocol describes them.  Thread-safe.

    batches: requests can be batched along the first axis; sizes: batch sizes, ascending;
    seconds: per run by input shapes, measured by `warm`; own_memory: the target has device memory.
    """

    def __init__(self, name: str, version: str, program: Program, settings: ModelSettings) -> None:
        self.settings, self.program = settings, program
        executable = program.executable
        assert executable is not None
        given = {n: _tensor_shape(n, s) for n, s in program.get_parameter_shapes().items()}
        names = program.get_output_names()
        results = {n: _tensor_shape(n, s) for n, s in zip(names, program.get_output_shapes(), strict=True)}
        inputs = _stated("input", [_tensor("input", n, s) for n, s in given.items()], settings.inputs)
        outputs = tuple(_tensor("output", n, s) for n, s in results.items())
        stated = _stated("output", outputs, settings.outputs)
        outputs = tuple(own if s.inner is None else s for own, s in zip(outputs, stated, strict=True))
        batch = _one_batch([*given.values()], [*results.values()])
        self.batches = settings.max_batch > 1 and batch and all(map(_keeps_rows, (*inputs, *outputs)))
        most = settings.max_batch if self.batches else 0
        self.signature = Signature(name, version, executable.target.name, settings.timeout, inputs, outputs, most)
        self.sizes = batch_sizes(settings.max_batch, settings.preferred) if self.batches else ()
        self._extents = Extents(given, [*results.values()])
        self._buckets = self._bucketed() if settings.buckets else None
        self.seconds: dict[tuple[tuple[int, ...], ...], float] = {}
        self.own_memory = executable.target.own_memory
        self._context = executable.context

    def _bucketed(self) -> Buckets:
        """Errors: ParameterError for settings that do not fit the model."""
        tensors = (*self.signature.inputs, *self.signature.outputs)
        if not self.batches or any(t.inner is not None or t.dtype.hasobject for t in tensors):
            raise mgx.ParameterError(
                "buckets are for requests that are joined (max_batch), of numbers, with the extents of the model"
            )
        return Buckets(self._extents, self.signature.inputs, self.settings)

    @classmethod
    def read(cls, name: str, version: str, path: Path, settings: ModelSettings) -> Model:
        """Errors: MgxError if the file cannot be read or compiled."""
        return cls(name, version, compiled(source(path), settings), settings)

    def rows_of_outputs(self, rows: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]] | None:
        """Returns the extents of a row of each output of batched requests; None if they depend on data.

        rows: row extents of the inputs.
        """
        stated = self.signature.outputs
        if any(t.inner is not None for t in (*self.signature.inputs, *stated)):
            return None if any(OPEN in t.shape[1:] for t in stated) else [t.shape[1:] for t in stated]
        return self._extents.rows_of_outputs(self._extents.known(rows))

    def padding(self, rows: Mapping[str, Sequence[int]]) -> Padding | None:
        """Returns the padding of requests with these row extents; None if they are not padded."""
        return None if self._buckets is None else self._buckets.padding(rows)

    def host_memory(self, size: int) -> Array:
        """Allocates uninitialized host memory; pinned if the target's driver supports it."""
        try:
            found: Array = self._context.host_array(Shape("uint8", [size]))
        except MgxError as error:
            log.warning("model %s: no memory that the device reads by itself: %s", self.signature.name, error)
            found = np.empty(size, np.uint8)
        return found

    def pin(self, memory: Array) -> object | None:
        """Pins memory for direct transfers for as long as the returned object lives; returns None if that is not supported."""
        pinned: object | None = self._context.pin(memory)
        return pinned

    def warm(self) -> None:
        """Runs the model twice per common batch size: once to compile, once to measure `seconds`.

        Does nothing if the settings disable it.  Sizes that run out of memory are skipped.
        """
        if not self.settings.warm:
            return
        name, inputs = self.signature.name, self.signature.inputs
        for size in self.sizes or (1,):
            shapes = {t.name: (size, *t.shape[1:]) if t.shape[:1] == (OPEN,) else t.shape for t in inputs}
            if any(OPEN in shape for shape in shapes.values()) or any(t.dtype.hasobject for t in inputs):
                return  # known only from requests
            try:
                given = {t.name: np.zeros(shapes[t.name], t.dtype) for t in inputs}
                every = range(len(self.signature.outputs))
                self._results(given, every)
                start = time.perf_counter()
                self._results(given, every)
                self.seconds[tuple(shapes.values())] = time.perf_counter() - start
            except MgxError as error:  # zeros may be invalid inputs of the model
                log.warning("model %s does not run with zeros of batch size %s: %s", name, size, error)
            except MemoryError:
                log.warning(
                    "model %s: no memory to run batch size %s; it and larger ones were not prepared", name, size
                )
                return

    def run(self, feeds: Mapping[str, Array], wanted: Sequence[int] | None = None) -> list[Array]:
        """Runs the model; returns the outputs at these positions, or all outputs in order if None.

        Other outputs are not copied from device memory.
        Errors: BadRequest if values do not fit; Internal if the run fails.
        """
        outputs = self.signature.outputs
        indices = range(len(outputs)) if wanted is None else wanted
        try:
            results = [np.asarray(r) for r in self._results(feeds, indices)]
        except (mgx.ParameterError, mgx.ShapeError) as error:  # compilation succeeded, so the arguments are at fault
            raise BadRequest(f"model {self.signature.name!r}: {error_text(error)}") from error
        except MgxError as error:
            log.exception("model %s failed", self.signature.name)
            raise Internal(f"model {self.signature.name!r} failed: {error_text(error)}") from error
        return [self._reshaped(outputs[n], r) for n, r in zip(indices, results, strict=True)]

    def _reshaped(self, tensor: Tensor, result: Array) -> Array:
        """Returns a result as the protocol represents it.  Errors: BadRequest if the settings cannot reshape it."""
        if tensor.inner is None:
            return result
        try:
            return reshaped(result, tensor.inner, tensor.shape)
        except ValueError as error:  # inputs determine the model's open extents
            raise BadRequest(
                f"output {tensor.name!r} of model {self.signature.name!r} is reshaped by its settings: {error}"
            ) from error

    def _results(self, feeds: Mapping[str, Array], wanted: Sequence[int]) -> Sequence[mgx.Argument]:
        """Runs one request; a program with states starts from its initial states, independent of earlier requests."""
        for t in self.signature.inputs:
            if t.inner is not None:
                feeds = {**feeds, t.name: reshaped(feeds[t.name], t.shape, t.inner)}
        states, executable = self.program.states, self.program.executable
        assert executable is not None
        if states:
            feeds = {**states, **feeds}
        elif len(wanted) == len(self.signature.outputs):
            return executable.run(feeds)
        return executable.run(feeds, wanted=wanted)


def batch_sizes(most: int, preferred: Sequence[int] = ()) -> tuple[int, ...]:
    """Returns the batch sizes: powers of two, 1.5 times these, the preferred sizes and the maximum.

    Each size is compiled separately.  Few sizes are compiled soon, and padding is at most a third of a batch.
    """
    powers = [1 << n for n in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, p + p // 2) if n <= most} | {most, *preferred}))


def source(path: Path) -> Program:
    """Reads a program from a file; it is already compiled if the file contains compiled code.  Errors: MgxError."""
    return mgx.load(path) if path.suffix == ".mxr" else mgx.parse(path)


def compiled(program: Program, settings: ModelSettings) -> Program:
    """Compiles the program according to the settings unless it is compiled already.  Errors: MgxError."""
    if program.is_compiled():
        return program
    if settings.precision:
        {"fp16": mgx.quantize_fp16, "bf16": mgx.quantize_bf16}[settings.precision](program)
    program.compile(mgx.get_target(settings.target or mgx.best_target()))
    return program


def _tensor_shape(name: str, shape: Any) -> Shape:
    if not isinstance(shape, Shape):
        raise mgx.UnsupportedError(f"{name!r} is not a tensor, and only tensors can be served: {shape}")
    return shape


def _tensor(what: str, name: str, shape: Shape) -> Tensor:
    dims = tuple(d if isinstance(d, int) else OPEN for d in shape.dims)
    try:
        return Tensor(name, datatype_of(shape.dtype.numpy), dims)
    except BadRequest as error:
        raise mgx.UnsupportedError(f"{what} {name!r}: {error}") from None


def _stated(what: str, found: Sequence[Tensor], stated: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the model's tensors, with open extents replaced by those in the settings.

    Errors: ParameterError if the settings do not match the model.
    """
    known = {t.name: t for t in found}
    for tensor in stated:
        if tensor.name not in known:
            raise mgx.ParameterError(
                f"the settings state an {what} {tensor.name!r}; the model has {', '.join(known) or 'none'}"
            )
        own, extents = known[tensor.name], tensor.shape if tensor.inner is None else tensor.inner
        fits = own.datatype == tensor.datatype and len(own.shape) == len(extents)
        if not fits or any(a != b and OPEN not in (a, b) for a, b in zip(own.shape, extents, strict=True)):
            given = tensor if tensor.inner is None else f"{tensor} reshaped to {list(extents)}"
            raise mgx.ParameterError(f"{what} {tensor.name!r}: the settings state {given}, the model has {own}")
        dims = tuple(b if a == OPEN else a for a, b in zip(own.shape, extents, strict=True))
        known[tensor.name] = tensor if tensor.inner is not None else Tensor(own.name, own.datatype, dims)
    return tuple(known.values())


def _keeps_rows(tensor: Tensor) -> bool:
    """Returns True if requests keep the tensor's first axis, so that they can be batched along it."""
    return tensor.inner is None or tensor.shape[:1] == tensor.inner[:1] == (OPEN,)


def _one_batch(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bool:
    """Returns True if the first axis of every input and output is the same symbol, and no other axis depends on it."""
    shapes = [*inputs, *outputs]
    if not inputs or any(not s.rank for s in shapes):
        return False
    batch = shapes[0].dims[0]
    if isinstance(batch, int):
        return False
    return all(s.dims[0] == batch for s in shapes) and not any(d == batch for s in shapes for d in s.dims[1:])
