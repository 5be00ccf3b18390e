"""One version of a model: what it takes and gives, and how it is run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import MgxError, Program, Shape

from .errors import BadRequest, Internal
from .settings import ModelSettings
from .tensors import Array, datatype_of

__all__ = ["Model", "Tensor"]

OPEN = -1  # an extent that varies, in the protocol


@dataclass(frozen=True)
class Tensor:
    """An input or output: name, the protocol's element type, extents of which those that vary are -1."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Model:
    """A compiled program with the protocol's view of its inputs and outputs.  Several threads may run it.

    Errors: MgxError if the file cannot be read or compiled.
    """

    def __init__(self, name: str, version: str, path: Path, settings: ModelSettings) -> None:
        self.name, self.version, self.path, self.settings = name, version, path, settings
        self._program = program = _compiled(path, settings)
        shapes = {n: _tensor_shape(n, s) for n, s in program.get_parameter_shapes().items()}
        self.inputs = [Tensor(n, datatype_of(s.dtype.numpy), _extents(s)) for n, s in shapes.items()]
        results = [
            _tensor_shape(n, s) for n, s in zip(program.get_output_names(), program.get_output_shapes(), strict=True)
        ]
        names = program.get_output_names()
        self.outputs = [Tensor(n, datatype_of(s.dtype.numpy), _extents(s)) for n, s in zip(names, results, strict=True)]
        self.batches = settings.max_batch > 1 and _one_batch([*shapes.values()], results)
        self._named = {t.name: t for t in self.inputs}
        self._lock = threading.Lock()

    @property
    def target(self) -> str:
        executable = self._program.executable
        assert executable is not None
        return executable.target.name

    def check(self, feeds: Mapping[str, Array]) -> None:
        """Errors: BadRequest if names, element types or extents do not fit."""
        for name, value in feeds.items():
            if name not in self._named:
                raise BadRequest(
                    f"model {self.name!r} has no input {name!r}; it has {', '.join(self._named) or 'none'}"
                )
            wanted = self._named[name]
            fits = len(value.shape) == len(wanted.shape) and all(
                w in (OPEN, n) for w, n in zip(wanted.shape, value.shape, strict=True)
            )
            if datatype_of(value.dtype) != wanted.datatype or not fits:
                raise BadRequest(
                    f"input {name!r} of model {self.name!r}: {wanted.datatype}{list(wanted.shape)} is required, "
                    f"got {datatype_of(value.dtype)}{list(value.shape)}"
                )
        for name, tensor in self._named.items():
            if name not in feeds:
                raise BadRequest(f"model {self.name!r} requires input {name!r} ({tensor.datatype}{list(tensor.shape)})")

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in order.  Errors: BadRequest where the values do not fit; Internal where the run fails."""
        try:
            return [np.asarray(r) for r in self._program.run(dict(feeds))]
        except mgx.ParameterError as error:
            raise BadRequest(str(error)) from error
        except MgxError as error:
            raise Internal(f"model {self.name!r} failed: {error}") from error


def _compiled(path: Path, settings: ModelSettings) -> Program:
    if path.suffix == ".mxr":
        program = mgx.load(path)
        if program.is_compiled():
            return program
    else:
        program = mgx.parse(path)
    if settings.precision:
        {"fp16": mgx.quantize_fp16, "bf16": mgx.quantize_bf16}[settings.precision](program)
    program.compile(mgx.get_target(settings.target or mgx.best_target()))
    return program


def _tensor_shape(name: str, shape: Any) -> Shape:
    if not isinstance(shape, Shape):
        raise mgx.UnsupportedError(f"{name!r} is no tensor, and only tensors can be served: {shape}")
    return shape


def _extents(shape: Shape) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else OPEN for d in shape.dims)


def _one_batch(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bool:
    """True if the first axis of every input and output has the same unknown extent, which no other axis depends on."""
    shapes = [*inputs, *outputs]
    if not inputs or any(not s.rank for s in shapes):
        return False
    batch = shapes[0].dims[0]
    if isinstance(batch, int):
        return False
    return all(s.dims[0] == batch for s in shapes) and not any(d == batch for s in shapes for d in s.dims[1:])
