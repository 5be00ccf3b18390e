"""One version of a model: what it takes and gives, and how it is run."""

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

from .errors import BadRequest, Internal
from .extents import Buckets, Extents
from .padding import Padding
from .reasons import told
from .settings import ModelSettings
from .tensors import OPEN, Array, Lying, Tensor, datatype_of, reshaped

__all__ = ["Model", "Signature", "batch_sizes", "compiled", "source"]

log = logging.getLogger("mgx_serve")


@dataclass(frozen=True)
class Signature:
    """All that a caller has to know of one version of a model.

    timeout: seconds after which a request is given up that states no limit of its own; max_batch: rows of the runs that requests
    are joined to at most, 0 where each is run by itself.
    """

    name: str
    version: str
    target: str
    timeout: float
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch: int = 0

    def chosen(self, names: Sequence[str]) -> Sequence[int]:
        """Returns the positions of outputs, all of them if none is named.  Errors: BadRequest for a name that is none."""
        if not names:
            return range(len(self.outputs))
        known = {t.name: i for i, t in enumerate(self.outputs)}
        for name in names:
            if name not in known:
                raise BadRequest(f"model {self.name!r} has no output {name!r}; it has {', '.join(known)}")
        return [known[n] for n in names]

    def check(self, feeds: Mapping[str, Array | Lying]) -> None:
        """Errors: BadRequest if names, element types or extents do not fit."""
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

    def _refuse_unknown(self, feeds: Mapping[str, Array | Lying]) -> None:
        known = [t.name for t in self.inputs]
        for name in feeds:
            if name not in known:
                raise BadRequest(f"model {self.name!r} has no input {name!r}; it has {', '.join(known) or 'none'}")


