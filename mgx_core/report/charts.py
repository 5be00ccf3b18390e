"""Bar charts as inline SVG: time and instruction counts of passes, launches by operation."""

from __future__ import annotations

from collections.abc import Sequence

from ..compile.pipeline import PassRecord
from ..records import dataclass
from .formatting import escaped, shortened, time_text

__all__ = ["Bar", "bars_svg", "passes_svg"]

WIDTH, ROW = 1160, 24
RUNNER = "make-runner"  # the step that compiles the target's kernels


@dataclass(frozen=True)
class Bar:
    """One row: name, length and CSS class of the bar, text after it, tooltip, and a second text."""

    name: str
    length: float
    style: str
    text: str
    tip: str = ""
    more: str = ""


def bars_svg(
    bars: Sequence[Bar],
    label: str,
    name_width: int = 210,
    text_width: int = 250,
    scale: float = 0.0,
) -> str:
    """Returns a bar chart; a row with negative length is a heading.

    scale: the length of a full-width bar (default: the longest); longer bars are truncated.
    """
    most = scale or max((b.length for b in bars), default=0.0) or 1.0
    room = WIDTH - name_width - text_width
    height = len(bars) * ROW + 4
    out = [
        f'<svg class="bars" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escaped(label)}">'
    ]
    for n, bar in enumerate(bars):
        y = n * ROW
        tip = f"<title>{escaped(bar.tip)}</title>" if bar.tip else ""
        if bar.length < 0:
            out.append(
                f'<text class="h" x="0" y="{y + 17}">{escaped(bar.name)}</text>'
                f'<text class="s" x="{name_width + room + 12}" y="{y + 17}">{escaped(bar.text)}</text>'
            )
            continue
        filled = max(min(1.0, bar.length / most) * room, 1.5 if bar.length else 0)
        out.append(
            f'<g>{tip}<text x="14" y="{y + 16}">{escaped(shortened(bar.name, (name_width - 20) // 7))}</text>'
            f'<rect class="track" x="{name_width}" y="{y + 6}" width="{room}" height="12" rx="3"/>'
            f'<rect class="{bar.style}" x="{name_width}" y="{y + 6}" width="{filled:.1f}" height="12" rx="3"/>'
            f'<text class="s" x="{name_width + room + 12}" y="{y + 16}">{escaped(bar.text)}</text>'
            f'<text class="s" x="{name_width + room + 88}" y="{y + 16}">{escaped(bar.more)}</text></g>'
        )
    return "\n".join([*out, "</svg>"])


def passes_svg(records: Sequence[PassRecord]) -> str:
    """Returns the chart of passes by stage: time as a bar, instruction counts as text."""
    bars: list[Bar] = []
    # a target's compiler may take much longer than any pass
    scale = max((r.seconds for r in records if r.name != RUNNER), default=0.0)
    totals: dict[str, float] = {}
    for r in records:
        totals[r.stage] = totals.get(r.stage, 0.0) + r.seconds
    stage = ""
    for r in records:
        if r.stage != stage:
            stage = r.stage
            bars.append(Bar(stage, -1, "", time_text(totals[stage])))
        difference = r.after - r.before
        counts = f"{r.before} \u2192 {r.after}" + (f" ({difference:+d})" if difference else "")
        style = "warn" if scale and r.seconds > scale else "bar" if r.changed else "quiet"
        changed = "changed the program" if r.changed else "no changes"
        bars.append(Bar(r.name, r.seconds, style, time_text(r.seconds), f"{r.name}: {changed}", counts))
    return bars_svg(bars, "time of each pass", scale=scale)
