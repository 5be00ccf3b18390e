"""Builds many kernels: from the cache or compiled in parallel, batched into translation units."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from mgx_core.cache import DiskCache
from mgx_core.errors import DeviceError
from mgx_core.records import dataclass
from mgx_core.settings import setting

from .compiler import CompileError, Compiler
from .compilers import compiler_for
from .processes import MOST, compiler_processes
from .source import any_wave, complete, kernels

__all__ = ["Code", "KernelCache", "Key", "Source", "build", "digest", "flags_of"]

JOBS = 8
MUCH_TEXT: Final = 131072  # characters from which on processes compile: the text of 20 products on matrix units
# most and fewest characters of a unit: two products on matrix units take as long to compile as dozens of pointwise kernels;
# beyond the prelude, which takes 0.04 s, the time grows with the text
UNIT_TEXT: Final = 16384
LEAST_TEXT: Final = 4096
UNITS: Final = 4  # of each worker, so that none compiles for long after the others are done


class Source(Protocol):
    """A kernel to compile: ``name`` of the kernel in ``text``; optionally ``flags``, ``nodes`` (its source nodes) and ``origin``
    (its name and package, for messages)."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Code:
    """A compiled kernel by its source's name; several may share one image."""

    name: str
    image: bytes


Key: TypeAlias = "tuple[str, tuple[str, ...]]"  # source text and flags


