"""Shows a memory plan as text and as a diagram: one rectangle per buffer, time horizontal and bytes vertical."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TypeAlias

from ..errors import counted
from ..ir.module import Module
from ..targets.memory import Buffer, MemoryPlan
from ..targets.schedule import Schedule
from ..targets.values import Buffer as ScheduleBuffer
from .formatting import escaped, shortened, size_text, title
from .style import VARIABLES

__all__ = ["Timeline", "memory_page", "memory_svg", "memory_text"]

AnyBuffer: TypeAlias = Buffer | ScheduleBuffer

WIDTH, HEIGHT = 1160, 420
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 34, 40


class Timeline:
    """Labels the positions (steps of a schedule or instructions of a module) and buffers of a plan."""

    def __init__(self, plan: MemoryPlan | Schedule, module: Module) -> None:
        self.plan = plan
        if isinstance(plan, Schedule):
            self.titles = [step.name for step in plan.steps]
            works = [True] * len(plan.steps)
        else:
            instructions = list(module)
            self.titles = [title(ins) for ins in instructions]
            works = [not (i.is_param or i.is_literal or i.is_absent or i.is_return) for i in instructions]
        self.ticks = [0, *accumulate(works)]  # position -> number of computing steps before it

    def name(self, b: AnyBuffer) -> str:
        """Returns the op or step that first writes a buffer."""
        return title(b.owner) if isinstance(b, Buffer) else self.titles[b.first]

    def sources(self, b: AnyBuffer) -> tuple[str, ...]:
        if isinstance(b, Buffer):
            return b.owner.sources
        return self.plan.steps[b.first].sources if isinstance(self.plan, Schedule) else ()

    def about(self, b: AnyBuffer) -> str:
        """Returns a buffer's defining op, type and source nodes."""
        result, views = "", ""
        if isinstance(b, Buffer):
            result, count = f" -> {b.owner.result}", len(b.members) - 1
            views = f" ({counted(count, 'view')} of it)" if count > 0 else ""
        sources = self.sources(b)
        return self.name(b) + result + (f" from {', '.join(sources)}" if sources else "") + views


def alive_bytes(plan: MemoryPlan | Schedule, steps: int) -> list[int]:
    """Returns the live bytes at each position."""
    change = [0] * (steps + 1)
    for b in plan.buffers:
        change[b.first] += b.bytes
        change[b.last + 1] -= b.bytes
    return list(accumulate(change[:steps]))


def ratio_text(plan: MemoryPlan | Schedule) -> str:
    return f"{plan.peak / plan.lower_bound:.3f}" if plan.lower_bound else "1.000"


def at_peak(plan: MemoryPlan | Schedule, steps: int) -> tuple[int, list[AnyBuffer]]:
    """Returns the position with the most live bytes, and its live buffers, largest first."""
    alive = alive_bytes(plan, steps)
    when = max(range(len(alive)), key=alive.__getitem__, default=0)
    there: list[AnyBuffer] = [b for b in plan.buffers if b.first <= when <= b.last]
    return when, sorted(there, key=lambda b: -b.bytes)


def memory_text(plan: MemoryPlan | Schedule, module: Module, largest: int = 12) -> str:
    """Returns the peak, its lower bound, their ratio, and the largest live buffers at the peak."""
    line = Timeline(plan, module)
    when, there = at_peak(plan, len(line.titles))
    lines = [
        f"arena peak   {plan.peak} bytes ({size_text(plan.peak)})",
        f"lower bound  {plan.lower_bound} bytes ({size_text(plan.lower_bound)})",
        f"ratio        {ratio_text(plan)}",
        f"without reuse {sum(b.bytes for b in plan.buffers)} bytes in {len(plan.buffers)} buffers",
    ]
    if plan.dynamic:
        lines.append(f"{counted(len(plan.dynamic), 'value')} with data-dependent extents, allocated at run time")
    if there:
        lines.append(
            f"at position {when} of {len(line.titles)}, {line.titles[when]}, the most bytes are live; the largest buffers:"
        )
        lines += [
            f"  {size_text(b.bytes):>10}  at {b.offset:<10}  positions {b.first}-{b.last}  {line.about(b)}"
            for b in there[:largest]
        ]
        if len(there) > largest:
            rest = sum(b.bytes for b in there[largest:])
            lines.append(f"  {size_text(rest):>10}  in {len(there) - largest} more")
    return "\n".join(lines)


