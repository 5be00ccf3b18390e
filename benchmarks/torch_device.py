"""``torch.compile(backend="mgx")`` on one GPU, compared with inductor (reduce-overhead): time per call, host time, and steps.

    python -m benchmarks.torch_device [--batch 1,32] [--precision f16] [--workers 8] [--modes reduce-overhead] [NAME ...]

One process per network and batch compiles it with inductor, with mgx's defaults and with `freeze`, and waits until all others
have done so, or until a timeout (--prepare), after which unfinished processes are ended.  Then one after another has
exclusive use of the device: bursts of calls alternate, each followed by a synchronization.

Columns: milliseconds per call (medians over bursts) of each; the median over bursts of the ratios of ours to the best of
inductor's modes, by default and with `freeze`; host microseconds of our call while the device is still busy; steps of the
device graphs, by default and with `freeze`; largest difference from eager, relative to its largest value.  With --steps, the
steps that only the default has follow, with their times.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import fcntl
import gc
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.zoo.architectures import make, named
from mgx_core.targets.schedule import Schedule

KINDS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
NAMES = (
    "resnet50", "mobilenetv3_large_100", "efficientnet_b0", "densenet121", "convnext_tiny", "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224", "BertModel", "GPT2LMHeadModel", "LlamaForCausalLM",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--precision", default="f16", choices=KINDS)
    parser.add_argument("--modes", default="reduce-overhead", help="of inductor, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument(
        "--prepare",
        type=float,
        default=240,
        help="seconds after which finished processes are measured and the others are ended",
    )
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.names[0], int(given.batch), given)), flush=True)
        os._exit(0)  # inductor's compile workers survive an orderly exit
    jobs = [(n, int(b)) for n in given.names or NAMES for b in given.batch.split(",")]
    rows: list[dict[str, Any]] = []
    for start in range(0, len(jobs), given.workers):
        rows += together(jobs[start : start + given.workers], given)
    for column in ("ratio", "frozen ratio"):
        found = [r[column] for r in rows if column in r]
        if found:
            mean = math.exp(statistics.fmean(map(math.log, found)))
            print(f"{column}: geometric mean {mean:.3f}, worst {max(found):.2f} of {len(found)}")


def together(jobs: Sequence[tuple[str, int]], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures networks whose processes prepare concurrently, and prints a line for each."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        waiting = {pool.submit(one, *job, Path(folder), given) for job in jobs}
        began = time.time()
        while waiting:
            finished, waiting = concurrent.futures.wait(waiting, 0.2, concurrent.futures.FIRST_COMPLETED)
            rows += [f.result() for f in finished]
            for row in rows[len(rows) - len(finished) :]:
                print({k: v for k, v in row.items() if k != "steps"}, *row.get("steps", ()), sep="\n   ", flush=True)
            ready = len(list(Path(folder).glob("*.ready")))
            if ready + sum("failed" in r for r in rows) >= len(jobs) or time.time() - began > given.prepare:
                (Path(folder) / "go").touch()
    return rows


def one(name: str, batch: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.torch_device",
        name,
        "--one",
        "--batch",
        str(batch),
        "--folder",
        str(folder),
    ]
    command += ["--precision", given.precision, "--modes", given.modes, "--rounds", str(given.rounds)]
    command += ["--runs", str(given.runs)] + ["--steps"] * given.steps
    threads = str(max(2, (os.cpu_count() or 1) // given.workers))
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": threads, "OMP_NUM_THREADS": "2"}
    row = {"network": name, "batch": batch}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        while True:
            try:
                out, err = process.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                if (folder / "go").exists() and not (folder / f"{name}.{batch}.ready").exists():
                    os.killpg(process.pid, signal.SIGKILL)  # it would compile during the measurements of the others
                    return row | {"failed": f"not ready after {given.prepare:.0f} s"}
    if process.returncode == 0:
        return row | dict(json.loads(out.strip().splitlines()[-1]))
    return row | {"failed": " / ".join(err.strip().splitlines()[-3:])[-400:]}


def measured(name: str, batch: int, given: argparse.Namespace) -> dict[str, Any]:
    """Returns the measurements of one network."""
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    kind = KINDS[given.precision]
    module, inputs = make(named(name), batch)
    module = module.cuda().to(kind).eval()
    values = [v.cuda().to(kind) if v.is_floating_point() else v.cuda() for v in inputs.values()]
    engines: dict[str, Callable[..., Any]] = {m: torch.compile(module, mode=m) for m in given.modes.split(",")}
    peers = list(engines)
    engines["mgx"] = torch.compile(module, backend="mgx")
    engines["frozen"] = torch.compile(module, backend="mgx", options={"freeze": True})
    row: dict[str, Any] = {}
    found: dict[str, Any] = {}
    with torch.no_grad():
        eager = first(module(*values)).double()
        for engine, call in engines.items():
            start = time.perf_counter()
            for _ in range(3):
                result = first(call(*values))
            torch.cuda.synchronize()
            row[f"{engine} first s"] = round(time.perf_counter() - start, 1)
            found[engine] = float((result.double() - eager).abs().max() / eager.abs().max().clamp_min(1e-30))
        (given.folder / f"{name}.{batch}.ready").touch()
        while not (given.folder / "go").exists():
            time.sleep(0.05)
        with (given.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            times: dict[str, list[float]] = {e: [] for e in engines}
            for _ in range(given.rounds):
                for engine, call in engines.items():
                    times[engine].append(burst(lambda call=call: call(*values), given.runs))  # type: ignore[misc]
            host = {e: launched(lambda call=call: call(*values)) for e, call in engines.items()}  # type: ignore[misc]
            best = [min(times[p][r] for p in peers) for r in range(given.rounds)]
            row |= {e: round(statistics.median(t), 4) for e, t in times.items()}
            row["ratio"] = round(statistics.median(a / b for a, b in zip(times["mgx"], best, strict=True)), 3)
            row["frozen ratio"] = round(statistics.median(a / b for a, b in zip(times["frozen"], best, strict=True)), 3)
            row["host us"] = {e: round(h * 1e6, 1) for e, h in host.items()}
            row["error"] = {e: float(f"{v:.2g}") for e, v in found.items()}
            row |= steps(given.steps)
    return row


def first(result: Any) -> torch.Tensor:
    return next(x for x in tree_leaves(result) if isinstance(x, torch.Tensor))


def burst(call: Callable[[], Any], runs: int) -> float:
    """Returns milliseconds per call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(runs):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / runs * 1e3


def launched(call: Callable[[], Any]) -> float:
    """Returns the minimum seconds until a call returns, with an idle device."""
    found = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def steps(listed: bool) -> dict[str, Any]:
    """Returns the step counts of the programs that mgx compiled, in order of compilation, and those of one alone."""
    from mgx_torch.compiled import Variant

    made = [o for o in gc.get_objects() if type(o) is Variant]
    plans = [v.executable.instances()[-1].plan for v in made]
    names = [[s.name for s in plan.steps] for plan in plans if isinstance(plan, Schedule)]
    row: dict[str, Any] = {"launches": [len(n) for n in names]}
    if listed and len(names) == 2:
        several = sorted(names, key=len)
        alone = collections.Counter(several[1]) - collections.Counter(several[0])
        row["steps"] = [f"{n} x {name}" for name, n in alone.most_common(40)]
    return row


if __name__ == "__main__":
    main()
