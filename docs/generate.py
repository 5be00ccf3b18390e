"""Writes ops.md, the reference of all standard operations, from their classes.

python docs/generate.py            writes it
python docs/generate.py --check    says whether it is up to date (exit status 1 if not)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mgx_core.driver.ops import describe
from mgx_core.ops import STANDARD

TARGET = Path(__file__).with_name("ops.md")
HEAD = """\
# Operations

Made by `python docs/generate.py` from the operations' classes; `mgx-driver ops NAME` prints the same. Inputs marked `?` may be
absent, `*` stands for any number. Extents in square brackets are letters; `..` stands for any number of axes.
"""


def reference() -> str:
    """The whole page: a contents table, then families in alphabetical order, their operations likewise."""
    families: dict[str, list[dict[str, Any]]] = {}
    for name in STANDARD.names():
        op = describe(STANDARD.get(name))
        families.setdefault(op["from"].rsplit(".", 1)[-1], []).append(op)
    lines = [HEAD, f"{len(STANDARD)} operations in {len(families)} families.\n", "| family | operations |", "|---|---|"]
    for family, ops in sorted(families.items()):
        links = ", ".join(f"[{op['name']}](#{op['name'].lower()})" for op in ops)
        lines.append(f"| {family} | {links} |")
    for family, ops in sorted(families.items()):
        lines += ["", f"## Family: {family}", ""]
        for op in ops:
            lines += section(op)
    return "\n".join(lines).rstrip() + "\n"


def section(op: dict[str, Any]) -> list[str]:
    """One operation: signature, what its docstring says, attributes, scalar expression."""
    lines = [f"### {op['name']}", "", f"`{op['signature']}`" + (" with modules" if op["modules"] else ""), ""]
    paragraphs = op["doc"].split("\n\n")
    lines += [paragraphs[0], ""]
    for paragraph in paragraphs[1:]:
        lines += ["```text", *paragraph.rstrip().split("\n"), "```", ""]
    if op["attributes"]:
        lines += ["| attribute | type | default |", "|---|---|---|"]
        for a in op["attributes"]:
            default = "required" if a["required"] else f"`{a['default']}`"
            lines.append(f"| {a['name']} | `{a['type'].replace('|', chr(92) + '|')}` | {default} |")
        lines.append("")
    if op["scalar"]:
        lines += [f"Each element: `{op['scalar']}`", ""]
    return lines


def main() -> int:
    text = reference()
    if "--check" in sys.argv[1:]:
        same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print("docs/ops.md is up to date" if same else "docs/ops.md is stale: run python docs/generate.py")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
