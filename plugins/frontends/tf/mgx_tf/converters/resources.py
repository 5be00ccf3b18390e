"""Variables and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mgx_core import Instruction, ParseError
from mgx_core import dtype as dt
from mgx_core.converting.rearranged import gather_in_batches
from mgx_core.types.strings import decoded

from ..converter import converts_values
from ..node import Node
from ..resources import Table
from ..values import Handle, Value
from .parts import slice_replaced

LIMIT_LINES = 1 << 24


def _handle(n: Node, value: Value, kind: str) -> Handle:
    if not isinstance(value, Handle) or value.kind != kind:
        n.fail(f"a {kind} is required")
    return value


@converts_values("VarHandleOp", "VariableV2", "Variable")
def variable(n: Node) -> Value:
    if n.op_type == "VarHandleOp":
        return Handle("variable", n.name, None)
    return n.scope.context.resources.read(n.name)  # a reference variable, read at this node


@converts_values("ReadVariableOp")
def read(n: Node, handle: Value) -> Value:
    return n.scope.context.resources.read(_handle(n, handle, "variable").name)


@converts_values("VarIsInitializedOp", "IsVariableInitialized")
def initialized(n: Node, handle: Value) -> Value:
    return n.literal(True, dt.bool_)


@converts_values("VariableShape")
def variable_shape(n: Node, handle: Value) -> Value:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    return n.literal(np.array(held.shape.lens(), np.int64), n.dtype("out_type", dt.int32))


@converts_values("ResourceGather")
def resource_gather(n: Node, handle: Value, indices: Instruction) -> Value:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    return gather_in_batches(n, held, indices, n.int("batch_dims", 0), n.int("batch_dims", 0))


@converts_values("ResourceGatherNd")
def resource_gather_nd(n: Node, handle: Value, indices: Instruction) -> Value:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    return n.add("gathernd", held, n.convert(indices, dt.int64))


def _assigned(n: Node, handle: Value, value: Instruction) -> Any:
    context, name = n.scope.context, _handle(n, handle, "variable").name
    if context.initializing:
        context.resources.begin(name, n.require(value, "a variable's initial value"))
    else:
        context.resources.assign(name, value)
    return ()


@converts_values("AssignVariableOp")
def assign(n: Node, handle: Value, value: Instruction) -> Any:
    return _assigned(n, handle, value)


@converts_values("AssignAddVariableOp", "AssignSubVariableOp")
def assign_add(n: Node, handle: Value, value: Instruction) -> Any:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    op = "add" if n.op_type == "AssignAddVariableOp" else "sub"
    return _assigned(n, handle, n.pointwise(op, held, value))


@converts_values("ResourceStridedSliceAssign")
def assign_slice(
    n: Node, handle: Value, begin: Instruction, end: Instruction, strides: Instruction, value: Instruction
) -> Any:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    return _assigned(n, handle, slice_replaced(n, held, begin, end, strides, value))


SCATTERS = {
    "ResourceScatterUpdate": "none", "ResourceScatterAdd": "add", "ResourceScatterSub": "add", "ResourceScatterMul": "mul",
    "ResourceScatterMax": "max", "ResourceScatterMin": "min", "ResourceScatterNdUpdate": "none", "ResourceScatterNdAdd": "add",
    "ResourceScatterNdSub": "add", "ResourceScatterNdMax": "max", "ResourceScatterNdMin": "min",
}  # fmt: skip


@converts_values(*SCATTERS)
def scatter(n: Node, handle: Value, indices: Instruction, updates: Instruction) -> Any:
    held = n.scope.context.resources.read(_handle(n, handle, "variable").name)
    at = n.convert(indices, dt.int64)
    if "Nd" not in n.op_type:  # one update per row, or a scalar for all elements
        updates = n.broadcast_to(updates, (*at.shape.dims, *held.shape.dims[1:]))
        at = n.unsqueeze(at, [at.shape.rank])
    if n.op_type.endswith("Sub"):
        updates = n.pointwise("neg", updates)
    return _assigned(n, handle, n.add(f"scatternd_{SCATTERS[n.op_type]}", held, at, updates))


@converts_values(
    "HashTableV2", "MutableHashTableV2", "MutableDenseHashTableV2", "HashTable", "AnonymousHashTable", "MutableHashTable",
    "MutableDenseHashTable", "AnonymousMutableHashTable", "AnonymousMutableDenseHashTable",
)  # fmt: skip
def table(n: Node, *rest: Value) -> Value:
    return Handle("table", n.name, n)


@converts_values(
    "LookupTableImportV2",
    "LookupTableImport",
    "InitializeTableV2",
    "InitializeTable",
)
def import_table(n: Node, handle: Value, keys: Instruction, values: Instruction) -> Any:
    resources = n.scope.context.resources
    found = Table(n.require(keys, "a table's keys").reshape(-1), n.require(values, "a table's values"))
    resources.tables[_handle(n, handle, "table").name] = found
    return ()


@converts_values("LookupTableInsertV2", "LookupTableInsert")
def insert(n: Node, handle: Value, keys: Instruction, values: Instruction) -> Any:
    if not n.scope.context.initializing:
        n.unsupported("tables that change between runs: only initializers may insert into a table")
    resources, name = n.scope.context.resources, _handle(n, handle, "table").name
    more = Table(n.require(keys, "a table's keys").reshape(-1), n.require(values, "a table's values"))
    held = resources.table(name)
    resources.tables[name] = more if held is None else held.joined(more)
    return ()


@converts_values("InitializeTableFromTextFileV2", "InitializeTableFromTextFile")
def import_text(n: Node, handle: Value, file: Instruction) -> Any:
    resources = n.scope.context.resources
    path = Path(str(n.require(file, "the file's name").reshape(-1)[0]))
    folder = resources.folder
    if folder is None or not path.resolve().is_relative_to((folder / "assets").resolve()):
        n.fail(f"the table's file {str(path)!r} is not an asset of the model")
    try:
        lines = [decoded(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise ParseError(f"asset {path.name!r} cannot be read: {error.strerror}") from None
    if len(lines) > LIMIT_LINES:
        n.fail(f"asset {path.name!r} has more than {LIMIT_LINES} lines")
    size, offset = n.int("vocab_size", -1), n.int("offset", 0)
    lines = lines[offset : None if size < 0 else offset + size]
    delimiter = n.string("delimiter", "\t")
    kinds = [_handle(n, handle, "table").node.dtype(w) for w in ("key_dtype", "value_dtype")]
    columns = [
        _column(n, lines, n.int(w), delimiter, kind)
        for w, kind in zip(("key_index", "value_index"), kinds, strict=True)
    ]
    resources.tables[_handle(n, handle, "table").name] = Table(*columns)
    return ()


def _column(n: Node, lines: list[str], index: int, delimiter: str, kind: Any) -> Any:
    """Returns column `index` of the lines; -1 is the line number, -2 the whole line."""
    if index == -1:
        return np.arange(len(lines)).astype(kind.numpy)
    words = lines if index == -2 else []
    if index >= 0:
        parts = [line.split(delimiter) for line in lines]
        if any(len(p) <= index for p in parts):
            n.fail(f"a line of the table's file does not have a column {index}")
        words = [p[index] for p in parts]
    if kind.kind == "s":
        out = np.empty(len(words), object)
        out[:] = words
        return out
    try:
        return np.array([float(w) if kind.is_float else int(w) for w in words]).astype(kind.numpy)
    except ValueError as error:
        return n.fail(f"the table's file must contain numbers: {error}")


def _table(n: Node, value: Value) -> Table:
    handle = _handle(n, value, "table")
    found = n.scope.context.resources.table(handle.name)
    if found is None:
        n.unsupported(
            f"table {handle.name!r} is never initialized: the graph does not contain its keys "
            "(frozen graphs lose them; parse the SavedModel)"
        )
    return found


@converts_values("LookupTableFindV2", "LookupTableFind")
def find(n: Node, handle: Value, keys: Instruction, default: Instruction) -> Value:
    held = _table(n, handle)
    value_literal = n.literal(held.values, default.shape.dtype)
    key_literal = n.literal(held.keys, keys.shape.dtype)
    return n.add("tf_table_find", keys, key_literal, value_literal, default)


@converts_values("LookupTableSizeV2", "LookupTableSize")
def table_size(n: Node, handle: Value) -> Value:
    return n.literal(len(_table(n, handle).keys), dt.int64)


@converts_values("LookupTableExportV2", "LookupTableExport")
def export_table(n: Node, handle: Value) -> Any:
    held, made = _table(n, handle), _handle(n, handle, "table").node
    return n.literal(held.keys, made.dtype("key_dtype")), n.literal(held.values, made.dtype("value_dtype"))
