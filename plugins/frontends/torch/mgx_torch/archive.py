"""Reads exported programs from ``.pt2`` files as JSON and raw bytes, without unpickling or executing anything in them."""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from typing import Any, Final

import torch
from torch.export import ExportedProgram

from mgx_core import MgxError, ParseError

from .decompositions import all_converters

__all__ = ["read"]

LIMIT: Final = 1 << 30  # maximum bytes of the serialized graph
LENGTH: Final = 1 << 14  # maximum characters of a size expression
LARGEST: Final = 1 << 63  # maximum integer in a size expression
DEGREE: Final = 4096  # maximum factors in a size expression
EXPONENT: Final = 4  # maximum exponent in a size expression
BASE: Final = 100  # maximum terms in the base of a power, since torch expands it
MULTIPLIES: Final = re.compile(r"\b_?operator\.mul$|\.(repeat|tile)\b")
# harmless operators and integer functions that torch.export writes; not powers and shifts, whose results are unbounded
TARGET: Final = re.compile(
    r"torch\.ops\.(aten|prims|prim|torchvision|quantized_decomposed|torchao|higher_order)"
    r"\.(?!(from_file|save|load)\b)\w+(\.\w+)?"
    r"|_?operator\.(eq|ne|le|ge|lt|gt|neg|pos|abs|mul|add|sub|floordiv|truediv|mod|and_|or_|not_|getitem|rshift)"
    r"|math\.(trunc|ceil|floor|sqrt)|torch\.sym_(not|int|float|ite|max|min|sum|sqrt|constrain_range_for_size)|torch\._sym_sqrt"
)
CUSTOM: Final = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?")
# functions allowed in size expressions
FUNCTIONS: Final = frozenset((
    "FloorDiv", "Mod", "PythonMod", "CleanDiv", "CeilDiv", "Max", "Min", "Abs", "TruncToInt", "CeilToInt",
    "FloorToInt", "RoundToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "Identity", "Eq", "Ne", "Lt", "Le", "Gt",
    "Ge", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan",
    "And", "Or", "Not", "ModularIndexing", "Where", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "RShift",
    "IsNonOverlappingAndDenseIndicator", "Piecewise", "floor", "ceiling", "Symbol", "Integer", "Add", "Mul",
))  # fmt: skip
EXPRESSION: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.unaryop, ast.cmpop, ast.Load,
    ast.keyword, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
)  # fmt: skip
PICKLED: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # signature of torch.save's legacy format
INSTEAD: Final = (
    ", and mgx unpickles nothing; write the model with torch.export.save(torch.export.export(model, inputs), path)"
)
TREES: Final = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")


