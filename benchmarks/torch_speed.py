"""``torch.compile(backend="mgx")`` compared with inductor on the CPU, float32: time per call, compile time, and memory.

    python -m benchmarks.torch_speed [--rounds 15] [--threads 2] [--live] [--modes default,max-autotune] [NAME ...]
    python -m benchmarks.torch_speed --trivial
    python -m benchmarks.torch_speed --second resnet50

Needs a C++ compiler, for inductor.  One line per model: milliseconds per call of mgx and of inductor (medians), the median of
their ratios in wall and in processor time, seconds of the first call with empty caches and the ratio of their processor times
(including children), how far the peak resident memory of mgx's first call exceeds the resident memory before it (including
copies of the weights; Linux only), and the size of the weights.  Of several modes of inductor, the fastest per call is
reported, with the default's first call.  Both freeze the weights, as users who want speed do: option `freeze` of mgx,
`freezing` of inductor; with --live neither does.

They alternate after a few calls, so that other load affects both equally.  A turn begins with uncounted calls until the other's
threads have stopped spinning: those of OpenMP spin for some 7 ms after a call, during which the next call has one processor
less.  On a loaded machine use one thread: threads that wait for each other spin, which counts as processor time.

--trivial: microseconds per call of a function that adds one to eight numbers.
--second: seconds until the first result in a process that uses the cache of another process, after imports; both freeze the
weights here, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoo.architectures import ARCHITECTURES, make

TWENTY = (
    "resnet18", "resnet50", "resnext50_32x4d", "seresnet50", "regnetx_032", "densenet121", "mobilenetv2_100",
    "mobilenetv3_large_100", "efficientnet_b0", "mnasnet_100", "convnext_tiny", "vit_tiny_patch16_224",
    "deit3_small_patch16_224", "swin_tiny_patch4_window7_224", "poolformer_s12", "BertModel", "DistilBertModel",
    "GPT2LMHeadModel", "LlamaForCausalLM", "Wav2Vec2Model",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--modes", default="default", help="of inductor, separated by commas")
    parser.add_argument("--trivial", action="store_true")
    parser.add_argument("--second", metavar="NAME")
    given = parser.parse_args()
    if given.trivial:
        print(trivial())
    elif given.second:
        print(second(given.second, given.threads))
    elif os.environ.get("MGX_BENCH_CHILD"):
        print(measured(given.names[0], given.rounds, given.threads, not given.live, given.modes.split(",")), flush=True)
    else:
        for name in given.names or TWENTY:
            print(f"{name:32} {apart(name, sys.argv[1:], given.threads)}", flush=True)


def apart(name: str, arguments: Sequence[str], threads: int) -> str:
    """Returns the line of one model, measured in a separate process with its own caches."""
    options = [a for a in arguments if a not in ARCHITECTURES]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.torch_speed", name, *options]
        run = subprocess.run(command, env=_environment(folder, threads), capture_output=True, text=True, check=False)
    if run.returncode:
        return f"FAILED {run.stderr.strip().splitlines()[-1][:200] if run.stderr else run.returncode}"
    return run.stdout.strip().splitlines()[-1]


def _environment(folder: str, threads: int) -> dict[str, str]:
    places = {
        "MGX_CACHE_DIR": f"{folder}/mgx",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "XDG_CACHE_HOME": folder,
    }
    return {**os.environ, **places, "MGX_BENCH_CHILD": "1", "OMP_NUM_THREADS": str(threads)}


def measured(name: str, rounds: int, threads: int, frozen: bool, modes: Sequence[str]) -> str:
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = frozen
    module, inputs = make(ARCHITECTURES[name], 1)
    values = list(inputs.values())
    weights = sum(p.nbytes for p in (*module.parameters(), *module.buffers()))
    with torch.no_grad():
        want = module(*values)
        ours = torch.compile(module, backend="mgx", dynamic=False, options={"freeze": frozen, "threads": threads})
        peers = [torch.compile(module, dynamic=False, mode=mode) for mode in modes]
        before = _reset_peak()
        first = spent(ours, values)
        risen = _resident("VmHWM") - before
        other = spent(peers[0], values)
        for call in (ours, *peers):
            difference = float((call(*values) - want).abs().max() / want.abs().max())
            assert difference < 1e-3, difference
        turns = [[turn(call, values) for call in (ours, *peers)] for _ in range(rounds)]
    walls = [statistics.median(t[n][0] for t in turns) * 1e3 for n in range(1 + len(peers))]
    best = min(range(1, len(walls)), key=walls.__getitem__)
    wall, work = (statistics.median(t[0][i] / t[best][i] for t in turns) for i in (0, 1))
    others = ", ".join(f"{mode} {ms:.2f}" for mode, ms in zip(modes, walls[1:], strict=True))
    return (
        f"mgx {walls[0]:.2f} ms inductor {others} ms ratio {wall:.2f} processor {work:.2f} "
        f"first call {first[0]:.1f} s inductor {other[0]:.1f} s processor {first[1] / other[1]:.2f} "
        f"memory {risen / 2**20:.0f} MiB, weights {weights / 2**20:.0f} MiB"
    )


def _reset_peak() -> int:
    """Resets the peak of resident memory; returns the resident bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _resident("VmRSS")


