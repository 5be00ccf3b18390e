"""From a saved program to its first result on a GPU, in a new process with empty caches.

python benchmarks/gpu_saved.py MODELS [--only a,b] [--precision fp16,fp32] [--json FILE]

One process compiles, runs and saves; another, with an empty cache folder, loads the file (trusted by name) and runs.  Seconds:
`context` until the device is open (driver and CUDA or HIP context, once per process), `load`, `first` result, `second` result;
`compiled` and `timed` count what had to be compiled or measured again.  Needs MODELS/NAME.onnx with NAME.in.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NAMES = (
    "resnet50,mobilenet_v2,inception_v3,densenet121,vit_base,bert_base,gpt2_prefill,gpt2_decode,squeezenet1_1,unet,"
    "lstm_speech"
)


def make(model: Path, file: Path, precision: str) -> dict[str, Any]:
    """Compiles, runs and saves; the results are stored beside the file."""
    import mgx_core as mgx

    feed = dict(np.load(model.with_suffix(".in.npz")))
    start = time.perf_counter()
    program = mgx.parse_onnx(model)
    if precision == "fp16":
        mgx.quantize_fp16(program)
    program.compile(mgx.get_target("gpu"))
    compiled = time.perf_counter() - start
    results = [r.to_numpy() for r in program.run(feed)]
    first = time.perf_counter() - start
    program.save(file)
    np.savez(file.with_suffix(".npz"), *results)
    runner = program.executable.instances()[0].runner
    return {
        "compile": compiled,
        "to_first": first,
        "kernels": len(runner.step_sources),
        "MB": file.stat().st_size / 1e6,
    }


def load(model: Path, file: Path) -> dict[str, Any]:
    """Loads and runs, counting compilations and timings."""
    import mgx_core as mgx
    from mgx_gpu_hip import runner as _  # noqa: F401
    from mgx_gpu_hip.compile.rtc import Rtc
    from mgx_gpu_hip.runtime import open_device
    from mgx_gpu_hip.tuning import Tuner

    counts = {"compiled": 0, "timed": 0}

    def counting(owner: Any, name: str, word: str) -> None:
        once = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            counts[word] += 1
            return once(*args, **more)

        setattr(owner, name, call)

    counting(Rtc, "compile", "compiled")
    counting(Tuner, "_timed", "timed")
    feed = dict(np.load(model.with_suffix(".in.npz")))
    wanted = list(np.load(file.with_suffix(".npz")).values())
    times = [time.perf_counter()]
    open_device()
    times.append(time.perf_counter())
    program = mgx.load(file, trust=True)
    times.append(time.perf_counter())
    results = [r.to_numpy() for r in program.run(feed)]
    times.append(time.perf_counter())
    program.run(feed)
    times.append(time.perf_counter())
    spans = dict(zip(("context", "load", "first", "second"), np.diff(times).tolist(), strict=True))
    same = all(np.array_equal(a, b) for a, b in zip(results, wanted, strict=True))
    error = max(
        float(np.abs(a.astype(float) - b.astype(float)).max(initial=0)) for a, b in zip(results, wanted, strict=True)
    )
    return spans | counts | {"same": same, "difference": error, "notes": program.executable.notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", default=NAMES)
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--json")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, file = given.step[0], Path(given.step[1])
        print(json.dumps(load(given.models, file) if step == "load" else make(given.models, file, step)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only.split(","):
            for precision in given.precision.split(","):
                file, row = Path(folder) / "a.mxr", {"model": name, "precision": precision}
                for step in (precision, "load"):
                    cache = Path(folder) / f"cache-{step}"  # the loading process always finds this one empty
                    if step == "load":
                        cache = Path(tempfile.mkdtemp(dir=folder))
                    done = subprocess.run(
                        [sys.executable, __file__, str(given.models / f"{name}.onnx"), "--step", step, str(file)],
                        env={**os.environ, "MGX_CACHE_DIR": str(cache)}, capture_output=True, text=True, check=False,
                    )  # fmt: skip
                    if done.returncode:
                        row["failed"] = done.stderr.strip().splitlines()[-1][:300]
                        break
                    row |= json.loads(done.stdout.splitlines()[-1])
                rows.append(row)
                shown = {k: round(v, 3) if isinstance(v, float) and k != "difference" else v for k, v in row.items()}
                print(json.dumps(shown), flush=True)
    total = [r["load"] + r["first"] for r in rows if "first" in r]
    if total:
        shown = f"largest {max(total):.2f} s, median {np.median(total):.2f} s"
        print(f"load to first result: {shown} over {len(total)} of {len(rows)}")
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
