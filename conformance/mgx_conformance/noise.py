"""Tolerances of whole programs, by Monte Carlo simulation of rounding errors.

The unoptimized program is interpreted several times; each rounded result is perturbed by up to the error that its op may add
(`accuracy.local_error`).  The spread of the final results bounds the effect of rounding, in whatever order a target computes;
elements that depend on a discontinuity (a comparison, a floor) get a wide tolerance, others do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import MgxError, Operation, Shape, dtype
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module, nested
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Add, Div, Mul, Sub
from mgx_core.ops.scalar import widen
from mgx_core.rules.decomposition import decomposed as parts_of
from mgx_core.types.argument import shape_of

from .accuracy import local_error, magnitudes
from .compare import flat
from .primitive_errors import SAFETY
from .rounding import deviation, finite_magnitude, rounding, smallest
from .spread import internal_spread

__all__ = ["Expected", "decomposed", "expected", "spread_of_parts"]

SAMPLES: Final = 4
NARROW: Final = frozenset({dtype.float16, dtype.bfloat16})
NUMPY: Final = frozenset(t.numpy for t in NARROW)


def decomposed(op: Operation, args: Sequence[Any], modules: Sequence[Module] = ()) -> Module | None:
    """Returns the decomposition of an op for these arguments as a module; None if it has none."""
    found = parts_of(op, [None if a is None else shape_of(a) for a in args], modules)
    return found if isinstance(found, Module) else None


def spread_of_parts(op: Operation, args: Sequence[Any], result: Any, rng: np.random.Generator) -> Any:
    """Returns the deviation between an op and its decomposition with every part rounded; None if it has none."""
    module = decomposed(op, args)
    if module is None or not isinstance(result, np.ndarray):
        return None
    given = [a for a in args if a is not None]
    spread = np.zeros(result.shape)
    for n in range(SAMPLES):  # a target may decompose the parts further
        (sample,) = Noisy(rng, parts=n % 2).run(module, given)
        if np.shape(sample) != result.shape:
            return None
        spread = np.maximum(spread, deviation(result, sample))
    return spread


class Noisy(Interpreter):
    """An interpreter that perturbs each result by a random fraction of its permitted error.

    parts: the fraction of decomposable ops that are decomposed, recursively.
    """

    def __init__(self, rng: np.random.Generator, parts: float = 0.5) -> None:
        super().__init__()
        self.rng = rng
        self.parts = parts

    def step(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> Any:
        value = super().step(ins, values, known)
        if ins.op.control:
            return value  # their modules are interpreted by this interpreter too
        op = ins.op.substitute(known) if known else ins.op
        args = [None if i.is_absent else values[i] for i in ins.inputs]
        if self.parts and isinstance(value, np.ndarray) and self.rng.random() < self.parts:
            module = decomposed(op, args, ins.modules)
            if module is not None:
                (sample,) = Noisy(self.rng, self.parts).run(module, [a for a in args if a is not None])
                return sample if np.shape(sample) == value.shape and sample.dtype == value.dtype else value
        if ins.modules and ins.op.takes_modules:
            return value
        errors = [error_of(op, args, v, self.rng) for v in flat(value)]
        terms = magnitudes(op, args) if errors[0] is not None and meets_factor(ins) else None
        if terms is not None:
            errors[0] = errors[0] + rounding(dtype.of(value.dtype)) * terms
        moved = [self._moved(v, e) for v, e in zip(flat(value), errors, strict=True)]
        return tuple(moved) if isinstance(value, tuple) else moved[0]

    def _moved(self, value: Any, error: Any) -> Any:
        if error is None:
            return value
        wide = widen(value)
        with np.errstate(all="ignore"):
            return (wide + error * self.rng.uniform(-1, 1, wide.shape)).astype(value.dtype)


class Wide(Interpreter):
    """An interpreter that keeps narrow floats in float32 without rounding, as targets may do between ops."""

    def step(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> Any:
        for i in ins.inputs:
            if not i.is_absent:
                values[i] = _unrounded(values[i])
        op = ins.op
        if isinstance(op, Convert) and op.target_type in NARROW and values[ins.inputs[0]].dtype.kind == "f":
            return values[ins.inputs[0]].astype(np.float32)
        return _unrounded(super().step(ins, values, known))


def _unrounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unrounded, value))
    narrow = isinstance(value, np.ndarray) and value.dtype in NUMPY
    return value.astype(np.float32) if narrow else value


def meets_factor(ins: Instruction) -> bool:
    """Returns True for a product with constant weights that may be multiplied by a constant factor, which rounds each once more.

    The factor scales the result or the other operand, possibly through sums and ops that move elements.
    """
    if not isinstance(ins.op, (Dot, Convolution)) or not any(map(_constant, ins.inputs)):
        return False
    after = list(ins.users)
    for user in after:
        if _scales(user):
            return True
        after += user.users if _passes_factors(user) else ()
    before = [i for i in ins.inputs if not _constant(i)]
    for operand in before:
        if _scales(operand):
            return True
        before += operand.inputs if _passes_factors(operand) else ()
    return False


def _constant(ins: Instruction) -> bool:
    return ins.is_literal or (ins.op.moves and bool(ins.inputs) and all(map(_constant, ins.inputs)))


def _scales(ins: Instruction) -> bool:
    return isinstance(ins.op, (Mul, Div)) and any(map(_constant, ins.inputs))


def _passes_factors(ins: Instruction) -> bool:
    return ins.op.moves or isinstance(ins.op, (Add, Sub))


def error_of(op: Operation, args: Sequence[Any], value: Any, rng: np.random.Generator) -> Any:
    """Returns the error that one op may add: its own rounding and, for scalar expressions, internal roundings."""
    error = local_error(op, args, value)
    inside = None if error is None else internal_spread(op, args, rng)
    return error if inside is None or np.shape(inside) != np.shape(error) else error + inside


class Expected:
    """The reference results of a program and their tolerances (None: must be identical)."""

    def __init__(self, results: list[Any], tolerances: list[Any]) -> None:
        self.results = results
        self.tolerances = tolerances

    def vacuous(self) -> bool:
        """Returns True if more than half of a result's elements are unconstrained."""
        return any(t is not None and np.size(t) and np.mean(~np.isfinite(t)) > 0.5 for t in self.tolerances)


