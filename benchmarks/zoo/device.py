"""Networks of the zoo on one GPU: ours, compared with torch.compile and eager torch in a CUDA graph, all in one precision.

In f16 and bf16, products that a network computes in float32 may use TF32 in all engines.

python benchmarks/zoo/device.py OUT [--only a,timm.NAME.SIZE,transformers.MODEL.SIZE,torchvision.NAME.SIZE]
    [--precision f16,f32] [--modes reduce-overhead] [--workers 8]

One process per network exports it with torch in float32 (decoders with a cache in the measured precision), compiles the peers
and ours, and waits until all others have done so (or a timeout).  Then one after another has exclusive use of the device:
bursts of all engines alternate, timed by events on one stream.  OUT receives rows.json, with the time of each of our
instructions, and table.md.  A network that torch cannot export to ONNX is compiled from the result of torch.export.

Columns:
  error, own  largest difference from torch in float64 on the same weights, relative to its largest value; torch's own
  ms, ratio   median over bursts of a run's device time; median of the ratios to the best peer of each burst
  compile     seconds from parsing to the first result, and torch.compile's
  floor       share of our time that the device needs at its measured rates: the larger of that for the products and
              convolutions that torch counts, and that for reading weights and inputs and writing the first result
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import copy
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
Run = Callable[[], Any]
Row = dict[str, Any]
ROUNDS, RUNS = 9, 20


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Context manager: no other process of this benchmark uses the device for timed work."""
    with (folder / "device.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget(out: Path) -> None:
    """Deletes the marks of an earlier measurement."""
    for old in (*out.glob("*.ready"), out / "go"):
        old.unlink(missing_ok=True)


def wait_for_others(out: Path, name: str) -> None:
    """Marks a network as prepared, and waits until the parent process starts the measurements."""
    (out / f"{name}.ready").touch()
    while not (out / "go").exists():
        time.sleep(0.05)


def gather(waiting: set[concurrent.futures.Future[Row]], out: Path, seconds: float) -> Iterator[Row]:
    """Yields the rows of processes as they finish; starts the measurements once all are prepared, or after a timeout."""
    jobs, done, began = len(waiting), 0, time.time()
    while waiting:
        finished, waiting = concurrent.futures.wait(waiting, 0.2, concurrent.futures.FIRST_COMPLETED)
        done += len(finished)
        if len(list(out.glob("*.ready"))) + done >= jobs or time.time() - began > seconds:
            (out / "go").touch()
        yield from (f.result() for f in finished)


def bursts(calls: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Returns the milliseconds per run of alternating bursts, by engine."""
    for call in calls.values():
        burst(call, 3)
    times: dict[str, list[float]] = {engine: [] for engine in calls}
    for _ in range(rounds):
        for engine, call in calls.items():
            times[engine].append(burst(call, RUNS))
    return times


def burst(call: Run, runs: int) -> float:
    """Returns the milliseconds per run of several consecutive runs."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(runs):
        call()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / runs


def graphed(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Run:
    """Records eager torch as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    return graph.replay


def compiled(module: torch.nn.Module, inputs: Sequence[torch.Tensor], mode: str) -> Run:
    torch._dynamo.reset()
    function = torch.compile(module, mode=mode)
    for _ in range(3):
        function(*inputs)
    torch.cuda.synchronize()
    return lambda: function(*inputs)


def ceilings(kind: torch.dtype) -> tuple[float, float]:
    """Returns operations per second of a large product of a type, and bytes per second of a large copy; the best of several."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=kind) for _ in range(2))
    held = torch.empty(2, 1 << 30, device="cuda", dtype=torch.uint8)
    product = min(burst(lambda: torch.matmul(a, b), 5) for _ in range(5))
    copy = min(burst(lambda: held[0].copy_(held[1]), 5) for _ in range(5))
    return 2 * 8192**3 / product * 1e3, 2 * held[0].nbytes / copy * 1e3


def work(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Returns the operations of products and convolutions in one run, and the bytes of weights, inputs and results."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = module(*inputs)
    moved = [*module.parameters(), *module.buffers(), *inputs, first(result)]
    return counter.get_total_flops(), sum(t.nbytes for t in moved)


def first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def error(got: Any, wide: torch.Tensor) -> float:
    """Returns the largest difference, relative to the largest value; infinite for non-finite values."""
    difference = (
        (torch.as_tensor(np.asarray(got) if isinstance(got, np.ndarray) else got).double().cpu() - wide).abs().max()
    )
    return float(difference / wide.abs().max().clamp_min(1e-30)) if torch.isfinite(difference) else math.inf


class Ours:
    """A program compiled for the GPU whose arguments are torch tensors."""

    def __init__(
        self, parse: Callable[[], Any], precision: str, inputs: dict[str, torch.Tensor], options: dict[str, Any]
    ) -> None:
        import mgx_core as mgx

        start = time.perf_counter()
        self.program = parse()
        if precision != "f32":
            {"f16": mgx.quantize_fp16, "bf16": mgx.quantize_bf16}[precision](self.program)
        self.program.compile(mgx.get_target("gpu"), offload_copy=False, **options)
        shapes = self.program.get_parameter_shapes()
        cast = {k: v.cpu().numpy().astype(shapes[k].numpy_dtype) for k, v in inputs.items() if k in shapes}
        self.feed = {k: torch.from_numpy(v).cuda() for k, v in cast.items()}
        self.stream = torch.cuda.current_stream().cuda_stream
        self.results = self.run()
        torch.cuda.synchronize()
        self.seconds = time.perf_counter() - start

    def run(self) -> Any:
        return self.program.run_async(self.feed, self.stream, "ihipStream_t")


def exported(
    module: torch.nn.Module, inputs: dict[str, torch.Tensor], path: Path
) -> tuple[Callable[[], Any], dict[str, str], str]:
    """Exports a network to an ONNX file or, if torch fails to, by torch.export.

    Returns a call that parses the result, the names of the program's parameters by those of the inputs, and the error.
    """
    import mgx_core as mgx

    values = tuple(inputs.values())
    try:
        torch.onnx.export(module, values, path, dynamo=True, input_names=list(inputs), opset_version=18, verbose=False)
    except Exception as problem:  # the exporter has no common class of errors
        from mgx_torch import from_exported

        program = torch.export.export(copy.deepcopy(module), values)  # the module is moved and converted before parsing
        names = dict(zip(inputs, map(str, program.graph_signature.user_inputs), strict=True))
        return lambda: from_exported(program), names, str(problem).strip().splitlines()[-1][:200]
    return lambda: mgx.parse_onnx(path), {name: name for name in inputs}, ""


def wide_result(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns torch's result in float64, or in float32 for a network with explicit types."""
    for kind in (torch.float64, torch.float32):
        with contextlib.suppress(RuntimeError):
            return first(module.to(kind)(*[v.to(kind) if v.is_floating_point() else v for v in inputs])).double().cpu()
    raise RuntimeError("the network runs in neither float64 nor float32")


def measure(name: str, given: argparse.Namespace) -> Row:
    """Returns the measurements of one network."""
    sys.path.insert(0, str(HERE))
    from architectures import make, named

    tf32 = given.precision != "f32"
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.set_num_threads(2)
    began = time.perf_counter()
    module, inputs = make(named(name), given.batch)
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[given.precision]
    if named(name).family == "cache":  # decoders are exported, and keep their caches, in the precision they compute in
        module.to(kind)
        inputs = {k: v.to(kind) if v.is_floating_point() else v for k, v in inputs.items()}
    row: Row = {"model": _title(name, given.batch, given.precision)}
    with tempfile.TemporaryDirectory(dir=given.scratch) as folder, torch.no_grad():
        parse, names, problem = exported(module, inputs, Path(folder) / "model.onnx")
        if problem:
            row["ONNX export failed"] = problem
        row["export"] = time.perf_counter() - began
        held = {k: v.cuda() for k, v in inputs.items()}
        wide = wide_result(module.cuda(), list(held.values()))
        module.to(kind)
        cast = [v.to(kind) if v.is_floating_point() else v for v in held.values()]
        row["own"] = error(first(module(*cast)), wide)
        operations, moved = work(module, cast)
        peers: dict[str, Run] = {}
        for peer in filter(None, ("graph", *given.modes.split(","))):
            start = time.perf_counter()
            try:
                peers[peer] = graphed(module, cast) if peer == "graph" else compiled(module, cast, peer)
            except Exception as problem:  # torch cannot compile or capture every network
                row[f"{peer} failed"] = f"{type(problem).__name__}: {problem}"[:200]
            row[f"{peer} seconds"] = time.perf_counter() - start
        with alone(given.scratch):
            feed = {names[k]: v for k, v in held.items()}
            ours = Ours(parse, given.precision, feed, {"float32_precision": "high" if tf32 else "highest"})
        row["compile"] = ours.seconds
        row["error"] = error(torch.from_dlpack(ours.results[0]), wide)
        wait_for_others(given.out, row["model"])
        with alone(given.scratch):
            times = bursts({"mgx": ours.run, **peers}, given.rounds)
            row |= {f"{engine} ms": statistics.median(t) for engine, t in times.items()}
            if peers:
                best = [min(times[p][r] for p in peers) for r in range(given.rounds)]
                row["ratio"] = statistics.median(o / b for o, b in zip(times["mgx"], best, strict=True))
            row |= profile(ours)
            rate, bandwidth = ceilings(kind)
            row["floor"] = max(operations / rate, moved / bandwidth) * 1e3 / row["mgx ms"]
    return row


def describe(instruction: Any) -> str:
    """Returns an instruction's operands, result and first nodes."""
    shapes = ", ".join(str(i.result) for i in instruction.inputs)
    return f"({shapes}) -> {instruction.result} {' '.join(instruction.sources[:2])}"[:300]


def profile(ours: Ours) -> Row:
    """Returns our number of steps, how many run on the host, and each instruction's microseconds."""
    import mgx_core as mgx

    executable = ours.program.executable
    assert executable is not None
    instance = executable.instances()[-1]
    placed = list(instance.placements)
    bound = {s.instruction: s for s in getattr(instance.plan, "steps", ())}
    steps = []
    with contextlib.suppress(mgx.ParameterError):
        for t in executable.time(ours.feed, 3, 1):
            step = bound[t.instruction]
            steps.append([round(min(t.seconds) * 1e6, 2), step.kernel, step.name, describe(t.instruction)])
    return {
        "launches": len(getattr(instance.plan, "steps", placed)),
        "host": sum(p.place == "host" for p in placed),
        "steps": steps,
    }


COLUMNS = (
    "model",
    "error",
    "own",
    "mgx ms",
    "graph ms",
    "reduce-overhead ms",
    "ratio",
    "compile",
    "reduce-overhead seconds",
)
COLUMNS += ("floor", "launches", "host", "failed")


def line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells) + " |"


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table, sorted by decreasing ratio to the best peer, and a summary line."""
    ordered = sorted(rows, key=lambda r: (-("failed" in r), -r.get("ratio", 0.0)))
    lines = [line(COLUMNS), line(["---"] * len(COLUMNS))] + [line([r.get(c, "") for c in COLUMNS]) for r in ordered]
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    floors = [r["floor"] for r in rows if r.get("floor")]
    wrong = [r["model"] for r in rows if not r.get("error", 0.0) <= max(1e-3, 2 * r.get("own", 0.0))]
    return "\n".join(lines) + (
        f"\n\n{len(rows)} networks; failed: {sum('failed' in r for r in rows)}; wrong: {', '.join(wrong) or 'none'}; ratio: "
        f"geometric mean {geomean(ratios):.3f}, worst {max(ratios, default=math.nan):.2f}, "
        f"above 1.05: {sum(r > 1.05 for r in ratios)}; floor over time: geometric mean {geomean(floors):.2f}\n"
    )


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def _title(name: str, batch: int, precision: str) -> str:
    return f"{name}.b{batch}.{precision}"


def one(name: str, batch: int, precision: str, given: argparse.Namespace) -> Row:
    """Returns the record of a network measured in a separate process."""
    command = [sys.executable, __file__, str(given.out), "--one", "--only", name, "--batch", str(batch)]
    command += ["--precision", precision, "--modes", given.modes, "--rounds", str(given.rounds)]
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "2", "OMP_NUM_THREADS": "2"}
    row: Row = {"model": _title(name, batch, precision)}
    left = given.until - time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(given.limit, left), env=environment)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"took over {min(given.limit, left):.0f} s"}
    if done.returncode == 0:
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    return row | {"failed": f"status {done.returncode}: " + " / ".join(done.stderr.strip().splitlines()[-3:])[-500:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--rows", default="", help="additional single measurements: NAME:BATCH:PRECISION, separated by commas"
    )
    parser.add_argument("--batch", default="1", help="one or several, separated by commas")
    parser.add_argument("--precision", default="f16", help="f32, f16, bf16, or several, separated by commas")
    parser.add_argument("--modes", default="reduce-overhead", help="of torch.compile, separated by commas")
    parser.add_argument("--workers", type=int, default=16, help="networks that are prepared concurrently")
    parser.add_argument("--prepare", type=float, default=300, help="seconds after which prepared networks are measured")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=240, help="timeout in seconds for one network")
    parser.add_argument(
        "--seconds", type=float, default=1e6, help="timeout in seconds for all networks; unfinished ones are left out"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.scratch, given.until = Path(tempfile.gettempdir()), time.time() + given.seconds
    if given.one:
        given.batch = int(given.batch)
        print(json.dumps(measure(given.only, given)), flush=True)
        os._exit(0)  # torch's compile workers survive an orderly exit
    sys.path.insert(0, str(HERE))
    from architectures import ARCHITECTURES

    names = given.only.split(",") if given.only else [] if given.rows else list(ARCHITECTURES)
    kinds = given.precision.split(",")
    if unknown := set(kinds) - {"f32", "f16", "bf16"}:
        parser.error(f"--precision: expected f32, f16 or bf16, got {', '.join(sorted(unknown))}")
    jobs = [(name, int(batch), kind) for kind in kinds for batch in given.batch.split(",") for name in names]
    jobs += [(name, int(batch), kind) for name, batch, kind in (row.split(":") for row in given.rows.split(",") if row)]
    rows: list[Row] = []
    for start in range(0, len(jobs), given.workers):
        rows += together(jobs[start : start + given.workers], given)
        (given.out / "rows.json").write_text(json.dumps(rows))
    (given.out / "table.md").write_text(table(rows))
    print(table(rows))


def together(jobs: Sequence[tuple[str, int, str]], given: argparse.Namespace) -> list[Row]:
    """Measures networks whose processes prepare concurrently."""
    forget(given.out)
    rows: list[Row] = []
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        for row in gather({pool.submit(one, *job, given) for job in jobs}, given.out, given.prepare):
            rows.append(row)
            print(line([row.get(c, "") for c in COLUMNS]), flush=True)
    return rows


if __name__ == "__main__":
    main()
