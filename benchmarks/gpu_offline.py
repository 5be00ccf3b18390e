"""Cross-compiles every kernel that the gpu target emits for some models, for architectures of absent devices.

python benchmarks/gpu_offline.py MODELS [--only a,b] [--arch gfx90a,sm_90] [--precision fp32,fp16]

MODELS contains NAME.onnx, and NAME.in.npz for models with symbolic extents.  Prints, for each architecture, the number of
launches, of distinct kernels, of kernels whose code is not an ELF file, and of failures.  Needs a compiler for each: ziglang
(or ROCm's hipRTC) for gfx, NVRTC for sm.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import mgx_core as mgx
from mgx_core.errors import MgxError

ARCHITECTURES = "gfx908,gfx90a,gfx942,gfx1030,gfx1100,sm_90"


@dataclass
class Count:
    """The kernels of all models for one architecture; wrong: names of kernels whose code is not an ELF file."""

    launches: int = 0
    kernels: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, program: mgx.Program) -> None:
        for instance in program.executable.instances():
            self.launches += len(instance.runner.step_sources)
            for source, code in zip(instance.runner.step_sources, instance.runner.codes, strict=True):
                self.kernels.add(source.text)
                if code.image[:4] != b"\x7fELF":
                    self.wrong.add(source.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--arch", default=ARCHITECTURES)
    parser.add_argument("--precision", default="fp32,fp16")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    for arch in given.arch.split(","):
        start, count = time.perf_counter(), Count()
        for name, precision in itertools.product(names, given.precision.split(",")):
            try:
                count.add(compiled(given.models, name, precision, arch))
            except MgxError as error:
                count.failures.append(f"{name} {precision}: {str(error)[:300]}")
        took = time.perf_counter() - start
        print(
            f"{arch:8} {len(names)} models, {count.launches} launches, {len(count.kernels)} kernels, "
            f"{len(count.wrong)} without code, {len(count.failures)} failures, {took:.0f} s",
            flush=True,
        )
        for failure in count.failures:
            print("   ", failure, flush=True)


def compiled(models: Path, name: str, precision: str, arch: str) -> mgx.Program:
    """Returns a model compiled for an architecture, for the example inputs if its extents vary.  Errors: MgxError."""
    program = mgx.parse_onnx(models / f"{name}.onnx")
    if precision == "fp16":
        mgx.quantize_fp16(program)
    program.compile(mgx.get_target("gpu"), target=arch)
    executable = program.executable
    if not executable.instances():
        executable.instance(executable.bind(dict(np.load(models / f"{name}.in.npz"))))
    return program


if __name__ == "__main__":
    main()