def expected(module: Module, args: Sequence[Any], seed: int = 0, samples: int = SAMPLES) -> Expected:
    """Computes the expected results of a module for parameter values in order."""
    with np.errstate(all="ignore"):
        results = Interpreter().run(module, args)
        spreads: list[Any] = [np.zeros(np.shape(r)) if isinstance(r, np.ndarray) else None for r in results]
        runs: list[Interpreter] = [Noisy(np.random.default_rng((seed, n))) for n in range(samples)]
        if any(i.result.dtype in NARROW for m in nested(module) for i in m if isinstance(i.result, Shape)):
            runs.append(Wide())
        for interpreter in runs:
            try:
                sample = interpreter.run(module, args)
            except MgxError:
                if isinstance(interpreter, Wide):
                    continue  # an op that requires the narrow type
                raise
            for i, (a, b) in enumerate(zip(results, sample, strict=True)):
                if spreads[i] is None:
                    continue
                if np.shape(a) != np.shape(b):
                    spreads[i] = np.full(np.shape(a), np.inf)
                else:
                    spreads[i] = np.maximum(spreads[i], deviation(a, b))
    return Expected(results, [_tolerance(r, s) for r, s in zip(results, spreads, strict=True)])


def _tolerance(result: Any, spread: Any) -> Any:
    if spread is None or result.dtype == object:
        return None
    kind = dtype.of(result.dtype)
    if kind.kind in "fc":
        return SAFETY * spread + 2 * rounding(kind) * finite_magnitude(result) + smallest(kind)
    return SAFETY * spread if np.any(spread) else None
