"""Code identifies ops by class and traits, never by name: names are for files, text and frontends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mgx_core
from mgx_core.ops import STANDARD
from mgx_core.ops.activation_table import ACTIVATIONS
from mgx_core.ops.scalar import PRIMITIVES

REPOSITORY = Path(mgx_core.__file__).parent.parent
NAMES = set(STANDARD.names())
# except words with another meaning: scalar primitives, the attribute `actv_func`, arithmetic of extents
OPS_ALONE = NAMES - PRIMITIVES.keys() - ACTIVATIONS.keys() - {"broadcast"}
# files, text, user input
FORMATS = ("mgx_core/store/", "mgx_core/ir/text", "mgx_core/driver/", "plugins/frontends/")

# where names may be used, and why: at most ten
REASONS = {
    "mgx_core/ops/opset.py": "sets hold ops by name",
    "mgx_core/plugins/merge_opsets.py": "packages may offer ops of one name",
    "mgx_core/quantize/truncate.py": "users name the ops that are to be quantized",
    "mgx_core/rules/selection.py": "users name what `fusion_rules` switches",
    "plugins/gpu_hip/mgx_gpu_hip/library/": "the functions of vendor libraries have names, too",
    "conformance/mgx_conformance/cases/": "cases are programs written down, by the names of their ops",
    "conformance/mgx_conformance/packages.py": "packages give cases by the names of their ops",
    "conformance/mgx_conformance/graphs.py": "so are random programs",
    "conformance/mgx_conformance/quantized_grower.py": "and those with quantizations between their ops",
    "conformance/mgx_conformance/witness/": "witnesses are asked for ops by name",
}


def sources() -> list[Path]:
    folders = [REPOSITORY / "mgx_core", *REPOSITORY.glob("plugins/*/mgx_*"), *REPOSITORY.glob("conformance/mgx_*")]
    found = [p for folder in folders for p in sorted(folder.rglob("*.py"))]
    return [p for p in found if not place(p).startswith(FORMATS)]


def place(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def is_op(node: ast.AST) -> bool:
    """True for an expression that reads as an op or its class."""
    match node:
        case ast.Name(id="op" | "cls" | "anchor_op"):
            return True
        case ast.Attribute(attr="op" | "of"):
            return True
        case ast.Call(func=ast.Name(id="op_of" | "type")):
            return True
    return False


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Returns lines at which a module compares an op's name, looks something up by it, or lists names of ops."""
    nodes = list(ast.walk(ast.parse(source)))
    assigned = [
        (t.id, n.value) for n in nodes if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    ]
    exports = {id(value) for name, value in assigned if name == "__all__"}
    aliases = {name for name, value in assigned if is_name(value, set())}
    for node in nodes:
        match node:
            case ast.Compare(left=left, comparators=others):
                asked = [left, *others]
            case ast.Match(subject=subject):
                asked = [subject]
            case ast.Subscript(slice=index):
                asked = [index]
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "startswith" | "endswith"), args=args):
                asked = [value, *args]
            case _ if id(node) in exports:
                continue
            case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(keys=items):
                words = {i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)}
                if words & OPS_ALONE and 2 * len(words & NAMES) > len(words) > 1:
                    yield node.lineno, f"lists {', '.join(sorted(words & NAMES))}"
                continue
            case _:
                continue
        if any(is_name(part, aliases) for part in asked):
            yield node.lineno, ast.unparse(node)


def is_name(node: ast.AST, aliases: set[str]) -> bool:
    match node:
        case ast.Attribute(value=value, attr="name"):
            return is_op(value)
        case ast.Name(id=word):
            return word in aliases
    return False


@pytest.mark.skipif(not (REPOSITORY / "plugins").exists(), reason="the plugins' sources are not available")
def test_no_code_depends_on_the_name_of_an_op():
    found = {place(p): list(faults(p.read_text())) for p in sources()}
    excused = tuple(REASONS)
    assert [f"{p}:{n}: {t}" for p, all in found.items() if not p.startswith(excused) for n, t in all] == []
    used = {p for p, all in found.items() if all}
    assert [r for r in excused if not any(p.startswith(r) for p in used)] == [], "no longer needed"
    assert len(REASONS) <= 10


@pytest.mark.skipif(not (REPOSITORY / "plugins").exists(), reason="the plugins' sources are not here")
def test_frontends_may_list_names_of_ops_but_not_compare_them():
    paths = [p for folder in REPOSITORY.glob("plugins/frontends/*/mgx_*") for p in sorted(folder.rglob("*.py"))]
    found = [f"{place(p)}:{n}: {text}" for p in paths for n, text in faults(p.read_text())]
    assert paths
    assert [f for f in found if ": lists " not in f] == []


def test_the_check_sees_what_it_should():
    for line in (
        'x = ins.op.name == "dot"',
        'if op.name in {"dot"}: pass',
        "match op_of(ins).name:\n    case _: pass",
        "x = TABLE[op.name]",
        'x = op.name.startswith("reduce")',
        'name = op.name\nx = name == "dot"',
        'VIEWS = frozenset({"reshape", "squeeze"})',
        'TABLE = {"dot": 1, "convolution": 2}',
    ):
        assert list(faults(line)), line
    for line in (
        'x = dtype.name == "float16"',
        'x = ("max", "average")',
        'PRIMITIVE = {"add": "+", "mul": "*"}',
        "op.name",
    ):
        assert not list(faults(line)), line