def read(data: bytes) -> ExportedProgram:
    """Returns the exported program in the bytes of a file.

    Errors: ParseError for a corrupt file, for pickled weights, and for references to code.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _program(archive)
    except MgxError:
        raise
    except zipfile.BadZipFile as error:
        if data.startswith(PICKLED):
            raise ParseError(f"the file was written by torch.save{INSTEAD}") from None
        raise ParseError(f"the file is not an archive of torch.export.save: {error}") from None
    except Exception as error:  # torch's deserializer raises arbitrary errors
        raise ParseError(f"the exported program is damaged: {type(error).__name__}: {str(error)[:500]}") from None


def _program(archive: zipfile.ZipFile) -> ExportedProgram:
    from torch._export.serde import schema
    from torch._export.serde.serialize import ExportedProgramDeserializer, _dict_to_dataclass

    names = {n.partition("/")[2]: n for n in archive.namelist()}
    found = [n for n in names if n.startswith("models/") and n.endswith(".json")]
    if not found and "data.pkl" in names:
        writer = "torch.jit.save" if "constants.pkl" in names else "torch.save"
        raise ParseError(f"the file was written by {writer}{INSTEAD}")
    if len(found) != 1:
        raise ParseError(f"the archive must contain one model, got {len(found)}")
    model = json.loads(_entry(archive, names[found[0]], LIMIT))
    _check(model)
    _remove_classes(model)
    model["guards_code"] = []
    state = _tensors(archive, names, "data/weights/", "model_weights_config.json")
    constants = _tensors(archive, names, "data/constants/", "model_constants_config.json")
    parsed = _dict_to_dataclass(schema.ExportedProgram, model)
    made: ExportedProgram = ExportedProgramDeserializer().deserialize(parsed, state, constants)
    return made


def _entry(archive: zipfile.ZipFile, name: str, limit: int | None = None) -> bytes:
    info = archive.getinfo(name)
    if limit is not None and info.file_size > limit:
        raise ParseError(f"{name} takes {info.file_size} bytes, more than {limit}")
    if info.compress_type != zipfile.ZIP_STORED and info.file_size > 200 * max(info.compress_size, 1):
        raise ParseError(f"{name} decompresses from {info.compress_size} to {info.file_size} bytes")
    return archive.read(name)


def _check(value: Any) -> None:
    """Checks a serialized program.

    Errors: ParseError for what torch's deserializer would import or evaluate, other than classes of arguments and results.
    """
    if isinstance(value, list):
        for item in value:
            _check(item)
    elif isinstance(value, dict):
        if isinstance(value.get("nodes"), list):
            _check_products(value["nodes"])
        for key, item in value.items():
            if key == "expr_str":
                _check_expression(item)
            elif key == "target" and isinstance(item, str) and "inputs" in value and not _callable(item):
                raise ParseError(
                    f"node {value.get('name')!r} calls {item!r}, which is not an operator of torch, and no "
                    "installed package converts it"
                )
            elif key == "as_operator" and not TARGET.fullmatch(str(item)):  # callable by a higher-order operator
                raise ParseError(f"a node takes {item!r} as an argument, which is not an operator of torch")
            else:
                _check(item)


def _remove_classes(value: Any) -> None:
    """Replaces the classes of arguments and results in a serialized program by tuples."""
    if isinstance(value, list):
        for item in value:
            _remove_classes(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("in_spec", "out_spec") and isinstance(item, str):
                version, spec = json.loads(item)
                value[key] = json.dumps([version, _without_classes(spec)])
            else:
                _remove_classes(item)


def _callable(target: str) -> bool:
    """Returns True for torch's own operators, and for those with a converter (whose lookup imports its package)."""
    if TARGET.fullmatch(target):
        return True
    custom = CUSTOM.fullmatch(target)
    if custom is None:
        return False
    namespace, packet, overload = custom.groups()
    converters = all_converters()
    return any(converters.find(namespace, name, 1) is not None for name in (f"{packet}.{overload}", packet))


def _check_products(nodes: list[Any]) -> None:
    """Errors: ParseError for products of too many sizes, which torch would expand symbolically during deserialization."""
    degrees: dict[str, int] = {}  # degrees of sizes and tensors as polynomials in input sizes
    for node in nodes:
        given = [degrees.get(name, 1) for name in _names(node.get("inputs"))]
        multiplies = MULTIPLIES.search(str(node.get("target"))) is not None
        found = sum(given) if multiplies else max(given, default=1)
        if found > DEGREE:
            raise ParseError(f"node {node.get('name')!r} is a product of more than {DEGREE} sizes")
        degrees |= dict.fromkeys(_names(node.get("outputs")), found)


def _names(value: Any) -> list[str]:
    """Returns the value names in serialized arguments or results."""
    if isinstance(value, list):
        return [name for item in value for name in _names(item)]
    if not isinstance(value, dict):
        return []
    found = [str(item) for key, item in value.items() if key in ("name", "as_name") and "arg" not in value]
    return found + [name for item in value.values() for name in _names(item)]


