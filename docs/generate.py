"""Generates ops.md and ops_onnx.md from the operations' classes, interfaces.md from the base classes of plugins, and the
diagrams in architecture.md.

python docs/generate.py            writes the pages
python docs/generate.py --check    lists stale pages (exit status 1 if there are any)
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgx_core
from mgx_core.compile.pipeline import nothing
from mgx_core.compile.stages import stages
from mgx_core.driver.ops import describe
from mgx_core.ops import STANDARD
from mgx_core.ops.opset import OpSet
from mgx_core.ops.traits import Traits
from mgx_core.options import CompileOptions
from mgx_core.targets.continuation import Continuation
from mgx_core.targets.emission import Emitter
from mgx_core.targets.open_program import OpenProgram
from mgx_core.targets.segment_interpreter import SegmentInterpreter
from mgx_core.targets.traced_emission import TracedEmission
from mgx_onnx.ops import OPS as ONNX_OPS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
CORE = Path(mgx_core.__file__).parent
HEAD = """\
# Operations

Made by `python docs/generate.py` from the operations' classes; `mgx-driver ops NAME` prints the same. Inputs marked `?` may be
absent, `*` stands for any number. Extents in square brackets are letters; `..` stands for any number of axes.
A family is the module that its classes are in: `from mgx_core.ops.pointwise import Exp`.
"""
ONNX_HEAD = HEAD.replace("# Operations\n", "# Operations of the ONNX frontend\n").replace(
    "mgx_core.ops.pointwise import Exp", "mgx_onnx.ops.training import Adam"
) + """
These come with the package `mgx-onnx`, through the hook `operations`; the standard ones are in [ops.md](ops.md).
"""  # fmt: skip


def reference(opset: OpSet = STANDARD, head: str = HEAD) -> str:
    """Returns a whole page: a contents table, then families in alphabetical order, their operations likewise."""
    families: dict[str, list[dict[str, Any]]] = {}
    for name in opset.names():
        op = describe(opset.get(name))
        families.setdefault(op["from"].rsplit(".", 1)[-1], []).append(op)
    lines = [head, f"{len(opset)} operations in {len(families)} families.\n", "| family | operations |", "|---|---|"]
    for family, ops in sorted(families.items()):
        links = ", ".join(f"[{op['name']}](#{op['name'].lower()})" for op in ops)
        lines.append(f"| {family} | {links} |")
    for family, ops in sorted(families.items()):
        lines += ["", f"## Family: {family}", ""]
        for op in ops:
            lines += section(op)
    return "\n".join(lines).rstrip() + "\n"


def section(op: dict[str, Any]) -> list[str]:
    """Returns one operation: signature, what its docstring says, attributes, scalar expression."""
    lines = [
        f"### {op['name']}",
        "",
        f"`{op['signature']}`" + (" with modules" if op["modules"] else "") + f", class `{op['class']}`",
        "",
    ]
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
    if op["traits"]:
        lines += [f"Traits: {', '.join(op['traits'])}.", ""]
    if op["scalar"]:
        lines += [f"Each element: `{op['scalar']}`", ""]
    return lines


def layers() -> list[str]:
    """Returns the layers of the core from the import contract, top first, each with its packages' first docstring line."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in config["tool"]["importlinter"]["contracts"] if c.get("containers") == ["mgx_core"]]
    rows = []
    for layer in contract["layers"]:
        names = [n.strip().strip("()") for n in re.split(r"[:|]", layer)]
        rows.append([(n, says(n)) for n in names if n != "__main__"])
    rows = [r for r in rows if r]
    width = max(len(text) for row in rows for _, text in row) + 17
    line = "+" + "-" * (width - 2) + "+"
    out = ["```text", line]
    for row in rows:
        out += [f"| {n:<12} {text}".ljust(width - 1) + "|" for n, text in row]
        out.append(line)
    return [*out, "```"]