def _resident(which: str) -> int:
    """Returns the bytes resident now (VmRSS), or their maximum since the last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{which}:")) * 1024


def once(call: Callable[..., Any], values: Sequence[Any]) -> tuple[float, float]:
    """Returns wall and processor seconds of one call."""
    start, work = time.perf_counter(), time.process_time()
    call(*values)
    return time.perf_counter() - start, time.process_time() - work


def turn(call: Callable[..., Any], values: Sequence[Any]) -> tuple[float, float]:
    """Returns wall and processor seconds per call: means over calls that start within 30 ms, after 20 ms of uncounted ones."""
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        call(*values)
    times = [once(call, values)]
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        times.append(once(call, values))
    return statistics.fmean(t[0] for t in times), statistics.fmean(t[1] for t in times)


def spent(call: Callable[..., Any], values: Sequence[Any]) -> tuple[float, float]:
    """Returns wall and processor seconds of a call, including its child processes."""
    children = _of_children()
    wall, work = once(call, values)
    return wall, work + _of_children() - children


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def trivial(calls: int = 2000, rounds: int = 9) -> str:
    """Returns microseconds per call of x + 1: minimum over rounds, which alternate."""
    x = torch.ones(8)
    found: dict[str, list[float]] = {}
    with torch.no_grad():
        compiled = {"mgx": torch.compile(lambda x: x + 1, backend="mgx"), "inductor": torch.compile(lambda x: x + 1)}
        for name, call in compiled.items():
            call(x)
            found[name] = []
        for _ in range(rounds):
            for name, call in compiled.items():
                start = time.process_time()
                for _ in range(calls):
                    call(x)
                found[name].append((time.process_time() - start) / calls * 1e6)
    mine, other = min(found["mgx"]), min(found["inductor"])
    return f"mgx {mine:.1f} us inductor {other:.1f} us ratio {mine / other:.2f}"


SECOND = """
import sys, time, torch, mgx_torch.backend, torch._dynamo, torch._inductor.config
from benchmarks.zoo.architectures import ARCHITECTURES, make
torch.set_num_threads(int(sys.argv[3]))
torch._inductor.config.freezing = True
module, inputs = make(ARCHITECTURES[sys.argv[1]], 1)
with torch.no_grad():
    compiled = torch.compile(module, **eval(sys.argv[2]))
    start, work = time.perf_counter(), time.process_time()
    compiled(*inputs.values())
print(f"{time.perf_counter() - start:.2f} s processor {time.process_time() - work:.2f}")
"""


def second(name: str, threads: int) -> str:
    """Returns seconds until the first result in a first and in a second process: of mgx, and of inductor."""
    lines = []
    for peer, how in (("mgx", "dict(backend='mgx', options={'cache': True, 'freeze': True})"), ("inductor", "{}")):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", "-c", SECOND, name, how, str(threads)]
            runs = [
                subprocess.run(
                    command, env=_environment(folder, threads), capture_output=True, text=True, check=True
                ).stdout.strip()
                for _ in range(2)
            ]
        lines.append(f"{peer}: first process {runs[0]}, second {runs[1]}")
    return "; ".join(lines)


if __name__ == "__main__":
    main()
