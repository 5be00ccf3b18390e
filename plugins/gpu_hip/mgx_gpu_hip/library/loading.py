"""Finds and loads vendor libraries, and calls them with checked statuses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from mgx_core.errors import DeviceError
from mgx_core.settings import setting

from ..rocm_files import rocm_file

__all__ = ["Api", "Source", "find"]

LETTERS: Final[Mapping[str, Any]] = {
    "p": ctypes.c_void_p,  # a handle, an address, or the address of an output
    "z": ctypes.c_size_t,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "s": ctypes.c_char_p,
}


class Source(NamedTuple):
    """Search locations of one library.

    names: file names, newest first; variable: environment variable with the path of a file; wheels: globs under site-packages;
    roots: environment variables that name an installation, with their usual values; needs: libraries to load first, if present;
    rocm: the name under which hip-python finds it.
    """

    names: tuple[str, ...]
    variable: str
    wheels: tuple[str, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    needs: tuple[Source, ...] = ()
    rocm: str = ""


def candidates(source: Source) -> Iterator[str]:
    """Yields candidate paths, most explicit first; a bare name is resolved by the process or the system."""
    named = setting(source.variable)
    if named:
        yield named
        return
    chosen = rocm_file(source.rocm) if source.rocm else None
    if chosen:
        yield chosen
    yield from source.names
    for entry in sys.path:
        for pattern in source.wheels:
            for name in source.names:
                yield from map(str, sorted(Path(entry or ".").glob(f"{pattern}/{name}")))
    for variable, usual in source.roots:
        for root in dict.fromkeys(filter(None, (setting(variable), usual))):
            for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
                for name in source.names:
                    path = Path(root, folder, name)
                    if path.is_file():
                        yield str(path)


@cache
def find(source: Source) -> ctypes.CDLL:
    """Returns the loaded library.  Errors: DeviceError that lists the candidates if none is found."""
    for need in source.needs:
        try:
            find(need)
        except DeviceError:
            continue
    tried: dict[str, str] = {}
    for name in candidates(source):
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            tried[name] = str(error)
    detail = "; ".join(dict.fromkeys(tried.values()))
    raise DeviceError(f"{source.names[0]} was not found ({detail}); name the file in {source.variable}")


class Api:
    """The functions of one library, called by name; a non-zero status raises an error that names the call.

    library: object with the functions as attributes (a CDLL, or a fake in tests); signatures: parameter types by function name
    (see LETTERS); describe: returns the vendor's description of a status.
    """

    def __init__(self, library: Any, signatures: Mapping[str, str], describe: Callable[[int], str]) -> None:
        self.library = library
        self.describe = describe
        self.functions: dict[str, Callable[..., int]] = {}
        for name, letters in signatures.items():
            function = getattr(library, name, None)
            if function is None:
                continue
            if isinstance(library, ctypes.CDLL):
                function.argtypes = [LETTERS[letter] for letter in letters]
                function.restype = ctypes.c_int
            self.functions[name] = function

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def status(self, name: str, *args: Any) -> int:
        """Calls a function; returns its status.  Errors: DeviceError if the library has no such function."""
        function = self.functions.get(name)
        if function is None:
            raise DeviceError(f"the installed library has no {name}: install a newer version")
        return int(function(*args))

    def call(self, name: str, *args: Any) -> None:
        """Calls a function.  Errors: DeviceError with its name and the vendor's description of the status."""
        status = self.status(name, *args)
        if status:
            raise self.error(name, status)

    def error(self, name: str, status: int) -> DeviceError:
        return DeviceError(f"{name}: {self.describe(status)} ({status})")


def out(kind: Any = ctypes.c_void_p) -> tuple[Any, Any]:
    """Returns a variable for an output and the pointer to pass."""
    variable = kind()
    return variable, ctypes.pointer(variable)
