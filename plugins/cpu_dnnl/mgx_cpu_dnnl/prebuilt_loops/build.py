"""Builds the files of prebuilt loops by processor kind: ``python -m mgx_cpu_dnnl.prebuilt_loops.build FOLDER KINDS``."""

from __future__ import annotations

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from mgx_cpu_dnnl.jit.engine import Engine
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
    """An engine for a processor kind; known: objects by IR text, most of which kinds share."""

    def __init__(self, kind: str, known: dict[str, bytes]) -> None:
        super().__init__(PROCESSORS[kind], cache=None)
        self.divides = kind.endswith("dividing")
        self.stamp = PROCESSORS[kind]
        self._known = known

    def _compile(self, text: str) -> bytes:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = super()._compile(text)
        return found


def compiled(kind: str, known: dict[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Returns the stamp and the objects by symbol of the samples' loops for a processor kind."""
    engine = _Compiler(kind, known)
    vars(shared())["engine"] = engine
    shared().kernels = KernelCache()
    engine.function(INTERPRETER, write_interpreter)
    pairs(engine)
    byte_products(engine)
    for program in samples():
        program.compile(CpuTarget())
    engine.flush()
    return engine.stamp, engine.objects()


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
    known: dict[str, bytes] = {}
    for kind in given.kinds:
        stamp, images = compiled(kind, known)
        path = given.folder / file_name(kind)
        write(path, stamp, images, made_by)
        print(f"{path}: {len(images)} loops, {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
