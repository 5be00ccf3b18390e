"""Runs of a program with another first extent than it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgx_core import Argument, Executable, MgxError, ParameterError, Program, Shape
from mgx_core.extents import with_extents
from mgx_core.types.argument import as_argument

__all__ = ["Rebatched"]

KEPT = 16  # batch sizes whose compiled programs are kept


class Rebatched:
    """A compiled program, compiled again for each batch size that comes.

    The shapes of all instructions are inferred again from parameters with the new first extent; a program is used only where
    its results have the new extent, and nothing else, changed.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._made: dict[int, Executable] = {}

    def run(self, params: Mapping[str, Any], error: ParameterError) -> list[Argument]:
        """Errors: `error`, with what to do, where the parameters differ in more, or the program does not allow it."""
        batch = self._batch(params)
        if batch is None:
            raise error
        executable = self._made.get(batch)
        if executable is None:
            try:
                executable = self._compiled(batch)
            except MgxError as reason:
                raise ParameterError(
                    f"{error}; the program cannot take batches of {batch} ({reason}): parse the model with an open batch, "
                    "parse_onnx(..., default_dyn_dim_value=shape.dynamic_dimension(1, 64))"
                ) from None
            if len(self._made) >= KEPT:
                self._made.pop(next(iter(self._made)))
            self._made[batch] = executable
        return executable.run(params)

    def _batch(self, params: Mapping[str, Any]) -> int | None:
        """The first extent of all parameters that are given, if that alone differs; None otherwise."""
        found = set()
        for name, declared in self.program.get_parameter_shapes().items():
            if name not in params:
                return None
            given = as_argument(params[name]).shape
            if not isinstance(given, Shape) or not isinstance(declared, Shape) or declared.dynamic():
                return None
            if given.dtype is not declared.dtype or not given.rank or given.dims[1:] != declared.dims[1:]:
                return None
            found.add(given.dims[0])
        batch = found.pop() if len(found) == 1 else None
        return batch if isinstance(batch, int) else None

    def _compiled(self, batch: int) -> Executable:
        shapes = {n: s for n, s in self.program.get_parameter_shapes().items() if isinstance(s, Shape)}
        changed = with_extents(self.program, map_input_dims={n: [batch, *s.dims[1:]] for n, s in shapes.items()})
        old = {s.dims[0] for s in shapes.values()}
        for before, after in zip(self.program.get_output_shapes(), changed.get_output_shapes(), strict=True):
            if not isinstance(before, Shape) or not isinstance(after, Shape) or before.rank == 0 or len(old) > 1:
                raise ParameterError("its results have no batch axis")
            if after.dims != (batch, *before.dims[1:]) or before.dims[0] not in old:
                raise ParameterError(f"its result {before} would become {after}")
        executable = self.program.executable
        assert executable is not None
        changed.compile(executable.context, executable.options)
        assert changed.executable is not None
        return changed.executable
