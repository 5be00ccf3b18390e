"""Builds the files of prebuilt loops by processor kind: ``python -m mgx_cpu_dnnl.prebuilt_loops.build FOLDER KINDS``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from mgx_cpu_dnnl.jit.code import Code
from mgx_cpu_dnnl.jit.engine import Engine, Function
from mgx_cpu_dnnl.jit.opcode_handlers import write as write_interpreter
from mgx_cpu_dnnl.jit.opcodes import KEY as INTERPRETER
from mgx_cpu_dnnl.jit.prebuilt import PROCESSORS, file_name, generator, write
from mgx_cpu_dnnl.shared import KernelCache, shared
from mgx_cpu_dnnl.target import CpuTarget

from .byte_samples import byte_products
from .product_samples import pairs
from .samples import samples

__all__ = ["compiled", "main"]


class _Compiler(Engine):
    """An engine for a processor kind, which lists the loops it compiles; known: objects by IR text, most of which kinds share."""

    def __init__(self, kind: str, known: dict[str, bytes]) -> None:
        super().__init__(PROCESSORS[kind], cache=None)
        self.divides = kind.endswith("dividing")
        self.stamp = PROCESSORS[kind]
        self.loops: dict[str, Callable[[Code], None]] = {}
        self._known = known

    def function(self, key: str, build: Callable[[Code], None]) -> Function:
        self.loops[key] = build
        return super().function(key, build)

    def _compile(self, text: str) -> bytes:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = super()._compile(text)
        return found


def compiled(kinds: Sequence[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yields the stamp and the objects by symbol of the samples' loops for each processor kind.

    Sample programs are compiled once for kinds with vectors of one width, whose loops differ in code, not in number.
    """
    known: dict[str, bytes] = {}
    by_width: dict[int, _Compiler] = {}
    for kind in kinds:
        engine = _Compiler(kind, known)
        first = by_width.setdefault(engine.lanes, engine)
        if first is engine:
            _compile_samples(engine)
        else:
            for key, build in first.loops.items():
                engine.function(key, build)
            engine.flush()
        yield engine.stamp, engine.objects()


def _compile_samples(engine: Engine) -> None:
    """Compiles the interpreter and the loops of all samples."""
    vars(shared())["engine"] = engine
    shared().kernels = KernelCache()
    engine.function(INTERPRETER, write_interpreter)
    pairs(engine)
    byte_products(engine)
    for program in samples():
        program.compile(CpuTarget())
    engine.flush()


def _use(native: str) -> None:
    """Loads the native module from the build directory."""
    spec = spec_from_file_location("mgx_cpu_dnnl._native", native)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)


def main() -> None:
    """Writes a file for each processor kind."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("kinds", nargs="+", choices=PROCESSORS)
    options.add_argument("--native", help="the native module, where it is not installed yet")
    given = options.parse_args()
    if given.native:
        from mgx_cpu_dnnl.native_library import preload

        preload()
        _use(given.native)
    made_by = generator()
    for kind, (stamp, images) in zip(given.kinds, compiled(given.kinds), strict=True):
        path = given.folder / file_name(kind)
        write(path, stamp, images, made_by)
        print(f"{path}: {len(images)} loops, {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
