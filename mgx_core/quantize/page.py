"""The page of a quantization: facts, and a row a product with the histogram of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from .layer import Layer

__all__ = ["page"]

COLUMNS: Final = (
    "layer", "op", "range", "input", "SQNR of input (dB)", "SQNR of weights (dB)", "smoothed", "left in float because",
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
    """Returns a histogram; heights are square roots, so that tails are seen."""
    if not counts or not max(counts):
        return ""
    most = max(counts) ** 0.5
    bars = "".join(
        f'<rect x="{3 * n}" y="{HEIGHT - h:.1f}" width="2.6" height="{h:.1f}"/>'
        for n, count in enumerate(counts)
        if (h := HEIGHT * count**0.5 / most) >= 0.05
    )
    return f'<svg width="{3 * len(counts)}" height="{HEIGHT}" role="img" aria-label="histogram">{bars}</svg>'
