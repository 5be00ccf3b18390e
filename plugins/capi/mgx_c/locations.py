"""``mgx-c``: prints the locations of headers, library and CMake files, for build scripts."""

from __future__ import annotations

import argparse
from importlib.metadata import distribution
from pathlib import Path

__all__ = ["main", "root"]


def root() -> Path:
    """Returns the folder that contains ``include`` and ``lib``: next to this file unless the installation is editable."""
    return Path(str(distribution("mgx-c").locate_file("mgx_c"))).resolve()


def main() -> None:
    """Prints one line for each option given."""
    parser = argparse.ArgumentParser(prog="mgx-c", description="Where the C and C++ interface of mgx is installed.")
    here = root()
    known = {
        "cmakedir": (here / "lib" / "cmake" / "migraphx", "folder for migraphx_DIR or CMAKE_PREFIX_PATH"),
        "includedir": (here / "include", "folder of headers"),
        "libdir": (here / "lib", "folder of the library"),
        "pkgconfigdir": (here / "lib" / "pkgconfig", "folder for PKG_CONFIG_PATH"),
        "cflags": (f"-I{here / 'include'}", "options for the compiler"),
        "libs": (f"-L{here / 'lib'} -lmigraphx_c -Wl,-rpath,{here / 'lib'}", "options for the linker"),
    }
    for name, (_, text) in known.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    given = vars(parser.parse_args())
    if not any(given.values()):
        parser.print_help()
    for name, (value, _) in known.items():
        if given[name]:
            print(value)