class Model:
    """A compiled program with the protocol's view of its inputs and outputs.  Several threads may run it.

    batches: requests may be joined along the first axis; sizes: rows of the runs that they are joined to, rising;
    seconds: of a run by the shapes of the inputs, measured by `warm`; own_memory: the target copies inputs to memory of its own.
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
        """Returns the extents of a row of each output of joined requests; None where they depend on more than extents.

        rows: those of the inputs.
        """
        stated = self.signature.outputs
        if any(t.inner is not None for t in (*self.signature.inputs, *stated)):
            return None if any(OPEN in t.shape[1:] for t in stated) else [t.shape[1:] for t in stated]
        return self._extents.rows_of_outputs(self._extents.known(rows))

    def padding(self, rows: Mapping[str, Sequence[int]]) -> Padding | None:
        """Returns what requests with these extents of a row are padded with; None for those that stay as they are."""
        return None if self._buckets is None else self._buckets.padding(rows)

    def host_memory(self, size: int) -> Array:
        """Returns bytes, unset: memory from which the target copies inputs without a detour, where its driver has some."""
        try:
            found: Array = self._context.host_array(Shape("uint8", [size]))
        except MgxError as error:
            log.warning("model %s: no memory that the device reads by itself: %s", self.signature.name, error)
            found = np.empty(size, np.uint8)
        return found

    def pin(self, memory: Array) -> object | None:
        """Lets the target copy inputs from memory without a detour until what it returns is gone; None where it cannot."""
        pinned: object | None = self._context.pin(memory)
        return pinned

    def warm(self) -> None:
        """Runs the model twice for each size that will be common: to compile for it, then to measure `seconds`.

        Nothing is run where the settings say so.  Sizes that there is no memory for are left to requests.
        """
        if not self.settings.warm:
            return
        name, inputs = self.signature.name, self.signature.inputs
        for size in self.sizes or (1,):
            shapes = {t.name: (size, *t.shape[1:]) if t.shape[:1] == (OPEN,) else t.shape for t in inputs}
            if any(OPEN in shape for shape in shapes.values()) or any(t.dtype.hasobject for t in inputs):
                return  # only requests know
            try:
                given = {t.name: np.zeros(shapes[t.name], t.dtype) for t in inputs}
                every = range(len(self.signature.outputs))
                self._results(given, every)
                start = time.perf_counter()
                self._results(given, every)
                self.seconds[tuple(shapes.values())] = time.perf_counter() - start
            except MgxError as error:  # zeros may be no values that the model takes
                log.warning("model %s does not run with zeros of batch size %s: %s", name, size, error)
            except MemoryError:
                log.warning(
                    "model %s: no memory to run batch size %s; it and larger ones were not prepared", name, size
                )
                return

    def run(self, feeds: Mapping[str, Array], wanted: Sequence[int] | None = None) -> list[Array]:
        """Returns the outputs of these positions, each of them once; all outputs in order where None are given.

        A target with memory of its own keeps the others there.
        Errors: BadRequest where the values do not fit; Internal where the run fails.
        """
        outputs = self.signature.outputs
        asked = range(len(outputs)) if wanted is None else wanted
        try:
            results = [np.asarray(r) for r in self._results(feeds, asked)]
        except (mgx.ParameterError, mgx.ShapeError) as error:  # it was compiled: what does not fit are the arguments
            raise BadRequest(f"model {self.signature.name!r}: {told(error)}") from error
        except MgxError as error:
            log.exception("model %s failed", self.signature.name)
            raise Internal(f"model {self.signature.name!r} failed: {told(error)}") from error
        return [self._told(outputs[n], r) for n, r in zip(asked, results, strict=True)]

    def _told(self, tensor: Tensor, result: Array) -> Array:
        """Returns a result as requests have it.  Errors: BadRequest where it is not what the settings reshape."""
        if tensor.inner is None:
            return result
        try:
            return reshaped(result, tensor.inner, tensor.shape)
        except ValueError as error:  # the inputs decide what the model's open extents are
            raise BadRequest(
                f"output {tensor.name!r} of model {self.signature.name!r} is reshaped by its settings: {error}"
            ) from error

    def _results(self, feeds: Mapping[str, Array], wanted: Sequence[int]) -> Sequence[mgx.Argument]:
        """Returns what a run makes of a request alone: a program with states begins anew, whoever asked before."""
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
    """Returns the rows that runs may have: powers of two, half as much again, the preferred sizes, and the most.

    What is compiled depends on the extents.  With few sizes all of it is there soon, and the rows that fill a batch up to the
    next size are a third of it at most.
    """
    powers = [1 << n for n in range(most.bit_length())]
    return tuple(sorted({n for p in powers for n in (p, p + p // 2) if n <= most} | {most, *preferred}))


def source(path: Path) -> Program:
    """Returns the program of a file, compiled if the file holds it so.  Errors: MgxError."""
    return mgx.load(path) if path.suffix == ".mxr" else mgx.parse(path)


def compiled(program: Program, settings: ModelSettings) -> Program:
    """Returns the program, compiled as the settings say unless it is compiled already.  Errors: MgxError."""
    if program.is_compiled():
        return program
    if settings.precision:
        {"fp16": mgx.quantize_fp16, "bf16": mgx.quantize_bf16}[settings.precision](program)
    program.compile(mgx.get_target(settings.target or mgx.best_target()))
    return program


def _tensor_shape(name: str, shape: Any) -> Shape:
    if not isinstance(shape, Shape):
        raise mgx.UnsupportedError(f"{name!r} is no tensor, and only tensors can be served: {shape}")
    return shape


def _tensor(what: str, name: str, shape: Shape) -> Tensor:
    dims = tuple(d if isinstance(d, int) else OPEN for d in shape.dims)
    try:
        return Tensor(name, datatype_of(shape.dtype.numpy), dims)
    except BadRequest as error:
        raise mgx.UnsupportedError(f"{what} {name!r}: {error}") from None


def _stated(what: str, found: Sequence[Tensor], stated: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Returns the model's tensors with those open extents filled in that the settings state.

    Errors: ParameterError where the settings state what the model does not have.
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
    """Returns True if requests have the tensor with the model's first axis, so that they can be joined along it."""
    return tensor.inner is None or tensor.shape[:1] == tensor.inner[:1] == (OPEN,)


def _one_batch(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bool:
    """Returns True if the first axis of every input and output has the same unknown extent, which no other axis depends on."""
    shapes = [*inputs, *outputs]
    if not inputs or any(not s.rank for s in shapes):
        return False
    batch = shapes[0].dims[0]
    if isinstance(batch, int):
        return False
    return all(s.dims[0] == batch for s in shapes) and not any(d == batch for s in shapes for d in s.dims[1:])
