"""How far the results of a whole program may lie from the definition: its rounding errors drawn at random, several times.

The program is interpreted as it was written, unoptimised; each rounded result is moved by up to the error that its op may add
(`accuracy.local_error`).  What the results spread is what rounding, however a target orders it, may do to them; places
where it decides (a comparison, a floor) show as wide spreads there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import dtype
from mgx_core.interpret import Interpreter
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.module import Module
from mgx_core.scalar import widen

from .accuracy import SAFETY, deviation, finite_magnitude, local_error, rounding, smallest
from .compare import flat

__all__ = ["Expected", "expected"]

SAMPLES: Final = 4


class Noisy(Interpreter):
    """An interpreter whose results are each off by a random part of their rounding error."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng

    def step(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> Any:
        value = super().step(ins, values, known)
        if getattr(ins.op, "control", False) or (ins.modules and ins.op.takes_modules):
            return value  # their modules are interpreted by this interpreter too
        op = ins.op.substitute(known) if known else ins.op
        args = [None if i.is_absent else values[i] for i in ins.inputs]
        moved = [self._moved(v, local_error(op, args, v)) for v in flat(value)]
        return tuple(moved) if isinstance(value, tuple) else moved[0]

    def _moved(self, value: Any, error: Any) -> Any:
        if error is None:
            return value
        wide = widen(value)
        with np.errstate(all="ignore"):
            return (wide + error * self.rng.uniform(-1, 1, wide.shape)).astype(value.dtype)


class Expected:
    """The results of a program by definition, and by how much each may differ (None: not at all)."""

    def __init__(self, results: list[Any], tolerances: list[Any]) -> None:
        self.results = results
        self.tolerances = tolerances

    def vacuous(self) -> bool:
        """Whether a result may be anything at more than half of its places."""
        return any(t is not None and np.size(t) and np.mean(~np.isfinite(t)) > 0.5 for t in self.tolerances)


def expected(module: Module, args: Sequence[Any], seed: int = 0, samples: int = SAMPLES) -> Expected:
    """What a module must give for some values of its parameters in order."""
    with np.errstate(all="ignore"):
        results = Interpreter().run(module, args)
        spreads = [np.zeros(np.shape(r)) if isinstance(r, np.ndarray) else None for r in results]
        for n in range(samples):
            sample = Noisy(np.random.default_rng((seed, n))).run(module, args)
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
