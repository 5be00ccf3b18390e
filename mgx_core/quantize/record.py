"""Record of a quantization: what became of each product, and what that costs and gains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..records import dataclass
from .config import Quantizable
from .layer import Layer
from .page import page

__all__ = ["QuantizeReport", "emptied"]

RUNS = 10  # that are timed


@dataclass
class QuantizeReport:
    """Record of a quantization, layer by layer; filled by `quantize`.

    accuracy: of the program before and after, where a metric was given; bytes: of its constants before and after; seconds: of a
    run before and after, where `time` was called.
    """

    layers: list[Layer] = field(default_factory=list)
    accuracy: tuple[float, float] | None = None
    bytes: tuple[int, int] = (0, 0)
    seconds: tuple[float, float] | None = None

    def time(self, before: Quantizable, after: Quantizable, target: Any, inputs: Mapping[str, Any]) -> None:
        """Measures a run of two programs, call by call, each compiled for the target; fills `seconds` with medians."""
        found: tuple[list[float], list[float]] = [], []
        copies = [p.clone() for p in (before, after)]
        for one in copies:
            one.compile(target)
            one.run(inputs)
        for _ in range(RUNS):
            for one, times in zip(copies, found, strict=True):
                begin = time.perf_counter()
                one.run(inputs)
                times.append(time.perf_counter() - begin)
        self.seconds = statistics.median(found[0]), statistics.median(found[1])

    def facts(self) -> list[str]:
        """Returns lines about the program as a whole."""
        lines = [f"constants: {self.bytes[0]} bytes before, {self.bytes[1]} after"]
        if self.seconds is not None:
            lines.append(f"a run: {self.seconds[0] * 1e3:.3g} ms before, {self.seconds[1] * 1e3:.3g} ms after")
        if self.accuracy is not None:
            lines.append(f"accuracy: {self.accuracy[0]:.6g} before, {self.accuracy[1]:.6g} after")
        return lines

    def text(self) -> str:
        """Returns a table for the terminal."""
        lines = [
            f"{'layer':40} {'op':12} {'low':>10} {'high':>10} {'input dB':>8} {'weight dB':>9}  smoothed  left in float because"
        ]
        lines += [
            f"{x.name[:40]:40} {x.op:12} {x.low:10.4g} {x.high:10.4g} {x.input_noise:8.1f} {x.noise:9.1f}  "
            f"{'yes' if x.smoothed else '':8}  {x.kept}"
            for x in self.layers
        ]
        return "\n".join([*lines, *self.facts()])

    def html(self) -> str:
        """Returns the same as a page, with histograms."""
        return page(self.facts(), self.layers)


def emptied(report: QuantizeReport | None) -> QuantizeReport:
    """Returns a report to fill: the given one, without what an earlier quantization left there, or a new one."""
    if report is None:
        return QuantizeReport()
    report.layers.clear()
    report.accuracy, report.bytes, report.seconds = None, (0, 0), None
    return report
