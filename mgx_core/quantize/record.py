"""The report of a quantization: the outcome for each product, accuracy, size and speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from typing import Any, Final

from ..records import dataclass
from .config import Quantizable

__all__ = ["Layer", "QuantizeReport", "emptied", "page"]

RUNS = 10  # timed runs


@dataclass
class Layer:
    """One product: its source, and the outcome.

    low, high: range of its left operand; noise: SQNR of its weights in dB; input_noise: SQNR of its left operand; histogram: of
    its left operand, equal bins over the observed range; smoothed: True if channel scales were migrated into the weights;
    kept: reason why it stays in float.
    """

    name: str
    op: str
    low: float = 0.0
    high: float = 0.0
    noise: float = 0.0
    input_noise: float = 0.0
    histogram: tuple[int, ...] = ()
    smoothed: bool = False
    kept: str = ""


@dataclass
class QuantizeReport:
    """The report of a quantization, per layer; filled by `quantize`.

    accuracy: before and after, if a metric was given; bytes: of constants, before and after; seconds: per run, before and after,
    if `time` was called.
    """

    layers: list[Layer] = field(default_factory=list)
    accuracy: tuple[float, float] | None = None
    bytes: tuple[int, int] = (0, 0)
    seconds: tuple[float, float] | None = None

    def time(self, before: Quantizable, after: Quantizable, target: Any, inputs: Mapping[str, Any]) -> None:
        """Times two programs, compiled for the target, in alternating runs; sets `seconds` to the medians."""
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
        """Returns the summary lines."""
        lines = [f"constants: {self.bytes[0]} bytes before, {self.bytes[1]} after"]
        if self.seconds is not None:
            lines.append(f"a run: {self.seconds[0] * 1e3:.3g} ms before, {self.seconds[1] * 1e3:.3g} ms after")
        if self.accuracy is not None:
            lines.append(f"accuracy: {self.accuracy[0]:.6g} before, {self.accuracy[1]:.6g} after")
        return lines

    def text(self) -> str:
        """Returns the report as a terminal table."""
        lines = [
            f"{'layer':40} {'op':12} {'low':>10} {'high':>10} {'input dB':>8} {'weight dB':>9}  smoothed  left in float: reason"
        ]
        lines += [
            f"{x.name[:40]:40} {x.op:12} {x.low:10.4g} {x.high:10.4g} {x.input_noise:8.1f} {x.noise:9.1f}  "
            f"{'yes' if x.smoothed else '':8}  {x.kept}"
            for x in self.layers
        ]
        return "\n".join([*lines, *self.facts()])

    def html(self) -> str:
        """Returns the report as an HTML page with histograms."""
        return page(self.facts(), self.layers)


def emptied(report: QuantizeReport | None) -> QuantizeReport:
    """Returns an empty report: the given one, cleared, or a new one."""
    if report is None:
        return QuantizeReport()
    report.layers.clear()
    report.accuracy, report.bytes, report.seconds = None, (0, 0), None
    return report


COLUMNS: Final = (
    "layer", "op", "range", "input", "SQNR of input (dB)", "SQNR of weights (dB)", "smoothed", "left in float: reason",
)  # fmt: skip
STYLE: Final = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem;color:#1c1e21;background:#fff}table{border-collapse:collapse}"
    "th,td{padding:.3rem .7rem;text-align:left;border-bottom:1px solid #ddd}td.n{text-align:right}"
    "rect{fill:#4a7ebb}@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#16181c}th,td{border-color:#333}}"
)
HEIGHT: Final = 28


def page(facts: Sequence[str], layers: Sequence[Layer]) -> str:
    """Returns a self-contained HTML page."""
    lines = "<br>".join(escape(line) for line in facts)
    head = "".join(f"<th>{escape(c)}</th>" for c in COLUMNS)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quantization</title>'
        f"<style>{STYLE}</style><h1>Quantization</h1><p>{lines}</p>"
        f"<table><tr>{head}</tr>{''.join(map(_row, layers))}</table></html>"
    )


def _row(x: Layer) -> str:
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in x.name)
    return (
        f"<tr><td>{escape(name)}</td><td>{escape(x.op)}</td><td class=n>{x.low:.4g} to {x.high:.4g}</td>"
        f"<td>{_bars(x.histogram)}</td><td class=n>{_decibel(x.input_noise)}</td><td class=n>{_decibel(x.noise)}</td>"
        f"<td>{'yes' if x.smoothed else ''}</td><td>{escape(x.kept)}</td></tr>"
    )


def _decibel(value: float) -> str:
    return f"{value:.1f}" if value else ""


def _bars(counts: Sequence[int]) -> str:
    """Returns a histogram as SVG; heights are square roots, so that tails are visible."""
    if not counts or not max(counts):
        return ""
    most = max(counts) ** 0.5
    bars = "".join(
        f'<rect x="{3 * n}" y="{HEIGHT - h:.1f}" width="2.6" height="{h:.1f}"/>'
        for n, count in enumerate(counts)
        if (h := HEIGHT * count**0.5 / most) >= 0.05
    )
    return f'<svg width="{3 * len(counts)}" height="{HEIGHT}" role="img" aria-label="histogram">{bars}</svg>'
