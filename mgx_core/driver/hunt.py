"""Finding the instruction that goes wrong: prefixes of a program, and instructions on their own, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.interpreter import Interpreter, bind_symbols
from ..ir.module import nested
from ..types import dtype as dt
from ..types.argument import Argument
from ..types.shape import AnyShape, Shape
from .accuracy import Difference, Tolerance, compare
from .edit import prefix, steps

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from ..program import Program
    from ..run.executable import Executable

__all__ = ["Hunt"]


def _doubled(value: Any) -> Any:
    """A float tensor in 64 bits; others as they are."""
    if isinstance(value, np.ndarray) and value.dtype != object and dt.of(value.dtype).is_float:
        return value.astype(np.float64)
    return value


def _rounded(value: Any, shape: AnyShape) -> Any:
    """A tensor in the element type that it has in the program."""
    if isinstance(value, np.ndarray) and isinstance(shape, Shape) and shape.dtype.is_float:
        return value.astype(shape.dtype.numpy)
    return value


class Hunt:
    """One program on one set of inputs: the reference's value of every instruction, and the target's where asked.

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

        reference = module.clone() if double else module
        ours = dict(zip(reference, module, strict=True))

        def note(ins: Instruction, value: Any) -> None:
            known = ours.get(ins)
            if known is not None and known in own:
                self._gold[known] = _rounded(value, known.result) if double else value
                bind_symbols(known.result, value, self._symbols)

        given = [self._gold[p] for p in module.parameters.values()]
        if double:
            given = list(map(_doubled, given))
            for ins in (i for m in nested(reference) for i in m):
                if ins.literal is not None:
                    ins.literal = Argument.from_value(_doubled(ins.literal.value), ins.literal.shape)
        found = Interpreter(note).run(reference, given)
        self._results = [_rounded(v, o.result) for v, o in zip(found, module.outputs, strict=True)] if double else found

    def results(self) -> list[Any]:
        """Results of the whole program on the reference."""
        return self._results

    def gold(self, ins: Instruction) -> Any:
        """The reference's value of an instruction of the main module."""
        return ins.literal.value if ins.literal is not None else self._gold[ins]

    def prefix(self, count: int) -> Difference:
        """The program cut after `count` steps: the first of its results that differs, or the last."""
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
        """The position of the first step with which a prefix differs; None if the whole program does not."""
        low, high = 0, len(self.steps)  # the first `low` steps are right, the first `high` differ
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
        """One step on the reference's inputs; with the reason, if it was skipped."""
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
