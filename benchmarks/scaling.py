"""Time of the stages by program size: it must grow linearly.

python benchmarks/scaling.py [--sizes 5000,10000,20000] [--programs blocks,skips,shared] [--plan] [--passes]
                             [--processor] [--json FILE]

`blocks` is a chain of typical blocks: products with bias and activation, residual sums, normalizations, views, concatenated
slices, reductions, and constants to fold; `skips` has nothing to simplify and half of its values alive at once; `shared` is
one long chain of pointwise ops that all read one value.  `optimize` is normalize to fuse; with --plan also lowering (every
op on the host) and the memory plan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np

import mgx_core as mgx
from mgx_core.compile.lower import Lower
from mgx_core.compile.stages import optimize_module
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.module import Module
from mgx_core.ops import STANDARD
from mgx_core.targets.kernel_table import Kernels
from mgx_core.targets.memory import plan_memory
from mgx_core.types.shape import Shape


def add(main: Module, name: str, *inputs: Instruction, **attributes: object) -> Instruction:
    return main.add(STANDARD.make(name, **attributes), *inputs)


def block(main: Module, x: Instruction, random: np.random.Generator) -> Instruction:
    """Returns a transformer-like block of about 30 instructions on x [8, 16]."""

    def constant(*lens: int) -> Instruction:
        return main.add_literal(random.normal(size=lens).astype(np.float32))

    def wide(value: Instruction, like: Instruction) -> Instruction:
        return add(main, "multibroadcast", value, out_lens=like.shape.dims)

    mean = add(main, "reduce_mean", x, axes=(-1,))
    centered = add(main, "sub", x, wide(mean, x))
    variance = add(main, "reduce_mean", add(main, "mul", centered, centered), axes=(-1,))
    root = add(main, "sqrt", add(main, "add", variance, wide(constant(1), variance)))
    normal = add(main, "div", centered, wide(root, x))
    product = add(main, "dot", normal, constant(16, 16))
    biased = add(main, "add", product, wide(add(main, "neg", constant(16)), product))
    active = add(main, "relu", biased)
    turned = add(main, "transpose", add(main, "reshape", active, dims=(8, 4, 4)), permutation=(0, 2, 1))
    back = add(main, "reshape", add(main, "transpose", turned, permutation=(0, 2, 1)), dims=(8, 16))
    parts = [add(main, "slice", back, axes=(1,), starts=(a,), ends=(a + 8,)) for a in (0, 8)]
    joined = add(main, "concat", *parts, axis=1)
    return add(main, "add", x, add(main, "div", joined, wide(constant(1), joined)))


def blocks(size: int) -> Module:
    """Returns about `size` instructions in consecutive blocks."""
    main = Module()
    random = np.random.default_rng(0)
    x = main.add_parameter("x", Shape("float", [8, 16]))
    while len(main) < size:
        x = block(main, x, random)
    main.add_return([x])
    return main


def skips(size: int) -> Module:
    """Returns about `size` instructions with nothing to simplify: the second half reads each value of the first half again, in
    reverse.
    """
    main = Module()
    x = main.add_parameter("x", Shape("float", [8, 16]))
    weights = main.add_parameter("w", Shape("float", [16, 16]))
    alive = []
    while len(main) < size * 0.4:
        x = add(main, "tanh", add(main, "dot", x, weights))
        alive.append(x)
    for y in reversed(alive):
        x = add(main, "sigmoid", add(main, "softmax", add(main, "add", x, y), axis=1))
    main.add_return([x])
    return main


def shared(size: int) -> Module:
    """Returns a chain of about `size` pointwise instructions, all of which also read one shared value."""
    main = Module()
    x = first = main.add_parameter("x", Shape("float", [8, 16]))
    scale = add(main, "tanh", x)
    while len(main) < size:
        x = add(main, "sigmoid", add(main, "mul", add(main, "reshape", x, dims=(8, 16)), scale))
        x = add(main, "add", x, first)
    main.add_return([x])
    return main


PROGRAMS = {"blocks": blocks, "skips": skips, "shared": shared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="5000,10000,20000")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--passes", action="store_true", help="also print each pass")
    parser.add_argument("--json")
    parser.add_argument(
        "--processor", action="store_true", help="measure processor time instead of wall time (on a busy machine)"
    )
    given = parser.parse_args()
    clock = time.process_time if given.processor else time.perf_counter
    rows = []
    for kind, size in itertools.product(given.programs.split(","), map(int, given.sizes.split(","))):
        module = PROGRAMS[kind](size)
        count = len(module)
        start = clock()
        pipeline = optimize_module(module, mgx.CompileOptions())
        row = {"program": kind, "instructions": count, "optimize": clock() - start, "after": len(module)}
        if given.plan:
            start = clock()
            copy = module.clone()
            Lower(Kernels("none"), None).apply(copy)
            row["lower"] = clock() - start
            start = clock()
            plan_memory(copy)
            row["plan"] = clock() - start
        rows.append(row)
        shown = "   ".join(f"{k} {v:.2f} s" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print(f"{shown}   {row['optimize'] / count * 1e6:.0f} us an instruction", flush=True)
        if given.passes:
            for r in pipeline.records:
                print(f"    {r.name:20} {r.seconds:.3f} s  {r.before} -> {r.after}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
