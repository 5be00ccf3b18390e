"""Searches for products to keep in float: those that cost accuracy, and those that are not faster when quantized."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from math import inf, isnan
from typing import Any, Final

from ..ir.instruction import Instruction
from ..log import log
from ..records import dataclass
from .config import Metric, Quantizable, QuantizeConfig
from .quantize_products import quantize_products
from .ranges import Observer
from .record import QuantizeReport

__all__ = ["Trials", "leave_inaccurate", "leave_slow"]

RUNS: Final = 20  # consecutive runs
ROUNDS: Final = 3
LEAD: Final = 0.99  # ratio below which a program counts as faster


@dataclass
class Trials:
    """Compiles variants of a program for a target with some products kept in float.

    products: all, with the reason why one is not a candidate (else empty); seen: statistics of their operands.
    """

    program: Quantizable
    config: QuantizeConfig
    report: QuantizeReport
    target: Any
    seen: Mapping[Instruction, Observer]
    products: list[tuple[Instruction, str]]

    @property
    def candidates(self) -> list[int]:
        return [n for n, layer in enumerate(self.report.layers) if not layer.kept]

    def without(self, left: Iterable[int]) -> Any:
        """Returns the program with all candidates quantized except these."""
        main = self.program.get_main_module()
        place = {ins: n for n, ins in enumerate(main)}
        copy = self.program.clone()
        twins = list(copy.get_main_module())
        out = set(left)
        layers = [replace(x, kept=x.kept or ("left out" if n in out else "")) for n, x in enumerate(self.report.layers)]
        moved = {twins[place[t]]: o for t, o in self.seen.items()}
        products = [(twins[place[i]], why) for i, why in self.products]
        quantize_products(copy, self.config, QuantizeReport(layers), moved, products)
        copy.compile(self.target)
        return copy


def leave_inaccurate(trials: Trials, accuracy: Metric, budget: float) -> None:
    """Keeps the most sensitive products in float, as few as a bisection finds for the budget; fills the report."""

    def tried(left: Iterable[int]) -> float:
        reached = float(accuracy(trials.without(left)))
        return -inf if isnan(reached) else reached

    open_ones = trials.candidates
    original = trials.program.clone()
    original.compile(trials.target)
    base = float(accuracy(original))
    reached = tried([])
    left: list[int] = []
    if not base - reached <= budget:
        alone = {n: tried(m for m in open_ones if m != n) for n in open_ones}
        order = sorted(open_ones, key=lambda n: alone[n])
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if base - tried(order[:middle]) <= budget:
                high = middle
            else:
                low = middle + 1
        left = order[:high]
        reached = tried(left)
    for n in left:
        trials.report.layers[n].kept = f"quantizing only this product reduces accuracy by {base - alone[n]:.4g}"
    trials.report.accuracy = base, reached


def leave_slow(trials: Trials, inputs: Mapping[str, Any]) -> None:
    """Keeps kinds of products in float while that makes the program faster, and all if no variant is faster than float.

    Products of one kind have the same op and extents.  Whole programs are timed, because quantization costs launches elsewhere.
    """
    kinds: dict[Hashable, list[int]] = {}
    for n in trials.candidates:
        ins = trials.products[n][0]
        kinds.setdefault((ins.op, *(i.shape.dims for i in ins.inputs[:2])), []).append(n)
    original = trials.program.clone()
    original.compile(trials.target)
    base = seconds(original, inputs)
    left: list[int] = []
    least = seconds(trials.without(left), inputs)
    for kind in sorted(kinds.values(), key=len, reverse=True):
        now = seconds(trials.without([*left, *kind]), inputs)
        log.info("without %s: %.4g ms, with it %.4g", trials.report.layers[kind[0]].name, now * 1e3, least * 1e3)
        if now < least * LEAD:
            left, least = [*left, *kind], now
    if least > base * LEAD:
        left = trials.candidates
        why = f"no selection of products is faster than the program in float ({base * 1e3:.3g} ms)"
    else:
        why = "the program is faster with products of this shape in float"
    for n in left:
        trials.report.layers[n].kept = why
    trials.report.seconds = base, min(least, base)


def seconds(program: Any, inputs: Mapping[str, Any]) -> float:
    """Returns the seconds of a run, the minimum over rounds of consecutive runs; device time for targets with a device."""
    executable = program.executable
    values = executable.bind({n: v for n, v in inputs.items() if n in program.get_parameter_shapes()})
    runner = executable.instance(values).runner
    return float(min(runner.seconds(values, RUNS) for _ in range(ROUNDS)))