def build(
    sources: Sequence[Source],
    arch: str,
    *,
    compiler: Compiler | None = None,
    store: KernelCache | None = None,
    jobs: int = 0,
    batch: int = 0,
    kept: Mapping[str, bytes] | None = None,
    loaded: MutableMapping[Key, Code] | None = None,
) -> list[Code]:
    """Returns code for every source, in order.  Equal sources are compiled once.

    kept: existing code by `digest`; no compiler is needed if it covers all sources.
    loaded: code in use by programs of this process for this architecture, which is looked up first and updated.
    jobs: compilations at a time, by default as many as the machine has cores, at most 8 in threads (run-time compilers share
    locks) and 16 in processes.
    batch: kernels per translation unit; 0: enough to keep every job busy, at most 16 and `UNIT_TEXT` characters (parsing the
    prelude dominates for small kernels).  The longest units are compiled first.  Each source gets a namespace of its own, but
    macros would leak: a source that defines macros is compiled alone.
    $MGX_DUMP_KERNELS names a directory for the source of every kernel.
    Errors: CompileError that names the kernel and its source nodes.
    """
    dump = setting("MGX_DUMP_KERNELS")
    units: dict[Key, Source] = {}
    for source in sources:
        units.setdefault(_key_of(source), source)
        if dump:
            Path(dump).mkdir(parents=True, exist_ok=True)
            (Path(dump) / f"{source.name}.hip").write_text(source.text)
    found = {key: code for key in units if (code := (loaded or {}).get(key)) is not None}
    images = {key: code.image for key, code in found.items()}
    if kept:
        here = {key: kept.get(digest(*key, arch)) for key in units.keys() - images}
        images |= {key: image for key, image in here.items() if image is not None}
    missing = [source for key, source in units.items() if key not in images]
    if missing:
        compiler = compiler or compiler_for(arch)
        store = store or KernelCache()
        cached = {_key_of(s): store.get(_cache_key(store, compiler, s, arch)) for s in missing}
        images |= {key: image for key, image in cached.items() if image is not None}
        missing = [source for source in missing if _key_of(source) not in images]
    if missing:
        assert compiler is not None
        assert store is not None
        cores = len(os.sched_getaffinity(0))
        apart = not jobs and cores > 1 and _in_processes(compiler, missing)
        workers = jobs or min(cores, MOST if apart else JOBS)
        most = _length(missing) // (UNITS * workers)
        most = UNIT_TEXT if batch else max(LEAST_TEXT, min(UNIT_TEXT, most))
        groups = _groups(missing, arch, batch or min(16, -(-len(missing) // workers)), most)
        workers = max(1, min(workers, len(groups)))
        with (
            compiler_processes(compiler, workers) if apart else nullcontext(compiler) as compiler,
            ThreadPoolExecutor(workers) as pool,
        ):
            for made in pool.map(partial(_compile, arch=arch, compiler=compiler, store=store), groups):
                images.update(made)
    codes = []
    for source in sources:
        key = _key_of(source)
        code = found.get(key)
        if code is None or code.name != source.name:
            code = Code(source.name, images[key])
            found.setdefault(key, code)
        codes.append(code)
    if loaded is not None:
        loaded.update(found)
    return codes


def _in_processes(compiler: Compiler, sources: Sequence[Source]) -> bool:
    """Returns True if compiling takes longer than to start processes, and threads would wait for the compiler's locks."""
    return compiler.locks and _length(sources) > MUCH_TEXT


def _key_of(source: Source) -> Key:
    return source.text, flags_of(source)


def digest(text: str, flags: tuple[str, ...], arch: str) -> str:
    """Returns the hash of everything that determines a kernel's code except the compiler: source with prelude, flags, arch."""
    source = complete(text, emulated=arch.startswith("host"))
    return hashlib.sha256("\0".join([arch, *flags, "", source]).encode()).hexdigest()


def flags_of(source: Any) -> tuple[str, ...]:
    return tuple(getattr(source, "flags", ()))


def _compiled_for(text: str, arch: str) -> str:
    """Returns the architecture to compile for: emulated devices of both wave sizes share a kernel that does not depend on it."""
    return "host" if arch.startswith("host") and any_wave(text) else arch


def _cache_key(store: KernelCache, compiler: Compiler, source: Source, arch: str) -> str:
    text = complete(source.text, emulated=arch.startswith("host"))
    return store.key(text, flags_of(source), compiler.name, compiler.version, _compiled_for(source.text, arch))


def _groups(sources: list[Source], arch: str, batch: int, most: int) -> list[list[Source]]:
    """Batches sources that may share a translation unit: equal flags and architecture, no macros, distinct kernel names.

    batch, most: maximum kernels and characters of a unit.  The longest units come first.
    """
    groups: list[list[Source]] = []
    open_groups: dict[tuple[str, ...], tuple[list[Source], set[str]]] = {}
    for source in sources:
        names = set(kernels(source.text))
        kind = (_compiled_for(source.text, arch), *flags_of(source))
        group, taken = open_groups.get(kind, ([], set()))
        if batch <= 1 or "#define" in source.text:
            groups.append([source])
            continue
        length = _length(group)
        if not group or len(group) >= batch or length + len(source.text) > most or names & taken:
            group, taken = [], set()
            groups.append(group)
            open_groups[kind] = (group, taken)
        group.append(source)
        taken |= names
    return sorted(groups, key=_length, reverse=True)


def _length(sources: Sequence[Source]) -> int:
    return sum(len(s.text) for s in sources)


def _compile(group: list[Source], arch: str, compiler: Compiler, store: KernelCache) -> dict[Key, bytes]:
    flags, made_for = flags_of(group[0]), _compiled_for(group[0].text, arch)
    if len(group) > 1:
        text = "".join(f"namespace unit_{i} {{\n{s.text}\n}}\n" for i, s in enumerate(group))
        try:
            image = compiler.compile(text, flags, made_for)
        except CompileError:
            pass  # compiled one by one below, to find the one that fails
        else:
            for source in group:
                store.put(_cache_key(store, compiler, source, arch), image)
            return {(s.text, flags): image for s in group}
    out = {}
    for source in group:
        try:
            image = compiler.compile(source.text, flags, made_for)
        except DeviceError as error:
            nodes = getattr(source, "nodes", ())
            where = getattr(source, "origin", "") or f"kernel {source.name}"
            raise error.located(where + (f" for {', '.join(map(str, nodes))}" if nodes else "")) from None
        store.put(_cache_key(store, compiler, source, arch), image)
        out[source.text, flags] = image
    return out


FORMAT: Final = 1
LIMIT: Final = 4 << 30  # bytes; an image takes 10 to 200 kB


class KernelCache(DiskCache):
    """Disk cache of compiled code, keyed by source, flags, architecture and compiler.

    folder: by default ``kernels`` in ``$MGX_CACHE_DIR`` or the user's cache directory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__("kernels", FORMAT, folder, LIMIT)

    @staticmethod
    def key(text: str, flags: Sequence[str], compiler: str, version: str, arch: str) -> str:
        """Returns the key of a kernel; text: source with its prelude, whose changes must change the key."""
        return "\0".join([compiler, version, arch, *flags, "", text])
