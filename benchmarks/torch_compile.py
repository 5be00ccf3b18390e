"""``torch.compile(backend="mgx")`` on public architectures with random weights: errors, graphs, recompilations, times.

    python -m benchmarks.torch_compile [--times] [--device cpu] [NAME ...]

One line per architecture: the largest difference from eager, relative to the largest value, at all batch sizes below; graphs at
the first of two sizes whose first axis is marked dynamic, and additional ones at the second; graphs at the first of three
unmarked sizes, as in unmodified programs, and additional ones at the others; operators that mgx runs and that torch runs; with
--times also milliseconds per call next to inductor's, alternating.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.zoo.architectures import ARCHITECTURES, make
from mgx_torch.backend import Part, compile_graph
from mgx_torch.options import TorchOptions
from mgx_torch.recurrent_setting import inferring


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    for name in given.names or ARCHITECTURES:
        torch._dynamo.reset()
        try:
            print(
                f"{name:40} {checked(name, given.device)}", timed(name, given.device) if given.times else "", flush=True
            )
        except Exception as error:  # continue with the table
            print(f"{name:40} FAILED {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)


def checked(name: str, device: str) -> str:
    """Returns errors, numbers of graphs, and what ran where.  Errors: AssertionError if mgx ran nothing."""
    parts: list[Part] = []
    marked_error, *marked = grown(name, device, (2, 3), True, parts)
    torch._dynamo.reset()
    plain_error, *plain = grown(name, device, (2, 3, 5), False, [])
    kept = sorted({why for part in parts for why in part.reasons})
    ours = sum(len(part.operators) for part in parts if part.target != "torch")
    assert ours, f"mgx ran no part of it: {kept}"
    return (
        f"{max(marked_error, plain_error):.1e} graphs {marked[0]} at second size {marked[1]} unmarked graphs {plain[0]} "
        f"at second and third size {plain[1]} operators {ours} with torch {len(kept)} {kept[:2]}"
    )


def grown(name: str, device: str, batches: Sequence[int], marked: bool, parts: list[Part]) -> tuple[float, int, int]:
    """Returns the largest error at some batch sizes, the graphs at the first of them, and additional ones.

    marked: the first axis is marked dynamic; parts: receives the outcome of each graph.
    """
    graphs = [0]

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs[0] += 1
        return compile_graph(gm, example_inputs, TorchOptions(), parts)

    module, _ = make(ARCHITECTURES[name], 2)
    module = module.to(device)
    compiled, errors, first = torch.compile(module, backend=backend), [], 0
    with torch.no_grad(), inferring():
        for batch in batches:
            values = [v.to(device) for v in make(ARCHITECTURES[name], batch)[1].values()]
            if marked:
                for value in values:
                    torch._dynamo.maybe_mark_dynamic(value, 0)
            errors.append(difference(compiled(*values), module(*values)))
            first = first or graphs[0]
    return max(errors), first, graphs[0] - first


def difference(got: Any, want: Any) -> float:
    pairs = zip(tree_leaves(got), tree_leaves(want), strict=True)
    floats = [(a, b) for a, b in pairs if isinstance(b, torch.Tensor) and b.is_floating_point()]
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-9)) for a, b in floats)


def timed(name: str, device: str, rounds: int = 7) -> str:
    """Returns milliseconds per call of mgx and of inductor, and the median of their ratios; calls alternate."""
    module, inputs = make(ARCHITECTURES[name], 1)
    module, values = module.to(device), [v.to(device) for v in inputs.values()]
    with torch.no_grad():
        ours = torch.compile(module, backend="mgx", dynamic=False)
        ours(*values)
        theirs = torch.compile(module, dynamic=False)
        theirs(*values)
        pairs = [(once(ours, values), once(theirs, values)) for _ in range(rounds)]
    mine, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    return f"mgx {mine:.2f} ms inductor {other:.2f} ms ratio {statistics.median(a / b for a, b in pairs):.2f}"


def once(call: Callable[..., Any], values: Sequence[Any]) -> float:
    start = time.perf_counter()
    call(*values)
    if values[0].is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
