"""Design rules that tests can check: which names the core may contain, and which side effects imports may have."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import mgx_core

CORE = Path(mgx_core.__file__).parent
FOREIGN = re.compile(r"(?<![a-z])(cuda|hip|dnnl|onnx|torch)(?![a-z])", re.IGNORECASE)

# where names of targets and formats may occur in code: convenience functions that query the plugin manager, hints about
# what to install and corrections of misspelled names, exchange protocols (DLPack's device types, the array interface),
# and the command line
ALLOWED = {
    "__init__.py": r"(api:)?(parse_onnx|parse_onnx_buffer|get_onnx_operators)",
    "api.py": r"parse_onnx|parse_onnx_buffer|get_onnx_operators|onnx",
    "plugins/missing.py": r"onnx|cuda|hip|torch|mgx-(cpu-dnnl|gpu-hip|onnx|torch)|.*pip install mgx-cpu-dnnl or mgx-gpu-hip.*",
    "types/dlpack.py": r"CUDA( managed)?",
    "types/argument.py": r"__cuda_array_interface__",
}


def foreign_words(source: str) -> list[str]:
    """Returns identifiers and strings (except docstrings and comments) that name a target or a format."""
    nodes = list(ast.walk(ast.parse(source)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(n.body[0].value)
        for n in nodes
        if isinstance(n, documented)
        and n.body
        and isinstance(n.body[0], ast.Expr)
        and isinstance(n.body[0].value, ast.Constant)
    }
    words = [
        value for node in nodes if id(node) not in docstrings for value in vars(node).values() if isinstance(value, str)
    ]
    return [w for w in words if FOREIGN.search(w)]


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_the_core_names_no_target_and_no_format(path):
    place = path.relative_to(CORE)
    if place.parts[0] == "driver":
        wrong = [w for w in foreign_words(path.read_text()) if re.search(r"cuda|hip\b|dnnl|torch", w, re.IGNORECASE)]
    else:
        allowed = re.compile(ALLOWED.get(str(place), r"(?!)"))
        wrong = [w for w in foreign_words(path.read_text()) if not allowed.fullmatch(w)]
    assert wrong == []


def test_the_check_itself_sees_what_it_should():
    source = '"""onnx in prose"""\nimport torch\ndef run_on_hip(x): "cuda doc"\nname = "dnnl"  # onnx\nship = chip = "pytorch"\n'
    assert sorted(foreign_words(source)) == ["dnnl", "run_on_hip", "torch"]


def loaded_by(code: str) -> list[str]:
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def families(loaded: Iterable[str]) -> set[str]:
    """Returns modules that define ops, as opposed to those that define what an op is."""
    definition = {
        "attributes",
        "builtin",
        "declaration",
        "elementwise",
        "erf",
        "expression",
        "operation",
        "opset",
        "scalar",
        "traits",
    }
    return {m for m in loaded if m.startswith("mgx_core.ops.") and m.rpartition(".")[2] not in definition}


def test_importing_the_core_does_next_to_nothing():
    loaded = loaded_by("import mgx_core")
    heavy = {
        "onnx", "onnxruntime", "torch", "scipy", "ml_dtypes", "pluggy", "msgpack", "rich", "click", "importlib.metadata",
    }  # fmt: skip
    assert heavy & set(loaded) == set()
    own = {m for m in loaded if m.startswith("mgx")}
    assert not {m for m in own if not m.startswith("mgx_core")}
    assert not {
        m
        for m in own
        if re.match(r"mgx_core\.(ops|ir|plugins|rules|passes|targets|compile|run|store|driver|quantize)", m)
    }


def test_building_shapes_and_arguments_loads_no_ops():
    loaded = loaded_by(
        "import mgx_core as mgx; mgx.Argument([1.0]); mgx.Shape('float', [2]); mgx.Program(); mgx.dim.symbol('n')"
    )
    assert not {m for m in loaded if m.startswith("mgx_core.plugins.manager") or m == "pluggy"} | families(loaded)


def test_asking_for_an_op_loads_no_frontend_and_no_target():
    loaded = loaded_by("import mgx_core as mgx; mgx.op('add'); mgx.plugin_manager().named('targets')")
    assert "onnx" not in loaded
    assert not {
        m for m in loaded if re.fullmatch(r"mgx_\w+\.(target|frontend|parser)", m) and not m.startswith("mgx_core")
    }


def test_importing_changes_no_state_of_others():
    code = """
import os, warnings, logging, numpy as np
def state():
    return repr((dict(os.environ), warnings.filters, logging.root.handlers, np.geterr(), np.get_printoptions()))
