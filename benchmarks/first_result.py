"""From the start of Python to the first result: whole processes, compared with onnxruntime's, interleaved, medians.

    python benchmarks/first_result.py MODELS [--parse] [--only a,b] [--rounds 9] [--peer PYTHON] [--json OUT]

MODELS contains NAME.onnx and NAME.in.npz.  Every process imports numpy and its engine, reads the input, loads the model and
runs it once on two threads.  warm: with the cache left by an earlier process; cold: with an empty cache; mxr: a compiled
program from its file.  Programs are cached once they are compiled a second time; --parse: every process parses and compiles
(MGX_KEEP_PROGRAMS=0).

Python's bytecode caches exist, as after an installation; if they did not, uncounted processes have written them.

Seconds are processor time of the whole process, user and system, which other processes disturb least; MB is its peak resident
memory.  numpy's BLAS has one thread, in the peer's processes as well: a second one would wait actively for up to 100 ms from
numpy's import on, which counts as processor time and is neither engine's.
peer: an interpreter with onnxruntime, by default this one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HEAD = """
import sys
import numpy as np
path, saved = sys.argv[1:]
feed = dict(np.load(path[:-5] + ".in.npz"))
"""

OURS = (
    HEAD
    + """
import mgx_core as mgx
program = mgx.parse_onnx(path)
program.compile(mgx.get_target("cpu"))
program.run(feed)
"""
)

CHILDREN = {
    "warm": OURS,
    "cold": OURS,
    "mxr": HEAD + "import mgx_core as mgx\nmgx.load(saved).run(feed)\n",
    "save": OURS + "program.save(saved)\n",
    "peer": HEAD
    + """
import onnxruntime
chosen = onnxruntime.SessionOptions()
chosen.intra_op_num_threads = 2
chosen.log_severity_level = 3
onnxruntime.InferenceSession(path, chosen, providers=["CPUExecutionProvider"]).run(None, feed)
""",
}


class Used(NamedTuple):
    """Resources used by one process."""

    seconds: float
    megabytes: float


def used(python: str, kind: str, model: Path, saved: Path, cache: Path, parse: bool) -> Used:
    """Runs one child process to completion; parse: without the program cache.  Errors: CalledProcessError if it fails."""
    words = [python, "-c", CHILDREN[kind], str(model), str(saved)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MGX_CPU_THREADS"), "2") | {"OPENBLAS_NUM_THREADS": "1"}
    ours = {"MGX_CACHE_DIR": str(cache), "MGX_KEEP_PROGRAMS": "0" if parse else ""}
    # otherwise sources are compiled in each process
    given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(words, env=given | threads | ours)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measured(model: Path, python: str, rounds: int, folder: Path, parse: bool) -> dict[str, list[Used]]:
    """Returns the rounds of one model, after two processes that fill the cache and one uncounted process of each kind."""
    saved, warm = folder / "saved.mxr", folder / "warm"
    for _ in range(2):
        used(sys.executable, "save", model, saved, warm, parse)
    found: dict[str, list[Used]] = {kind: [] for kind in ("warm", "cold", "mxr", "peer")}
    for number in range(rounds + 1):
        for kind, each in found.items():
            with tempfile.TemporaryDirectory() as empty:
                cache = Path(empty) if kind == "cold" else warm
                one = used(python if kind == "peer" else sys.executable, kind, model, saved, cache, parse)
            if number:
                each.append(one)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", type=Path)
    options.add_argument("--parse", action="store_true")
    options.add_argument("--only", default="")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--peer", default=sys.executable)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    rows: dict[str, dict[str, float]] = {}
    kinds = ("warm", "cold", "mxr")
    print("every process parses and compiles" if given.parse else "programs are kept between processes")
    print(
        f"{'model':18}{'peer s':>8}{'MB':>6}"
        + "".join(f"{k + ' s':>9}{'ratio':>7}{'MB':>6}{'ratio':>7}" for k in kinds)
    )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(given.models / f"{name}.onnx", given.peer, given.rounds, Path(folder), given.parse)
        row = rows[name] = {}
        for kind, each in found.items():
            row[f"{kind}_s"] = statistics.median(u.seconds for u in each)
            row[f"{kind}_mb"] = statistics.median(u.megabytes for u in each)
        for kind in kinds:
            row[f"{kind}_ratio"] = row[f"{kind}_s"] / row["peer_s"]
            row[f"{kind}_mb_ratio"] = row[f"{kind}_mb"] / row["peer_mb"]
        line = f"{name:18}{row['peer_s']:8.3f}{row['peer_mb']:6.0f}"
        for k in kinds:
            line += f"{row[f'{k}_s']:9.3f}{row[f'{k}_ratio']:7.2f}{row[f'{k}_mb']:6.0f}{row[f'{k}_mb_ratio']:7.2f}"
        print(line, flush=True)
    for k in kinds:
        time, memory = (
            statistics.geometric_mean(r[f"{k}_{what}"] for r in rows.values()) for what in ("ratio", "mb_ratio")
        )
        print(f"{k}: geometric mean of the time ratio {time:.2f}, of the memory ratio {memory:.2f}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
