"""Runs programs with another batch size than declared."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

from mgx_core import Argument, Executable, Instruction, MgxError, Module, ParameterError, Pointwise, Program, Shape
from mgx_core.cache import Recent
from mgx_core.ir.graph import Graph
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.reshape import Reshape
from mgx_core.types.argument import as_argument

__all__ = ["Rebatched", "Rebuilt"]

KEPT = 16  # maximum number of cached programs


class Rebatched:
    """A compiled program that is recompiled for other batch sizes on demand.

    All shapes are inferred again from parameters with the new first extent.  A recompiled program is used only if the results
    differ from the original's in the first extent alone.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._made: Recent[Executable] = Recent(KEPT)
        self._compiling = Lock()

    def run(self, params: Mapping[str, Any], error: ParameterError) -> list[Argument]:
        """Errors: `error` with advice, if parameters differ in more than the batch size, or the program does not permit it."""
        batch = self._batch(params)
        if batch is None:
            raise error
        return self._executable(batch, error).run(params)

    def _executable(self, batch: int, error: ParameterError) -> Executable:
        """Returns the program for a batch size; concurrent callers wait while it is compiled once."""
        found = self._made.get(batch)
        if found is not None:
            return found
        with self._compiling:
            try:
                return self._made.get(batch) or self._made.put(batch, self._compiled(batch))
            except MgxError as reason:
                raise ParameterError(
                    f"{error}; the program does not support a batch size of {batch} ({reason}): "
                    "parse the model with an open batch, parse_onnx(..., default_dyn_dim_value=shape.dynamic_dimension(1, 64))"
                ) from None

    def _batch(self, params: Mapping[str, Any]) -> int | None:
        """Returns the first extent of all given parameters, if they differ from the declared ones only there; else None."""
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
        old = {s.dims[0] for s in shapes.values()}
        if len(old) != 1:
            raise ParameterError("its parameters have different first extents")
        changed = Rebuilt(int(old.pop()), batch).program(self.program)
        for before, after in zip(self.program.get_output_shapes(), changed.get_output_shapes(), strict=True):
            if not isinstance(before, Shape) or not isinstance(after, Shape) or not before.rank:
                raise ParameterError("its results have no batch axis")
            if after.dims != (batch, *before.dims[1:]):
                raise ParameterError(f"its result {before} would become {after}")
        executable = self.program.executable
        assert executable is not None
        changed.compile(executable.context, executable.options)
        assert changed.executable is not None
        return changed.executable


class Rebuilt:
    """Rebuilds a program with another first extent of its parameters.

    Static extents in op attributes are changed where they represent the batch: the first extent of a reshape whose operand's
    first extent was the batch, and the first extent of a broadcast of a value that does not depend on the parameters.
    """

    def __init__(self, old: int, batch: int) -> None:
        self.old = old
        self.batch = batch
        self.main = Module("main")

    def program(self, program: Program) -> Program:
        """Errors: ParameterError for control flow; ShapeError if extents do not fit."""
        main = program.get_main_module()
        went = {}
        for name, parameter in main.parameters.items():
            shape = parameter.shape
            went[parameter] = self.main.add_parameter(name, shape.with_dims((self.batch, *shape.dims[1:])))
        self.main.add_return(self._body(main, went))
        return Program(Graph(self.main), program.get_output_names())

    def _body(self, module: Module, went: dict[Instruction, Instruction]) -> list[Instruction]:
        for ins in module:
            if ins in went or ins.is_return:
                continue
            if ins.literal is not None:
                went[ins] = self.main.add_literal(ins.literal)
            elif ins.is_absent:
                went[ins] = self.main.add_absent()
            elif ins.op.fused and len(ins.modules) == 1 and len(ins.modules[0].outputs) == 1:
                inner = dict(zip(ins.modules[0].parameters.values(), (went[i] for i in ins.inputs), strict=True))
                (went[ins],) = self._body(ins.modules[0], inner)
            elif ins.modules:
                raise ParameterError(f"{ins!r} contains modules")
            else:
                went[ins] = self._step(ins, [went[i] for i in ins.inputs])
        return [went[o] for o in module.outputs]

    def _step(self, ins: Instruction, inputs: list[Instruction]) -> Instruction:
        op = ins.op
        first = isinstance(ins.result, Shape) and ins.result.rank and ins.result.dims[0] == self.old
        follows = bool(inputs) and isinstance(inputs[0].result, Shape) and inputs[0].result.dims[:1] == (self.batch,)
        if isinstance(op, Reshape) and first and follows and op.dims[0] == self.old:
            op = op.replace(dims=(self.batch, *op.dims[1:]))
        elif isinstance(op, (Multibroadcast, Broadcast)) and first and follows and op.out_lens:
            op = op.replace(out_lens=(self.batch, *op.out_lens[1:]))
        elif isinstance(op, Pointwise) and first:
            inputs = [self._spread(i) for i in inputs] if any(self._wide(i) for i in inputs) else inputs
        return self.main.add(op, *inputs, sources=ins.sources)

    def _wide(self, ins: Instruction) -> bool:
        return ins.shape.dims[0] == self.batch

    def _spread(self, ins: Instruction) -> Instruction:
        """Broadcasts a constant operand to the new extents."""
        if self._wide(ins) or ins.shape.dims[0] != self.old:
            return ins
        if isinstance(ins.op, (Multibroadcast, Broadcast)):
            return self.main.add(ins.op.replace(out_lens=(self.batch, *ins.shape.dims[1:])), *ins.inputs)
        return self.main.add(Multibroadcast(out_lens=(self.batch, *ins.shape.dims[1:])), ins)
