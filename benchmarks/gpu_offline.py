"""Cross-compiles every kernel that the gpu target emits for some models, for architectures of absent devices.

python benchmarks/gpu_offline.py MODELS [--only a,b] [--arch gfx90a,sm_90] [--precision fp32,fp16]

MODELS contains NAME.onnx, and NAME.in.npz for models with symbolic extents.  Prints, for each architecture, the number of
launches, of distinct kernels, of kernels whose code is not an ELF file, and of failures.  Needs a compiler for each: ziglang
(or ROCm's hipRTC) for gfx, NVRTC for sm.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import mgx_core as mgx
from mgx_core.errors import DeviceError, MgxError

ARCHITECTURES = "gfx908,gfx90a,gfx942,gfx1030,gfx1100,sm_90"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--arch", default=ARCHITECTURES)
    parser.add_argument("--precision", default="fp32,fp16")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    for arch in given.arch.split(","):
        start, launches, kernels, wrong, failures = time.perf_counter(), 0, set(), set(), []
        for name in names:
            for precision in given.precision.split(","):
                program = mgx.parse_onnx(given.models / f"{name}.onnx")
                if precision == "fp16":
                    mgx.quantize_fp16(program)
                try:
                    program.compile(mgx.get_target("gpu"), target=arch)
                    if not program.executable.instances():  # extents vary: those of the example inputs
                        made(program, given.models / f"{name}.in.npz")
                except MgxError as error:
                    failures.append(f"{name} {precision}: {str(error)[:300]}")
                    continue
                for instance in program.executable.instances():
                    launches += len(instance.runner.step_sources)
                    for source, code in zip(instance.runner.step_sources, instance.runner.codes, strict=True):
                        kernels.add(source.text)
                        if code.image[:4] != b"\x7fELF":
                            wrong.add(source.name)
        took = time.perf_counter() - start
        print(f"{arch:8} {len(names)} models, {launches} launches, {len(kernels)} kernels, {len(wrong)} without code, "
              f"{len(failures)} failures, {took:.0f} s", flush=True)  # fmt: skip
        for failure in failures:
            print("   ", failure, flush=True)


def made(program: mgx.Program, inputs: Path) -> None:
    """Assembles the program for these inputs; running it is refused, since the device is absent."""
    try:
        program.run(dict(np.load(inputs)))
    except DeviceError as error:
        if "is not here" not in str(error):
            raise


if __name__ == "__main__":
    main()
