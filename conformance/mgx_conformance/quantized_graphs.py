"""Random quantized programs: ops between quantizelinear and dequantizelinear, of every narrow type and granularity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mgx_core import Program, dtype
from mgx_core.ops.quantized import Quantizelinear

from .quantized_grower import Grower

__all__ = ["QuantizedSketch", "attempt", "quantized_sketch", "units_apart"]

TRIALS: Final = 6  # evaluations with numbers perturbed by a few units in the last place
MOVED: Final = 4e-6


@dataclass
class QuantizedSketch:
    """A program of random graphs whose results are narrow, the values of its parameters, and the graph of each result."""

    program: Program
    feed: dict[str, Any]
    graphs: list[int]

    def __repr__(self) -> str:
        return self.program.text()

    def wanted(self, rng: np.random.Generator | None = None) -> list[Any]:
        """Returns the reference results; rng: every number that is quantized is perturbed by a few units in the last place."""
        main = self.program.get_main_module()
        values: dict[Any, Any] = {p: self.feed[name] for name, p in main.parameters.items()}
        for ins in main:
            if ins.is_param or ins.is_return:
                continue
            if ins.literal is not None:
                values[ins] = np.asarray(ins.literal.value)
                continue
            args: list[Any] = [None if i.is_absent else values[i] for i in ins.inputs]
            if rng is not None and isinstance(ins.op, Quantizelinear):
                noise = rng.uniform(-MOVED, MOVED, args[0].shape)
                args[0] = (args[0] * (1 + noise)).astype(args[0].dtype)
            with np.errstate(all="ignore"):
                values[ins] = ins.op.evaluate(args)
        return [values[o] for o in main.outputs]

    def wrong(self, got: Sequence[Any]) -> str:
        """Describes a result that differs from the reference by more than one unit of the last quantization; empty if none
        does.

        If numbers are half way between two units the reference may give either, there and in later ops: a result may
        additionally differ by as much as results do when the quantized numbers are perturbed by a few units in the last
        place.
        """
        right = self.wanted()
        apart = [units_apart(a, b) for a, b in zip(got, right, strict=True)]
        if all((a <= 1).all() for a in apart):
            return ""
        rng = np.random.default_rng(7)
        moved = [np.zeros(a.shape) for a in apart]
        for _ in range(TRIALS):
            for n, other in enumerate(self.wanted(rng)):
                moved[n] = np.maximum(moved[n], units_apart(other, right[n]))
        for n, (a, m) in enumerate(zip(apart, moved, strict=True)):
            far = int((a > 1 + 2 * m).sum())
            if far:
                return f"graph {self.graphs[n]}, result {n}: {far} of {a.size} are up to {a.max():g} units away"
        return ""


def attempt(target: Any, *seeds: int) -> None:
    """Compiles the graphs of some seeds as one program, since starting a kernel compiler takes long.

    Errors: AssertionError with the program if a target computes a graph wrong.
    """
    sketch = quantized_sketch(*seeds)
    compiled = sketch.program.clone()
    compiled.compile(target)
    why = sketch.wrong([r.to_numpy() for r in compiled.run(sketch.feed)])
    assert not why, f"{why}\n{sketch}"


def units_apart(a: Any, b: Any) -> Any:
    """Returns the distance between the elements of two narrow tensors, in steps of their type."""
    if dtype.of(a.dtype).is_integer:
        return np.abs(a.astype(np.int64) - b.astype(np.int64))
    bits = [np.ascontiguousarray(x).view(np.uint8).astype(np.int64) for x in (a, b)]
    places = [np.where(x & 0x80, -(x & 0x7F), x) for x in bits]
    unknown = [np.isnan(x.astype(np.float32)) for x in (a, b)]
    return np.where(unknown[0] | unknown[1], 99.0 * (unknown[0] != unknown[1]), np.abs(places[0] - places[1]))


def quantized_sketch(*seeds: int, steps: int = 5) -> QuantizedSketch:
    """Returns a program of the random graphs of some seeds; equal seeds give equal graphs."""
    made = QuantizedSketch(Program(), {}, [])
    main = made.program.get_main_module()
    outputs = []
    for seed in seeds:
        grower = Grower(np.random.default_rng(seed), main, made.feed)
        while len(grower.values) < steps + 1:
            grower.step()
        results = [grower.narrow(grower.values[-1])]
        if grower.likely(0.3):
            results.append(grower.narrow(grower.values[-2]))
        outputs += results
        made.graphs += [seed] * len(results)
    main.add_return(outputs)
    return made
