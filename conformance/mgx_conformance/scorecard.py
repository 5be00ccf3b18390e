"""The scorecard of a run: a terminal table, JSON, and a self-contained HTML page."""

from __future__ import annotations

import html
import json
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["Scorecard"]

OUTCOMES: Final = ("pass", "expected", "fail", "skipped")


class Scorecard:
    """The outcome of each test of a run."""

    def __init__(self, target: str, levels: Sequence[str]) -> None:
        self.target = target
        self.levels = tuple(levels)
        self.results: dict[str, dict[str, Any]] = {}
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def add(self, test: str, outcome: str, reason: str, seconds: float, properties: Mapping[str, Any]) -> None:
        """Records one test; properties: what the test reported."""
        entry: dict[str, Any] = {"outcome": outcome, "seconds": round(seconds, 4)}
        if reason:
            entry["reason"] = reason
        self.results[test] = entry | dict(properties)

    def counts(self, level: str) -> Counter[str]:
        """Counts the tests of a level by outcome."""
        return Counter(r["outcome"] for t, r in self.results.items() if t.partition("/")[0] == level)

    def placed(self) -> dict[str, str]:
        """Returns every tested op: ``target`` if all its passing cases ran there, ``partly``, or ``host``."""
        by_op: dict[str, set[bool]] = {}
        for result in self.results.values():
            if "op" in result and "place" in result:
                by_op.setdefault(result["op"], set()).add(result["place"] == "target")
        return {
            op: "target" if seen == {True} else "partly" if True in seen else "host"
            for op, seen in sorted(by_op.items())
        }

    def table(self) -> list[str]:
        """Returns lines for a terminal."""
        lines = [f"{'level':10}" + "".join(f"{word:>10}" for word in OUTCOMES)]
        total: Counter[str] = Counter()
        for level in self.levels:
            counts = self.counts(level)
            total += counts
            lines.append(f"{level:10}" + "".join(f"{counts[word]:>10}" for word in OUTCOMES))
        lines.append(f"{'all':10}" + "".join(f"{total[word]:>10}" for word in OUTCOMES))
        places = Counter(self.placed().values())
        if places:
            lines.append("operations: " + ", ".join(f"{places[w]} {t}" for w, t in PLACES.items()))
        lines += [f"{test}: {r['cost']}" for test, r in self.results.items() if "cost" in r]
        return lines

    def document(self) -> dict[str, Any]:
        """Returns the scorecard as a JSON-serializable value."""
        import mgx_core

        return {
            "target": self.target,
            "mgx": mgx_core.__version__,
            "machine": platform.platform(),
            "python": platform.python_version(),
            "started": self.started,
            "levels": {level: {word: self.counts(level)[word] for word in OUTCOMES} for level in self.levels},
            "operations": self.placed(),
            "tests": self.results,
        }

    def json(self) -> str:
        return json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"

    def html(self) -> str:
        """Returns the HTML page: outcomes by level, placements, and every test that did not pass."""
        esc = html.escape
        doc = self.document()
        rows = "".join(
            f"<tr><th>{level}</th>"
            + "".join(f'<td class="{w if n else "none"}">{n}</td>' for w, n in counts.items())
            + "</tr>"
            for level, counts in doc["levels"].items()
        )
        chips = "".join(f'<span class="{place}">{esc(op)}</span>' for op, place in doc["operations"].items())
        costs = "".join(f"<li>{esc(t)}: {esc(str(r['cost']))}</li>" for t, r in self.results.items() if "cost" in r)
        odd = "".join(
            f'<tr class="{r["outcome"]}"><td>{esc(test)}</td><td>{r["outcome"]}</td><td>{esc(r.get("reason", ""))}</td></tr>'
            for test, r in sorted(self.results.items(), key=lambda kv: (OUTCOMES[::-1].index(kv[1]["outcome"]), kv[0]))
            if r["outcome"] != "pass"
        )
        return PAGE.format(
            target=esc(self.target), facts=esc(f"mgx {doc['mgx']}, Python {doc['python']}, {doc['machine']}, {doc['started']}"),
            head="".join(f"<th>{w}</th>" for w in OUTCOMES), rows=rows, chips=chips, costs=costs, odd=odd,
        )  # fmt: skip


PLACES: Final = {"target": "on the target", "partly": "partly", "host": "on the host"}
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mgx conformance: {target}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }}
table {{ border-collapse: collapse; margin: 1em 0 }}
th, td {{ padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }}
th:first-child, .list td {{ text-align: left; vertical-align: top }} .list {{ font-size: 13px; width: 100% }}
td.fail, tr.fail td:nth-child(2) {{ background: #f6c9c4 }} td.expected, tr.expected td:nth-child(2) {{ background: #fbe8b8 }}
td.pass {{ background: #cfe9cf }} .none {{ color: #aaa }}
.chips span {{ display: inline-block; margin: 2px; padding: 0 .5em; border-radius: 4px; font-size: 13px }}
span.target {{ background: #cfe9cf }} span.partly {{ background: #fbe8b8 }} span.host {{ background: #e4e4e4 }}
</style></head><body>
<h1>Conformance of target {target}</h1><p>{facts}</p>
<table><tr><th>level</th>{head}</tr>{rows}</table>
<h2>Operations</h2><p>Green ran on the target in every case, yellow in some, gray on the host.</p><p class="chips">{chips}</p>
<h2>Cost</h2><ul>{costs}</ul>
<h2>Tests that did not simply pass</h2><table class="list"><tr><th>test</th><th>outcome</th><th>reason</th></tr>{odd}</table>
</body></html>
"""
