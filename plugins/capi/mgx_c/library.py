"""Connects the embedded library to this package."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

from . import options, tensors, verifying
from .calls import SUCCESS, Calls
from .custom_operators import CustomOperators
from .declarations import Function, functions
from .locations import root
from .programs import Programs

__all__ = ["install"]


def install(ffi: Any, lib: Any) -> None:
    """Binds every function of the header to the Python function of the same name; called once, when the library starts."""
    text = (root() / "include" / "migraphx" / "migraphx.h").read_text()
    calls = Calls(ffi, lib, frozenset(re.findall(r"typedef struct migraphx_(\w+)\*", text)))
    operators = CustomOperators(calls)
    owners = (tensors, options, verifying, Programs(calls, operators), operators)
    for function in functions(text):
        ffi.def_extern(name=f"py_{function.name}", error=4)(_bound(calls, function, owners))
    ffi.def_extern(name="py_mgx_start", error=0)(lambda: 1)
    ffi.def_extern(name="py_mgx_last_error")(calls.last_error)


def _bound(calls: Calls, function: Function, owners: tuple[Any, ...]) -> Callable[..., int]:
    name = function.name.removeprefix("migraphx_")
    if name.endswith("_destroy"):
        return _destroyer(calls, name.removesuffix("_destroy"))
    if name.endswith("_assign_to"):
        return _assigner(calls, name.removesuffix("_assign_to"))
    owner = next(o for o in owners if hasattr(o, name))
    return calls.wrap(function, getattr(owner, name))


def _destroyer(calls: Calls, kind: str) -> Callable[..., int]:
    def destroy(pointer: Any) -> int:
        try:
            calls.handles.destroy(calls.address(pointer), kind)
        except Exception as error:
            return calls.fail(f"{kind}_destroy", error)
        return SUCCESS

    return destroy


def _assigner(calls: Calls, kind: str) -> Callable[..., int]:
    def assign(output: Any, source: Any) -> int:
        try:
            value = calls.handles.get(calls.address(source), kind).value
            calls.handles.assign(calls.handles.get(calls.address(output), kind), copy.copy(value))
        except Exception as error:
            return calls.fail(f"{kind}_assign_to", error)
        return SUCCESS

    return assign