def _check_expression(text: Any) -> None:
    if len(str(text)) > LENGTH:
        raise ParseError(f"a size of {len(str(text))} characters is longer than {LENGTH}")
    try:
        tree = ast.parse(str(text), mode="eval")
    except SyntaxError:
        raise ParseError(f"the size {text!r} is not an expression") from None
    names = set()  # symbol names, the only strings allowed
    for node in ast.walk(tree):
        known = isinstance(node, EXPRESSION)
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
            if known and node.func.id == "Symbol" and node.args:  # type: ignore[attr-defined]
                names.add(node.args[0])
            known = known or _is_small_power(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            known = abs(node.value) <= LARGEST
        elif isinstance(node, ast.Constant):
            known = (
                node in names and isinstance(node.value, str) and re.fullmatch(r"[A-Za-z_]\w*", node.value) is not None
            )
        if not known:
            raise ParseError(f"the size {text!r} must consist of numbers, symbols and known functions")


def _is_small_power(node: ast.AST) -> bool:
    """Returns True for ``Pow(base, Integer(n))`` with small n and no nested power, the form of squared sizes."""
    match node:
        case ast.Call(ast.Name("Pow"), [base, ast.Call(ast.Name("Integer"), [ast.Constant(int(exponent))], [])], []):
            parts = list(ast.walk(base))
            powers = any(isinstance(p, ast.Name) and p.id == "Pow" for p in parts)
            return 0 < exponent <= EXPONENT and len(parts) <= BASE and not powers
    return False


def _without_classes(spec: Any) -> dict[str, Any]:
    """Returns a pytree spec with tuples in place of classes, which torch would look up; programs use its leaves only."""
    kind, context = (spec["type"], spec["context"]) if spec["type"] in TREES else (TREES[1], "null")
    return {
        "type": kind,
        "context": context,
        "children_spec": [_without_classes(child) for child in spec["children_spec"]],
    }


def _tensors(archive: zipfile.ZipFile, names: dict[str, str], folder: str, listing: str) -> dict[str, Any]:
    if folder + listing not in names:
        return {}
    config = json.loads(_entry(archive, names[folder + listing], LIMIT))["config"]
    stored: dict[str, torch.Tensor] = {}
    found: dict[str, Any] = {}
    for name, entry in config.items():
        path = folder + str(entry["path_name"])
        if entry["use_pickle"] or not entry.get("tensor_meta"):
            raise ParseError(
                f"{name!r} is pickled in the file; mgx unpickles nothing. Save the program with plain tensors"
            )
        if path not in names:
            raise ParseError(f"the bytes of {name!r} are missing")
        if path not in stored:
            stored[path] = torch.frombuffer(bytearray(_entry(archive, names[path])) or bytearray(1), dtype=torch.uint8)
        found[name] = _tensor(name, entry, stored[path])
    return found


def _tensor(name: str, entry: dict[str, Any], data: torch.Tensor) -> Any:
    from torch._export.serde import schema
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    meta = entry["tensor_meta"]
    dtype = _SERIALIZE_TO_TORCH_DTYPE[schema.ScalarType(meta["dtype"])]
    sizes, strides = ([int(d["as_int"]) for d in meta[key]] for key in ("sizes", "strides"))
    offset = int(meta["storage_offset"]["as_int"])
    last = offset + sum((d - 1) * s for d, s in zip(sizes, strides, strict=True))
    width = dtype.itemsize
    if min([*sizes, *strides, offset], default=0) < 0 or (0 not in sizes and (last + 1) * width > data.numel()):
        raise ParseError(f"{name!r} of {sizes} needs {(last + 1) * width} bytes, the file has {data.numel()}")
    flat = data[: data.numel() // width * width].view(dtype)
    tensor = torch.as_strided(flat, sizes, strides, offset) if 0 not in sizes else torch.empty(sizes, dtype=dtype)
    return torch.nn.Parameter(tensor, requires_grad=False) if entry.get("is_param") else tensor
