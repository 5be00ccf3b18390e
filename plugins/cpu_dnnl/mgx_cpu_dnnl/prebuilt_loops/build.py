"""Builds the files of prebuilt loops by processor kind: ``python -m mgx_cpu_dnnl.prebuilt_loops.build FOLDER KINDS``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from mgx_cpu_dnnl.jit.code import Code
from mgx_cpu_dnnl.jit.engine import Engine, Function
from mgx_cpu_dnnl.jit.opcode_handlers import write as write_interpreter
from mgx_cpu_dnnl.jit.opcodes import KEY as INTERPRETER
from mgx_cpu_dnnl.jit.prebuilt import PROCESSORS, file_name, generator, kind_of, symbol_of, write
from mgx_cpu_dnnl.shared import KernelCache, shared
from mgx_cpu_dnnl.target import CpuTarget

from .byte_samples import byte_products
from .product_samples import pairs
from .samples import samples

__all__ = ["SampleEngine", "main"]

HOST: Final = "host"  # stands for the kind of the processor at hand


class SampleEngine(Engine):
    """An engine for a processor kind that compiles loops elsewhere and loads none, since sample programs are not run.

    emit: starts to compile IR text for one of LLVM's CPUs; objects_by_symbol: what it returned.
    """

    def __init__(self, kind: str, emit: Callable[[str, str], Future[bytes]]) -> None:
        super().__init__(PROCESSORS[kind], cache=None)
        self.divides = kind.endswith("dividing")
        self.stamp = PROCESSORS[kind]
        self.objects_by_symbol: dict[str, Future[bytes]] = {}
        self._builders: dict[str, Callable[[Code], None]] = {}
        self._emit = emit

    def function(self, key: str, build: Callable[[Code], None]) -> Function:
        symbol = symbol_of(self.stamp, key)
        if symbol not in self.objects_by_symbol:
            self._builders[key] = build
            self.objects_by_symbol[symbol] = self._emit(self.cpu, self._text(symbol, build))
        return Function(self, symbol)

    def make(self, function: Function) -> None:
        """Leaves a function without an address."""

    def add_samples(self) -> None:
        """Starts to compile the interpreter and the loops of all samples."""
        vars(shared())["engine"] = self
        shared().kernels = KernelCache()
        self.function(INTERPRETER, write_interpreter)
        pairs(self)
        byte_products(self)
        for program in samples():
            program.compile(CpuTarget())

    def add_loops_of(self, other: SampleEngine) -> None:
        """Starts to compile the same loops as an engine of another kind, whose vectors must have the same width."""
        for key, build in other._builders.items():
            self.function(key, build)


@cache
def _emitter(cpu: str) -> Engine:
    return Engine(cpu, cache=None)


def _emit(cpu: str, text: str) -> bytes:
    """Compiles IR text, in a worker process."""
    return _emitter(cpu).emit_object(text)


def _host() -> str:
    """Returns the kind of the processor at hand."""
    engine = Engine(cache=None)
    return kind_of(engine.wide, engine.divides)


def _use(native: str) -> None:
    """Loads the native module from the build directory."""
    spec = spec_from_file_location("mgx_cpu_dnnl._native", native)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)


def main() -> None:
    """Writes a file for each processor kind and removes those of other kinds."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("kinds", nargs="+", choices=(*PROCESSORS, HOST))
    options.add_argument("--native", help="the native module, where it is not installed yet")
    given = options.parse_args()
    made_by = generator()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("forkserver")) as workers:
        emit = cache(lambda cpu, text: workers.submit(_emit, cpu, text))  # kinds share most texts
        if given.native:
            from mgx_cpu_dnnl.native_library import preload

            preload()
            _use(given.native)
        engines: dict[str, SampleEngine] = {}
        for kind in dict.fromkeys(_host() if kind == HOST else kind for kind in given.kinds):
            engine = SampleEngine(kind, emit)
            similar = next((e for e in engines.values() if e.lanes == engine.lanes), None)
            if similar is None:
                engine.add_samples()
            else:
                engine.add_loops_of(similar)
            engines[kind] = engine
        given.folder.mkdir(exist_ok=True)
        for kind in PROCESSORS:
            path = given.folder / file_name(kind)
            if kind not in engines:
                path.unlink(missing_ok=True)
                continue
            images = {symbol: image.result() for symbol, image in engines[kind].objects_by_symbol.items()}
            write(path, engines[kind].stamp, images, made_by)
            print(f"{path}: {len(images)} loops, {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
