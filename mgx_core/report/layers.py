"""Draws a small graph in layers (Sugiyama): values below their operands, long edges routed between the boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from ..errors import counted
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..targets.kernel import Launch, op_of
from .formatting import attributes_text, escaped, group_text, kind, shortened, title

__all__ = ["FEW", "drawn", "layers_svg"]

FEW: Final = 160  # most boxes of a readable drawing
BOX, GAP, DOWN, LETTER = 38, 18, 30, 7.3


class _Box:
    """A node of a layer: an instruction, or a bend point (None) of an edge that crosses the layer."""

    __slots__ = ("above", "below", "ins", "layer", "width", "x")

    def __init__(self, ins: Instruction | None, layer: int, width: float) -> None:
        self.ins = ins
        self.layer = layer
        self.width = width
        self.x = 0.0
        self.above: list[_Box] = []
        self.below: list[_Box] = []


def drawn(module: Module) -> list[Instruction]:
    """Returns the instructions to draw: all except constants and absent inputs."""
    return [i for i in module if not (i.is_literal or i.is_absent)]


def layers_svg(module: Module, anchors: Mapping[Instruction, str], id: str) -> str:
    """Returns the module as SVG; boxes link to `anchors` (element ids of the page); id: prefix of the new ids."""
    shown = drawn(module)
    rows, lines = _layered(shown)
    _order(rows)
    _spread(rows)
    left = min((b.x - b.width / 2 for row in rows for b in row), default=0.0) - 12
    right = max((b.x + b.width / 2 for row in rows for b in row), default=100.0) + 12
    height = len(rows) * (BOX + DOWN) - DOWN + 24
    out = [
        f'<svg class="layers" xmlns="http://www.w3.org/2000/svg" width="{right - left:.0f}" height="{height}" '
        f'viewBox="{left:.0f} -12 {right - left:.0f} {height}" role="img" aria-label="graph of {len(shown)} instructions">',
        f'<defs><marker id="{id}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    out += [_line(points, id) for points in lines]
    out += [_box(b, anchors) for row in rows for b in row if b.ins is not None]
    return "\n".join([*out, "</svg>"])


def _layered(shown: Sequence[Instruction]) -> tuple[list[list[_Box]], list[list[_Box]]]:
    depth: dict[Instruction, int] = {}
    for ins in shown:
        depth[ins] = max((depth[i] + 1 for i in reads(ins) if i in depth), default=0)
    for ins in reversed(shown):  # instructions without operands go right above their first user
        if not any(i in depth for i in reads(ins)):
            depth[ins] = max(0, min((depth[u] for u in ins.users if u in depth), default=1) - 1)
    rows: list[list[_Box]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    boxes: dict[Instruction, _Box] = {}
    lines: list[list[_Box]] = []
    for ins in shown:
        box = boxes[ins] = _Box(ins, depth[ins], max(64.0, LETTER * max(len(w) for w in _labels(ins)) + 18))
        rows[box.layer].append(box)
    for ins in shown:
        for read in dict.fromkeys(reads(ins)):
            if read not in boxes:
                continue
            points = [boxes[read]]
            for layer in range(depth[read] + 1, depth[ins]):
                points.append(_Box(None, layer, 10.0))
                rows[layer].append(points[-1])
            points.append(boxes[ins])
            for upper, lower in pairwise(points):
                upper.below.append(lower)
                lower.above.append(upper)
            lines.append(points)
    return rows, lines


def _order(rows: Sequence[list[_Box]]) -> None:
    """Reduces crossings by the barycenter method, in alternating sweeps down and up."""
    for sweep in range(6):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            for n, box in enumerate(row):
                near = box.above if down else box.below
                box.x = sum(b.x for b in near) / len(near) if near else float(n)
            row.sort(key=lambda b: b.x)
            for n, box in enumerate(row):
                box.x = float(n)


def _spread(rows: Sequence[list[_Box]]) -> None:
    """Assigns x coordinates: boxes do not overlap and are close to their neighbors."""
    for row in rows:
        _place_row(row, [0.0] * len(row))
    for sweep in range(12):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = []
            for box in row:
                near = (box.above if down else box.below) or [box]
                wanted.append(sum(b.x for b in near) / len(near))
            _place_row(row, wanted)


def _place_row(row: Sequence[_Box], wanted: Sequence[float]) -> None:
    edge = float("-inf")
    for box, at in zip(row, wanted, strict=True):
        box.x = max(at, edge + box.width / 2)
        edge = box.x + box.width / 2 + GAP
    moved = sum(w - b.x for w, b in zip(wanted, row, strict=True)) / max(1, len(row))
    for box in row:
        box.x += moved


def _top(box: _Box) -> float:
    return box.layer * (BOX + DOWN)


def _line(points: Sequence[_Box], id: str) -> str:
    first = points[0]
    text = f"M{first.x:.1f} {_top(first) + BOX:.1f}"
    at, low = first.x, _top(first) + BOX
    for box in points[1:]:
        high = _top(box) - (2 if box.ins is not None else 0)
        middle = (low + high) / 2
        text += f"C{at:.1f} {middle:.1f} {box.x:.1f} {middle:.1f} {box.x:.1f} {high:.1f}"
        at, low = box.x, high
        if box.ins is None:
            low = _top(box) + BOX
            text += f"V{low:.1f}"
    return f'<path d="{text}" marker-end="url(#{id}-tip)"/>'


def _labels(ins: Instruction) -> tuple[str, str]:
    """Returns the two lines in a box: the title; a group's members or the result's shape."""
    if ins.is_return:
        return "results", counted(len(ins.inputs), "value")
    below = group_text(ins) or str(ins.result)
    return shortened(title(ins), 26), shortened(below, 30)


def _box(box: _Box, anchors: Mapping[Instruction, str]) -> str:
    ins = box.ins
    assert ins is not None
    upper, lower = _labels(ins)
    y = _top(box)
    hosted = isinstance(ins.op, Launch) and ins.op.place == "host"
    about = [op_of(ins).name, attributes_text(op_of(ins)), group_text(ins), str(ins.result)]
    if isinstance(ins.op, Launch):
        about.append(f"on {'the host' if hosted else 'the target'}")
    if ins.sources:
        about.append(f"from {', '.join(ins.sources)}")
    body = (
        f'<rect x="{box.x - box.width / 2:.1f}" y="{y}" width="{box.width:.1f}" height="{BOX}" rx="7"/>'
        f'<text x="{box.x:.1f}" y="{y + 16}">{escaped(upper)}</text>'
        f'<text class="sub" x="{box.x:.1f}" y="{y + 30}">{escaped(lower)}</text>'
        f"<title>{escaped(chr(10).join(a for a in about if a))}</title>"
    )
    link = anchors.get(ins)
    inside = f'<a href="#{escaped(link)}">{body}</a>' if link else body
    return f'<g class="{kind(ins)}{" host" if hosted else ""}">{inside}</g>'
