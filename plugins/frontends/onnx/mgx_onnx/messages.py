"""Imports ONNX's protobuf classes and operator schemas without the rest of the package, which takes several times as long.

``onnx`` here is a proxy of the package: modules that parsing needs are loaded from the package's files under their own names, so
that a later import of the package finds the same classes; any other attribute imports the package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

__all__ = ["onnx"]

if TYPE_CHECKING:
    import onnx
else:

    class Package:
        """Proxy of the package onnx that loads each attribute on first access."""

        def __init__(self) -> None:
            self._loading = threading.RLock()  # these modules are loaded without the locks of the import system

        def __getattr__(self, name: str) -> Any:
            with self._loading:
                return vars(self)[name] if name in vars(self) else self._load(name)

        def _load(self, name: str) -> Any:
            if name == "defs":
                found = _schemas()
            elif name.endswith("Proto"):
                _defer_python_messages()
                found = getattr(_part("onnx_ml_pb2", ".py"), name)
            else:
                found = getattr(importlib.import_module("onnx"), name, None) or importlib.import_module(f"onnx.{name}")
            setattr(self, name, found)
            return found

    onnx = Package()


def _defer_python_messages() -> None:
    """Defers loading protobuf's implementation of messages in Python until one of its members is used.

    ``google.protobuf.descriptor_pool`` imports it also where messages are implemented in C, which never use it; it and what it
    imports take longer to load than the rest of protobuf.
    """
    package = importlib.import_module("google.protobuf.internal")
    name = f"{package.__name__}.python_message"
    if name in sys.modules or importlib.import_module(f"{package.__name__}.api_implementation").Type() == "python":
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[name] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    vars(package)["python_message"] = made  # an import of the name would look at the module, which loads it


def _schemas() -> Any:
    native = _part("onnx_cpp2py_export", *EXTENSION_SUFFIXES).defs
    names = ("get_schema", "get_all_schemas", "SchemaError")
    return SimpleNamespace(has=native.has_schema, **{n: getattr(native, n) for n in names})


def _part(name: str, *suffixes: str) -> ModuleType:
    """Returns a module of the package, without importing the package if the module's file is found."""
    full = f"onnx.{name}"
    known = sys.modules.get(full)
    if known is not None:
        return known
    package = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for suffix in suffixes:
            file = Path(folder) / f"{name}{suffix}"
            spec = importlib.util.spec_from_file_location(full, file) if file.is_file() else None
            if spec is not None and spec.loader is not None:
                made = importlib.util.module_from_spec(spec)
                sys.modules[full] = made
                try:
                    spec.loader.exec_module(made)
                except BaseException:
                    del sys.modules[full]
                    raise
                return made
    return importlib.import_module(full)
