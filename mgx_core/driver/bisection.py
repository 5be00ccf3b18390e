"""Locates the instruction with wrong results, by comparing prefixes or single instructions with the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.interpreter import Interpreter
from ..ir.module import nested
from ..types import dtype as dt
from ..types.argument import Argument
from ..types.shape import AnyShape, Shape
from ..types.symbol_binding import bind_symbols
from .accuracy import Difference, Tolerance, compare
from .choices import Following, chooses
from .edit import prefix, steps

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from ..ir.module import Module
    from ..program import Program
    from ..run.executable import Executable

__all__ = ["Bisection"]


def _doubled(value: Any) -> Any:
    """Returns a float tensor as float64, others unchanged."""
    if isinstance(value, np.ndarray) and value.dtype != object and dt.of(value.dtype).is_float:
        return value.astype(np.float64)
    return value


def _rounded(value: Any, shape: AnyShape) -> Any:
    """Returns a tensor in the element type that it has in the program."""
    if isinstance(value, np.ndarray) and isinstance(shape, Shape) and shape.dtype.is_float:
        return value.astype(shape.dtype.numpy)
    return value


def _values(executable: Executable, values: Mapping[str, Any]) -> list[Any]:
    """Returns results in host memory."""
    return [a.copy().value if a.on_device else a.value for a in executable.run(values)]


class Bisection:
    """A program and its inputs, with reference values of all instructions, compared with a target's values.

    compile: makes the executable of a program on the target under test; double: the reference computes narrower floats in
    64 bits, and rounds what is compared.
    """

    def __init__(
        self,
        program: Program,
        values: Mapping[str, Any],
        tolerance: Tolerance,
        compile: Callable[[Program], Executable],
        double: bool = False,
    ) -> None:
        from ..run.binding import as_parameter

        self.program = program
        self.values = dict(values)
        self.tolerance = tolerance
        self.compile = compile
        module = program.get_main_module()
        self.steps: list[Instruction] = steps(module)
        own = set(self.steps)
        self._gold: dict[Instruction, Any] = {}
        for name, ins in module.parameters.items():
            self._gold[ins] = as_parameter(name, self.values[name], ins.result)

        self._symbols: dict[str, int] = {}
        for ins, value in self._gold.items():
            bind_symbols(ins.result, value, self._symbols)

        self._double = double
        reference = self._reference()
        ours = dict(zip(reference, module, strict=True))

        def note(ins: Instruction, value: Any) -> None:
            known = ours.get(ins)
            if known is not None and known in own:
                self._gold[known] = _rounded(value, known.result) if double else value
                bind_symbols(known.result, value, self._symbols)

        self._results = self._run(Interpreter(note), reference)

    def _reference(self) -> Module:
        """Returns the module that the reference runs: the program's, or a copy that computes in 64 bits."""
        module = self.program.get_main_module()
        if not self._double:
            return module
        wide = module.clone()
        for ins in (i for m in nested(wide) for i in m):
            if ins.literal is not None:
                ins.literal = Argument.from_value(_doubled(ins.literal.value), ins.literal.shape)
        return wide

    def _run(self, interpreter: Interpreter, reference: Module) -> list[Any]:
        """Returns the reference's results."""
        module = self.program.get_main_module()
        given = [self._gold[p] for p in module.parameters.values()]
        if not self._double:
            return interpreter.run(reference, given)
        found = interpreter.run(reference, list(map(_doubled, given)))
        return [_rounded(v, o.result) for v, o in zip(found, module.outputs, strict=True)]

    def results(self) -> list[Any]:
        """Returns results of the whole program on the reference."""
        return self._results

    def compared(self, executable: Executable) -> list[Difference]:
        """Compares the results of an executable with the reference's, with the target's choices if these are valid."""
        got = _values(executable, self.values)
        found = self._differences(got, self._results)
        return found if all(d.ok for d in found) else self._following(got) or found

    def _following(self, got: Sequence[Any]) -> list[Difference] | None:
        """Returns the results against those of a reference that takes the target's choices, and the choices that are wrong.

        None if the program chooses nothing, or if the target's results are others where its choices are results, too.
        """
        from ..program import Program

        at = [n for n, ins in enumerate(self.steps) if chooses(ins)]
        if not at:
            return None
        copy = self.program.clone().graph
        inside = steps(copy.main)
        copy.main.replace_return([*copy.main.outputs, *(inside[n] for n in at)])
        values = _values(self.compile(Program(copy)), self.values)
        again, choices = values[: len(got)], values[len(got) :]
        if not all(compare("", a, b, self.tolerance).ok for a, b in zip(again, got, strict=True)):
            return None
        reference = self._reference()
        theirs = steps(reference)
        following = Following({theirs[n]: value for n, value in zip(at, choices, strict=True)}, self.tolerance)
        wanted = self._run(following, reference)
        return [*following.wrong, *self._differences(got, wanted)]

    def _differences(self, got: Sequence[Any], wanted: Sequence[Any]) -> list[Difference]:
        """Returns results, and the states that the next run begins with, against those of the reference."""
        names = [*self.program.get_output_names(), *self.program.states]
        return [compare(n, a, b, self.tolerance) for n, a, b in zip(names, got, wanted, strict=True)]

    def gold(self, ins: Instruction) -> Any:
        """Returns the reference's value of an instruction of the main module."""
        return ins.literal.value if ins.literal is not None else self._gold[ins]

    def prefix(self, count: int) -> Difference:
        """Returns the program cut after `count` steps: the first of its results that differs, or the last."""
        cut, ends = prefix(self.program, count)
        got = self.compile(cut).run({n: self.values[n] for n in cut.get_parameter_names()})
        worst = Difference("", "")
        for n, result in zip(ends, got, strict=True):
            if self.steps[n].op.random:
                continue
            worst = compare(repr(self.steps[n]), result.value, self.gold(self.steps[n]), self.tolerance)
            if not worst.ok:
                break
        return worst

    def bisect(self, tell: Callable[[int, Difference], None]) -> int | None:
        """Returns the position of the first step with which a prefix differs; None if the whole program does not."""
        low, high = 0, len(self.steps)  # a prefix of `low` steps is correct, one of `high` steps differs
        whole = self.prefix(high)
        tell(high, whole)
        if whole.ok:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            found = self.prefix(middle)
            tell(middle, found)
            low, high = (middle, high) if found.ok else (low, middle)
        return high - 1

    def alone(self, index: int) -> tuple[Difference, str]:
        """Compares one step run on the reference's inputs; with the reason if it is skipped."""
        from ..ir.graph import Graph
        from ..ir.ordering import captures
        from ..program import Program

        ins = self.steps[index]
        if ins.op.random:
            return Difference(repr(ins), ""), "is random"
        if any(captures(m) for m in ins.modules):
            return Difference(repr(ins), ""), "reads values of enclosing modules from inside"
        graph = Graph()
        args: dict[Instruction, Instruction] = {}
        values: dict[str, Any] = {}
        for i in ins.inputs:
            if i in args:
                continue
            if i.is_absent:
                args[i] = graph.main.add_absent()
            elif i.literal is not None:
                args[i] = graph.main.add_literal(i.literal)
            else:
                name = f"x{len(values)}"
                args[i] = graph.main.add_parameter(name, i.result.substitute(dict(self._symbols)))
                values[name] = self.gold(i)
        symbols = dict(self._symbols)
        modules = [m.clone(symbols) for m in ins.modules]
        op = ins.op.substitute(symbols)
        made = graph.main.add(op, *(args[i] for i in ins.inputs), modules=modules, sources=ins.sources)
        graph.main.add_return([made])
        (got,) = self.compile(Program(graph)).run(values)
        return compare(repr(ins), got.value, self.gold(ins), self.tolerance), ""
