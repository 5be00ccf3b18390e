"""Style of code and pages: docstrings are statements in plain English and the field's terms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "mgx_core": "mgx_core",
    "mgx_ref": "plugins/ref/mgx_ref",
    "mgx_cpu_dnnl": "plugins/cpu_dnnl/mgx_cpu_dnnl",
    "mgx_gpu_hip": "plugins/gpu_hip/mgx_gpu_hip",
    "mgx_onnx": "plugins/frontends/onnx/mgx_onnx",
    "migraphx": "plugins/compat/migraphx/migraphx",
    "mgx_tf": "plugins/frontends/tf/mgx_tf",
    "mgx_tflite": "plugins/frontends/tflite/mgx_tflite",
    "mgx_torch": "plugins/frontends/torch/mgx_torch",
    "onnx_migraphx": "plugins/compat/migraphx/onnx_migraphx",
    "torch_migraphx": "plugins/compat/torch_migraphx/torch_migraphx",
    "mgx_c": "plugins/capi/mgx_c",
    "mgx_serve": "plugins/serve/mgx_serve",
    "mgx_conformance": "conformance/mgx_conformance",
}
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("benchmarks/*.md"),
    ROOT / "conformance/README.md",
    ROOT / "plugins/cpu_dnnl/README.md",
    ROOT / "plugins/gpu_hip/README.md",
    ROOT / "plugins/ref/README.md",
    ROOT / "plugins/frontends/onnx/README.md",
    ROOT / "plugins/compat/migraphx/README.md",
]
CLAUSE = re.compile(r"(What|Whether|How|Where|Who|Whom|Whose|Which|Whoever|Whatever)\b")
ORDER = re.compile(
    r"(Add|Apply|Block|Build|Combine|Compute|Convert|Describe|Do|Emit|Find|Fold|Get|Give|Join|Keep|Let|Make|Merge|Put|Raise|Remove"
    r"|Replace|Return|Set|Take|Write) "
)
PARAMETER = re.compile(r"[a-z_]+: ")
BANNED = re.compile(
    r"\b(?:whoever|somebody|nobody|anybody|anew|spoken|unsettled|settled|alike|to be had"
    r"|in whose (?:place|stead)|as it comes|takes? away|taken away"
    r"|(?:known|only|or) while running|the rules circle|cannot meet|required kinds|ready-made|kernel texts?"
    r"|as (?:mgx|converters) sees? (?:it|them)|said in others"
    r"|(?<!there )(?:is|are) no (?!longer|more|less|\w+er\b))\b",
    re.IGNORECASE,
)


def docstrings(source: str) -> Iterator[tuple[int, str, str]]:
    """Yields line, name of the definition (empty for a module) and text of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, getattr(node, "name", ""), text


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of each string literal, including the constant parts of f-strings, and, if one of them may contain a
    banned word, of each comment.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    if not any(BANNED.search(line, line.index("#")) for line in source.splitlines() if "#" in line):
        return  # separating comments from strings takes longer than all else
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def clauses(source: str) -> list[str]:
    """Returns docstrings that do not start with a statement; those of constructors may start with parameters."""
    return [
        f"{line}: {text.splitlines()[0]}"
        for line, name, text in docstrings(source)
        if CLAUSE.match(text) or ORDER.match(text) or (PARAMETER.match(text) and name not in ("", "__init__"))
    ]


def banned(texts: Iterator[tuple[int, str]]) -> list[str]:
    return [f"{line}: {found.group()}" for line, text in texts for found in BANNED.finditer(text)]


def files(package: str) -> list[Path]:
    found = sorted((ROOT / PACKAGES[package]).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_statements(package):
    found = [f"{p.relative_to(ROOT)}:{c}" for p in files(package) for c in clauses(p.read_text(encoding="utf-8"))]
    assert not found, "begin with a statement, as in 'Returns ...' or 'True if ...':\n" + "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_words_of_code(package):
    found = [f"{p.relative_to(ROOT)}:{b}" for p in files(package) for b in banned(prose(p.read_text(encoding="utf-8")))]
    assert not found, "use the words of the glossary in docs/architecture.md:\n" + "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_words_of_pages(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    assert banned(lines) == []


@pytest.mark.parametrize("start", ["What", "Whether", "How", "Where", "Who", "Which"])
def test_a_clause_is_found(start):
    assert clauses(f'def f():\n    """{start} it is."""\n') == [f"2: {start} it is."]
    assert clauses(f'"""Tells {start.lower()} it is."""\n') == []


@pytest.mark.parametrize("verb", ["Put", "Return", "Join", "Do"])
def test_an_order_is_found(verb):
    assert clauses(f'def f():\n    """{verb} it there."""\n') == [f"2: {verb} it there."]
    assert clauses(f'"""{verb}s it there."""\n') == []


def test_a_parameter_is_found():
    assert clauses('def f(x):\n    """x: a number."""\n') == ["2: x: a number."]
    assert clauses('def __init__(self, x):\n    """x: a number."""\n') == []
    assert clauses('def f(x):\n    """Returns x; x: a number."""\n') == []


@pytest.mark.parametrize(
    "text",
    [
        "known while running",
        "whoever asks",
        "emitted anew",
        "{x} is no tensor",
        "Nobody reads it",
        "both are alike",
        "as it comes",
        "the frontend as mgx sees it",
        "functions said in others",
    ],
)
def test_a_banned_word_is_found(text):
    for source in [f'raise E("{text}")', f'raise E(f"{{y}}: {text}")', f"x = 1  # {text}", f'"""Code.\n\n{text}\n"""']:
        assert len(banned(prose(source))) == 1, source
    assert len(banned(iter([(1, text)]))) == 1


def test_plain_words_pass():
    assert (
        banned(iter([(1, "there is no rule 'x'; it is no longer read; n is not a tensor; done while running tests")]))
        == []
    )