def says(name: str) -> str:
    """Returns the first sentence of a module's docstring, read without importing it."""
    path = CORE / name / "__init__.py" if (CORE / name).is_dir() else CORE / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"[.;](?:\s|$)", text.split("\n\n")[0].replace("\n", " "))[0]


def flow() -> list[str]:
    """Returns the stages with their passes as they run by default, and what holds after each."""
    lines = ["| stage | passes of the core | holds afterwards |", "|---|---|---|"]
    for stage in stages(None, None, CompileOptions()):
        texts = [(i.__doc__ or "").split("\n")[0] for i in (stage.ensures, stage.proves) if i is not nothing]
        stated = [t.removeprefix("Invariant: ") for t in dict.fromkeys(texts)]
        holds = " ".join(t[:1].upper() + t[1:] for t in stated)
        lines.append(f"| {stage.name} | {', '.join(f'`{p.name}`' for p in stage.passes) or '-'} | {holds or '-'} |")
    return lines


def architecture() -> str:
    """Returns the page with its generated parts made again."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for name, make in (("layers", layers), ("flow", flow)):
        head, rest = text.split(f"<!-- {name}: generated -->\n")
        _, tail = rest.split("<!-- end -->", 1)
        text = f"{head}<!-- {name}: generated -->\n" + "\n".join(make()) + f"\n<!-- end -->{tail}"
    return text


INTERFACES = [
    mgx_core.Target,
    mgx_core.Context,
    mgx_core.Runner,
    OpenProgram,
    TracedEmission,
    mgx_core.Watch,
    mgx_core.Kernel,
    Emitter,
    SegmentInterpreter,
    Continuation,
    mgx_core.Pass,
    mgx_core.Operation,
    mgx_core.Frontend,
    Traits,
]
INTERFACES_HEAD = """\
# Interfaces

Made by `python docs/generate.py` from the classes. A plugin derives from these; what they define is everything that the core asks
for. Nothing is looked up by name, and each member has a default unless its class says that it is required.
"""


def interfaces() -> str:
    """Returns the page of interfaces: each class's docstring and its public members in order of definition."""
    lines = [INTERFACES_HEAD]
    for cls in INTERFACES:
        lines += ["", f"## {cls.__name__}", "", f"`{cls.__module__}`", "", *prose(inspect.getdoc(cls) or "")]
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for name, signature, doc in members(body):
            lines += ["", f"### {cls.__name__}.{name}", "", "```text", signature, "```", "", *prose(doc)]
    return "\n".join(lines).rstrip() + "\n"


def members(cls: ast.ClassDef) -> list[tuple[str, str, str]]:
    """Returns name, signature and docstring of each public member that has a docstring."""
    found = []
    for node, after in zip(cls.body, [*cls.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            doc, name = ast.get_docstring(node), node.name
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            signature = f"{name}({ast.unparse(node.args)}){returns}"
        elif isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            name, signature, doc = ast.unparse(node.target), ast.unparse(node), inspect.cleandoc(str(after.value.value))
        else:
            continue
        if doc and not name.startswith("_"):
            found.append((name, signature, doc))
    return found


def prose(doc: str) -> list[str]:
    """Returns a docstring as Markdown, a line break before each labeled line."""
    lines = doc.replace("``", "`").split("\n")
    labeled = [re.match(r"[A-Za-z_, ]+: ", after) is not None for after in [*lines[1:], ""]]
    return [line + "  " if line and label else line for line, label in zip(lines, labeled, strict=True)]


PAGES: dict[str, Callable[[], str]] = {
    "ops.md": reference,
    "ops_onnx.md": lambda: reference(ONNX_OPS, ONNX_HEAD),
    "interfaces.md": interfaces,
    "architecture.md": architecture,
}


def main() -> int:
    check, stale = "--check" in sys.argv[1:], []
    for name, make in PAGES.items():
        path = DOCS / name
        text = make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    done = "stale: run python docs/generate.py" if check else "written"
    print(f"{', '.join(stale)} {done}" if stale else "all pages are up to date")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