def memory_svg(plan: MemoryPlan | Schedule, module: Module, standalone: bool = True) -> str:
    """Returns the plan as SVG; standalone: includes colors and a background, otherwise uses those of the page."""
    line = Timeline(plan, module)
    ticks = line.ticks
    count = max(1, ticks[-1])
    top = max(plan.peak, plan.lower_bound, 1)
    across = (WIDTH - LEFT - RIGHT) / count
    up = (HEIGHT - TOP - BOTTOM) / (top * 1.04)

    def x(step: int) -> float:
        return LEFT + ticks[step] * across

    def y(byte: float) -> float:
        return HEIGHT - BOTTOM - byte * up

    out = [
        f'<svg class="memory" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="memory plan: peak {plan.peak} bytes, lower bound {plan.lower_bound} bytes">'
    ]
    if standalone:
        out.append(
            f'<style>{VARIABLES}{MEMORY_STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" style="fill:var(--card)"/>'
        )
    for part in range(5):
        at = top * part / 4
        out.append(f'<path class="grid" d="M{LEFT} {y(at):.1f}H{WIDTH - RIGHT}"/>')
        out.append(f'<text class="tick" x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{size_text(at)}</text>')
    for part in range(9 if count >= 8 else 2):
        at = count * part / (8 if count >= 8 else 1)
        out.append(
            f'<text class="tick" x="{LEFT + at * across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{at:.0f}</text>'
        )
    out.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">operations</text>')
    made: list[AnyBuffer] = [*plan.buffers]
    out += [_rectangle(line, b, n, x, y) for n, b in enumerate(sorted(made, key=lambda b: b.first))]
    alive = alive_bytes(plan, len(line.titles))
    if alive:
        path = "".join(
            f"{'M' if n == 0 else 'V'}{'' if n else f'{x(0):.1f} '}{y(v):.1f}H{x(n + 1):.1f}"
            for n, v in enumerate(alive)
        )
        out.append(f'<path class="alive" d="{path}"><title>live bytes</title></path>')
    out.append(f'<path class="peak" d="M{LEFT} {y(plan.peak):.1f}H{WIDTH - RIGHT}"/>')
    out.append(f'<path class="bound" d="M{LEFT} {y(plan.lower_bound):.1f}H{WIDTH - RIGHT}"/>')
    out.append(
        f'<text class="legend" x="{LEFT}" y="18"><tspan class="lp">\u2501 arena peak {size_text(plan.peak)}</tspan>'
        f'<tspan dx="22" class="lb">\u254d lower bound {size_text(plan.lower_bound)}</tspan>'
        f'<tspan dx="22" class="la">\u2501 live bytes</tspan><tspan dx="22">ratio {ratio_text(plan)}, '
        f"{len(plan.buffers)} buffers</tspan></text>"
    )
    return "\n".join([*out, "</svg>"])


def memory_page(plan: MemoryPlan | Schedule, module: Module, name: str) -> str:
    """Returns the diagram and the text as an HTML page."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(name)} \u2013 memory</title>'
        f"<style>{VARIABLES}{MEMORY_STYLE}body{{margin:24px;background:var(--card);color:var(--text);font:15px var(--sans)}}"
        f"pre{{font:13px/1.5 var(--mono);overflow:auto}}</style></head><body><h1>{escaped(name)}</h1>"
        f"{memory_svg(plan, module, standalone=False)}<pre>{escaped(memory_text(plan, module))}</pre></body></html>\n"
    )


def _rectangle(
    line: Timeline, b: AnyBuffer, number: int, x: Callable[[int], float], y: Callable[[float], float]
) -> str:
    left, width = x(b.first), x(b.last + 1) - x(b.first)
    low, high = y(b.offset), y(b.offset + b.bytes)
    hue = number * 137 % 360  # the golden angle separates the hues of neighbors
    tip = f"{line.about(b)}\n{size_text(b.bytes)} ({b.bytes} bytes) at {b.offset}\npositions {b.first} to {b.last}"
    text = ""
    room = int(width / 6.4)
    if low - high > 13 and room >= 6:
        name = escaped(shortened(line.name(b), room - 1))
        text = f'<text x="{left + 4:.1f}" y="{high + min(13.0, (low - high) / 2 + 4):.1f}">{name}</text>'
    return (
        f'<g class="buffer"><rect x="{left:.1f}" y="{high:.1f}" '
        f'width="{max(width, 0.6):.1f}" height="{max(low - high, 0.6):.1f}" '
        f'style="--h:{hue}"/>{text}<title>{escaped(tip)}</title></g>'
    )


MEMORY_STYLE = """
svg.memory{font:12px var(--sans);display:block;width:100%;height:auto}
svg.memory .grid{stroke:var(--line);stroke-width:1;fill:none}
svg.memory .tick,svg.memory .legend{fill:var(--soft)}
svg.memory .buffer rect{fill:hsl(var(--h) var(--tone) var(--fill));stroke:hsl(var(--h) 45% var(--edge));stroke-width:.6}
svg.memory .buffer:hover rect{fill:var(--accent)}
svg.memory .buffer text{fill:var(--text);font:11px var(--mono);pointer-events:none}
svg.memory .peak{stroke:var(--bad);stroke-width:1.6;fill:none}
svg.memory .bound{stroke:var(--good);stroke-width:1.6;stroke-dasharray:6 4;fill:none}
svg.memory .alive{stroke:var(--text);stroke-width:1.2;fill:none;opacity:.75;pointer-events:none}
svg.memory .lp{fill:var(--bad)}svg.memory .lb{fill:var(--good)}svg.memory .la{fill:var(--text)}
"""
