"""Kernel source: adds the prelude, and parses the kernels it defines and their parameters."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "EMULATOR", "PRELUDE", "Parameter", "any_wave", "complete", "kernels", "max_threads", "parameter_codes", "prelude",
    "signature",
]  # fmt: skip

PRELUDE: Final = Path(__file__).parent / "prelude"
EMULATOR: Final = Path(__file__).parent / "emulator"
PARTS: Final = ("platform.h", "types.h", "math.h", "wave.h", "memory.h")
MATRIX: Final = "matrix.h"
NARROW: Final = "narrow.h"
GROUP: Final = "group.h"
CODED: Final = "coded.h"
CLUSTERS: Final = "cluster.h"

_CLUSTER = r"(?:CLUSTER\s*\(\d+\)\s*)?"
_KERNEL = re.compile(rf"\bKERNEL\s*\([^)]*\)\s*{_CLUSTER}(\w+)\s*\(([^)]*)\)")
_NAMED = re.compile(r"\bKERNEL\s*\([^)]*\)\s*(?:CLUSTER\s*\((\d+)\)\s*)?(\w+)")
# what depends on the wave's width among the parts that every kernel has
_WAVE = re.compile(r"WAVE|wave_|lane|block_reduce")
_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.M)

# C type -> (struct format character, bytes)
SCALARS: Final = {
    "bool": ("?", 1), "i8": ("b", 1), "u8": ("B", 1), "i16": ("h", 2), "u16": ("H", 2),
    "int": ("i", 4), "i32": ("i", 4), "unsigned": ("I", 4), "unsigned int": ("I", 4), "u32": ("I", 4), "float": ("f", 4),
    "i64": ("q", 8), "long long": ("q", 8), "u64": ("Q", 8), "unsigned long long": ("Q", 8), "double": ("d", 8),
}  # fmt: skip


class Parameter(NamedTuple):
    """A kernel's parameter; `code` is its struct format character, ``P`` for pointers; `const` for read-only pointers."""

    name: str
    type: str
    code: str
    const: bool


@cache
def prelude(
    *,
    matrix: bool = True,
    narrow: bool = True,
    group: bool = True,
    coded: bool = True,
    clusters: bool = True,
    emulated: bool = False,
) -> str:
    """Returns the prelude as one source with its includes resolved.

    narrow, coded: matrix-unit operations on int8/fp8 and on 4-bit codes; group: those of four waves together (wgmma); clusters:
    shared memory of other blocks.
    """
    wanted = {
        MATRIX: matrix or narrow or group or coded,
        NARROW: narrow or group,
        GROUP: group,
        CODED: coded,
        CLUSTERS: clusters,
    }
    parts = [*PARTS, *(name for name, needed in wanted.items() if needed)]

    def include(found: re.Match[str]) -> str:
        name = found.group(1)
        if name == "kernel.h":
            return (EMULATOR / name).read_text().replace("#pragma once\n", "") if emulated else ""
        return (PRELUDE / name).read_text()

    text = "".join((PRELUDE / name).read_text() for name in parts).replace("#pragma once\n", "")
    return _INCLUDE.sub(include, text)


def complete(text: str, *, emulated: bool = False) -> str:
    """Returns the source with the parts of the prelude that it uses."""
    head = prelude(emulated=emulated, **_used(text))
    out = f'{head}\n#line 1 "kernels.hip"\n{text}\n'
    if emulated:
        out += f"EMU_MODULE({', '.join(_entries(text))})\n"
    return out


def _used(text: str) -> dict[str, bool]:
    """Returns which of the prelude's optional parts the source uses, by their names in `prelude`."""
    return {
        "matrix": "frag_" in text or "unit::" in text or "FRAG" in text,
        "narrow": "nfrag" in text,
        "group": "group_mma" in text,
        "coded": "coded::" in text,
        "clusters": "cluster_" in text,
    }


def any_wave(text: str) -> bool:
    """True if the source's meaning is independent of the number of lanes per wave."""
    return not any(_used(text).values()) and not _WAVE.search(text)


def _entries(text: str) -> list[str]:
    """Returns the entries of a module of the emulated device; names are qualified by a batched translation unit's namespace."""
    out, space = [], ""
    for line in text.splitlines():
        if line.startswith("namespace unit_"):
            space = line.split()[1] + "::"
        out += [f'EMU_ENTRY("{name}", {space}{name}, {cluster or 1})' for cluster, name in _NAMED.findall(line)]
    return out


def kernels(text: str) -> list[str]:
    """Returns names of the kernels that the source defines with the KERNEL macro."""
    return [found.group(1) for found in _KERNEL.finditer(text)]


def max_threads(text: str, name: str) -> int | None:
    """Returns the maximum number of threads per block a kernel is compiled for; None if its source has no literal for it."""
    found = re.search(rf"\bKERNEL\s*\(\s*(\d+)\s*(?:,[^)]*)?\)\s*{_CLUSTER}{name}\b", text)
    return int(found.group(1)) if found else None


def signature(text: str, name: str) -> tuple[Parameter, ...]:
    """Returns the parameters of a kernel: pointers and scalars of the prelude's types.

    Errors: KeyError if the source has no such kernel; ValueError for a parameter of another type.
    """
    for found in _KERNEL.finditer(text):
        if found.group(1) == name:
            items = [item.strip() for item in found.group(2).split(",")]
            return tuple(_parameter(item) for item in items if item and item != "void")
    raise KeyError(f"the source has no kernel {name!r}")


def parameter_codes(text: str, name: str) -> str:
    """Returns the struct format of a kernel's parameters, with P for pointers.  Errors: as `signature`."""
    return "".join(parameter.code for parameter in signature(text, name))


def _parameter(text: str) -> Parameter:
    words = text.replace("*", " * ").replace("RESTRICT", "").replace("__restrict__", "").split()
    const = words[0] == "const"
    name, type = words[-1], " ".join(w for w in words[:-1] if w != "const")
    if type.endswith("*"):
        return Parameter(name, type.replace(" ", ""), "P", const)
    if type not in SCALARS:
        raise ValueError(f"a kernel's parameter must be a pointer or one of {', '.join(SCALARS)}, got {text!r}")
    return Parameter(name, type, SCALARS[type][0], True)
