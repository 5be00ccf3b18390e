"""Loads MIGraphX's program files, if they were saved before compilation, as msgpack or JSON.

Top-level keys: ``version``, ``migraphx_version``, ``targets``, ``contexts``, ``modules``.  A module has ``nodes`` in order.  A
node has ``output`` (the name of its value), ``name`` (of its operation), ``operator`` (attributes), ``inputs``,
``module_inputs``, ``shape`` and ``literal``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgpack
import numpy as np

from mgx_core.errors import MgxError, StoreError, UnsupportedError
from mgx_core.store.container import is_program
from mgx_core.types.memory_limit import require_memory

from .arguments import argument
from .element_types import core_dtype
from .instructions import instruction_ref, module
from .operations import op
from .programs import program
from .shapes import core_shape, of_record

__all__ = ["is_stored", "read_stored"]

KEYS: Final = ("version", "modules")
COMPILED: Final = ("gpu::", "cpu::", "hip::", "dnnl::", "ref::")  # operations inserted by compilation
COPIED: Final = 100_000  # most instructions, with a copy of a module for each one that runs it; more for large files
FOREIGN: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def is_stored(head: bytes) -> bool:
    """True if the beginning of a file, at least 64 bytes, may be that of a MIGraphX file: a map, but not a program of mgx."""
    if not head or is_program(head):
        return False
    return 0x80 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF) or head.lstrip().startswith(b"{")


def read_stored(data: bytes, place: Any = "") -> program:
    """Loads a program from a file's bytes.

    Errors: StoreError for invalid data; UnsupportedError for compiled programs and unknown operations.
    """
    try:
        is_json = data.lstrip()[:1] == b"{"
        tree = json.loads(data) if is_json else msgpack.unpackb(data, strict_map_key=False)
        if not isinstance(tree, Mapping) or any(k not in tree for k in KEYS):
            raise StoreError(f"a program file of MIGraphX must have the keys {', '.join(KEYS)}")
        if tree.get("targets"):
            raise UnsupportedError(
                "the program was saved after it was compiled and contains MIGraphX's kernels: save it before compiling"
            )
        return _Reader(tree["modules"]).whole()
    except MgxError as error:
        if place:
            raise error.located(str(place)) from None
        raise
    except FOREIGN as error:
        problem = StoreError(f"this is not a program file of mgx or MIGraphX: {type(error).__name__}: {error}")
        raise (problem.located(str(place)) if place else problem) from None


class _Reader:
    def __init__(self, modules: Mapping[str, Any]) -> None:
        self.stored = modules
        self.made = program()
        self.modules: dict[str, module] = {"main": self.made.get_main_module()}
        self.open: list[str] = []  # modules being read, outermost first
        self.values: dict[str, instruction_ref] = {}
        self.copied: dict[
            str, int
        ] = {}  # instructions by module, with a copy of a module for each instruction that runs it

    def whole(self) -> program:
        """Returns the program.

        Errors: StoreError for modules that are run so often that copies of them would be too many: passes work on copies, and
        twenty modules that each run the next one twice are a million.
        """
        self.fill("main")
        most = max(COPIED, 4 * sum(len(self.stored[name]["nodes"]) for name in self.modules))
        if self.copied["main"] > most:
            raise StoreError(
                f"at most {most} instructions are supported, with a copy of a module for each instruction that runs it, and the "
                "program has more: store fewer instructions that run the same module"
            )
        return self.made

    def inner(self, name: str) -> module:
        """Returns a module by name, read on first use: it may use values defined before the instruction that runs it.

        Errors: StoreError for a module that encloses that instruction.
        """
        if name in self.open:
            raise StoreError(f"module {name!r} is called by an instruction inside it")
        if name not in self.modules:
            self.modules[name] = self.made.create_module(name)
            self.fill(name)
        return self.modules[name]

    def fill(self, name: str) -> None:
        into = self.modules[name]
        self.open.append(name)
        nodes = self.stored[name]["nodes"]
        copied = len(nodes)
        for node in nodes:
            self.add(into, node)
            copied += sum(self.copied[m] for m in node.get("module_inputs") or ())
        self.copied[name] = copied
        if nodes and nodes[-1]["name"] != "@return":  # without a return, the last value is the result
            into.add_return([self.values[nodes[-1]["output"]]])
        self.open.pop()

    def add(self, into: module, node: Mapping[str, Any]) -> None:
        inputs = [self.values[i] for i in node.get("inputs") or ()]
        kind = node["name"]
        match kind:
            case "@return":
                into.add_return(inputs)
                return
            case "@param":
                made = into.add_parameter(node["operator"]["parameter"], of_record(node["shape"]))
            case "@literal":
                made = into.add_literal(_literal(node["literal"]))
            case _:
                if kind.startswith(COMPILED):
                    raise UnsupportedError(
                        f"{kind} is an operation of a compiled program: save it before it is compiled"
                    )
                modules = [self.inner(m) for m in node.get("module_inputs") or ()]
                made = into.add_instruction(op(kind, **_attributes(node.get("operator") or {})), inputs, modules)
        self.values[node["output"]] = made


def _attributes(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes by name; those without a value have their defaults."""
    return {k: _attribute(v) for k, v in stored.items() if v is not None}


def _attribute(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "name" in value and "operator" in value:  # an operation, e.g. an activation of a recurrent layer
            return op(value["name"], **_attributes(value["operator"] or {}))
        if "type" in value:
            return of_record(value)
    return list(map(_attribute, value)) if isinstance(value, list) else value


def _literal(stored: Mapping[str, Any]) -> argument:
    """Returns a literal's elements, which are stored with its shape's strides.

    Errors: StoreError for strides that are negative or out of range; DeviceError if broadcast elements (strides of 0) would
    exceed the memory limit.
    """
    given = of_record(stored["shape"])
    core = core_shape(given)
    if min(core.strides(), default=0) < 0:
        raise StoreError(f"strides of a literal must not be negative, got {given}")
    require_memory(core.lens(), core.dtype.size, "a literal")
    flat = np.frombuffer(_bytes(stored["data"]), core_dtype(given.type_string()).numpy)
    if flat.size < core.element_space():
        raise StoreError(f"a literal of {given} has {flat.size} elements, {core.element_space()} are required")
    steps = [n * core.dtype.size for n in core.strides()]
    return argument(np.lib.stride_tricks.as_strided(flat, core.lens(), steps))


def _bytes(stored: Any) -> bytes:
    """Returns binary data: bytes, a list of chunks, or in JSON a list of numbers under the key ``bytes``."""
    if isinstance(stored, Mapping):
        stored = stored["bytes"]
        if isinstance(stored, list):
            return bytes(stored)
    if isinstance(stored, int):  # bytes(n) would create n zeros
        raise StoreError(f"a literal's data must be bytes, got the number {stored}")
    return b"".join(map(_bytes, stored)) if isinstance(stored, list) else bytes(stored)