before = state()
import mgx_core
from mgx_core import ops
assert state() == before"""
    assert "mgx_core.ops" in loaded_by(code)


def test_the_environment_is_read_in_one_place():
    readers = {
        str(p.relative_to(CORE))
        for p in CORE.rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)\b", p.read_text()) and "driver" not in p.parts
    }
    assert readers == {"settings.py"}


REPOSITORY = CORE.parent
OUTSIDE = [
    p
    for folder in ("plugins", "conformance", "examples")
    for p in sorted((REPOSITORY / folder).rglob("*.py"))
    if "tests" not in p.relative_to(REPOSITORY).parts
]


@pytest.mark.skipif(not OUTSIDE, reason="the plugins' sources are not available")
def test_environment_variables_are_documented():
    """Every ``MGX_*`` variable that is read is documented for users."""
    read = re.compile(r"(?:getenv\(|setting\(f?|^\s*)\"(MGX_[A-Z_]+)\"", re.MULTILINE)
    files = [p for top in ("mgx_core", "plugins") for p in (REPOSITORY / top).rglob("*") if p.suffix in (".py", ".cpp")]
    used = {
        name
        for p in files
        if "tests" not in p.relative_to(REPOSITORY).parts
        for name in read.findall(p.read_text(encoding="utf-8"))
    }
    pages = [*(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "plugins").rglob("README.md")]
    said = {name for p in pages for name in re.findall(r"MGX_[A-Z_]+", p.read_text(encoding="utf-8"))}
    assert len(used) > 9
    assert sorted(used - said) == []


INTERFACES = ("Target", "Context", "Runner", "Kernel", "Pass", "Operation", "Frontend")
MEMBERS = {
    n for i in INTERFACES for n in {*dir(getattr(mgx_core, i)), *getattr(mgx_core, i).__annotations__} if n[0] != "_"
} - {"name", "values"}
OBJECTS = re.compile(r"(.*\.)?(op|of|target|context|runner|kernel|frontend|pass_|one)|op_of\(.*\)")
ATTRIBUTES = {  # attributes of some ops, which no interface has
    "mgx_core/passes/fuse_attention.py": {"axis"},
    "mgx_core/passes/fuse_elementwise.py": {"axes"},
    "mgx_core/ops/operation.py": {"substitute", "arity"},
    "mgx_core/rules/pads.py": {"padding_mode"},
    "plugins/cpu_dnnl/mgx_cpu_dnnl/jit/body.py": {"axes"},
    "plugins/cpu_dnnl/mgx_cpu_dnnl/jit/single_op.py": {"axes"},
    "plugins/cpu_dnnl/mgx_cpu_dnnl/plans/recurrent.py": {"actv_func", "clip", "input_forget"},
    "plugins/gpu_hip/mgx_gpu_hip/codegen/bodies.py": {"axes"},
    "plugins/gpu_hip/mgx_gpu_hip/codegen/pooling.py": {"dyn_global"},
}


def members_looked_up(source: str) -> list[tuple[str, str]]:
    """Returns each getattr with a default and each hasattr on an interface object, or for a member of an interface."""
    found: list[tuple[str, str]] = []
    if "getattr" not in source and "hasattr" not in source:
        return found
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        asks = (node.func.id == "getattr" and len(node.args) == 3) or node.func.id == "hasattr"
        if asks and isinstance(node.args[1], ast.Constant):
            asked, name = ast.unparse(node.args[0]), str(node.args[1].value)
            if name in MEMBERS or OBJECTS.fullmatch(asked):
                found.append((asked, name))
    return found


def test_members_of_interfaces_are_never_looked_up_by_name():
    """Base classes such as `mgx_core.Target` define every member with a default."""
    wrong = []
    for path in (*sorted(CORE.rglob("*.py")), *OUTSIDE):
        place = str(path.relative_to(REPOSITORY))
        wrong += [(place, o, n) for o, n in members_looked_up(path.read_text()) if n not in ATTRIBUTES.get(place, ())]
    assert wrong == []


def test_the_check_of_lookups_sees_what_it_should():
    source = """
getattr(target, "machine", None); getattr(self.runner, "anything", 0); hasattr(x, "decompose"); hasattr(ins.op, "foo")
getattr(array, "base", None); getattr(op, field.name); hasattr(data, "__dlpack__"); getattr(target, "name")"""
    assert [n for _, n in members_looked_up(source)] == ["machine", "anything", "decompose", "foo"]


def test_attributes_of_ops_hide_no_member():
    from mgx_core.ops import STANDARD

    hidden = {(op.name, f.name) for op in STANDARD for f in op.fields if f.name in MEMBERS}
    assert hidden == {("group", "tag")}


@pytest.mark.parametrize("model", sorted(CORE.parent.glob("examples/*/*.onnx")), ids=lambda p: p.name)
def test_models_hold_no_path_of_the_machine_that_wrote_them(model: Path) -> None:
    found = re.search(rb"(?<![\w./-])/[\w.-]+/[\w./-]+\.py", model.read_bytes())
    assert found is None, found
