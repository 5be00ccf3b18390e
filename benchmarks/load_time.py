"""Loading compiled programs: load time, private memory, sharing between processes; peer: onnxruntime's session creation.

    python benchmarks/load_time.py MODELS [--only a,b] [--rounds 5] [--json OUT]

MODELS contains NAME.onnx and NAME.in.npz.  Each program is compiled for cpu, run once and saved; every measurement is a new
process, and onnxruntime's session creation runs in the same rounds.  Columns:

load: seconds of `mgx.load`, including its imports; ort: seconds of `InferenceSession(...)`
private: MB that loading adds to the process's private memory (smaps: Private_Dirty), excluding the arena
arena: MB used by a run; file: MB of the file
shared: share of the file's resident pages that two running processes have in common
(smaps: 2 (Rss - Pss) / Rss)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SAVE = """
import sys
import numpy as np
import mgx_core as mgx
model, saved = sys.argv[1:]
program = mgx.parse_onnx(model)
program.compile(mgx.get_target("cpu"))
program.run(dict(np.load(model[:-5] + ".in.npz")))
program.save(saved)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", type=Path)
    options.add_argument("--only", default="")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    figures = {}
    print(
        f"{'model':18}{'load s':>9}{'ort s':>9}{'ratio':>8}{'private MB':>12}{'arena MB':>10}{'file MB':>9}{'shared':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            saved = Path(folder) / f"{name}.mxr"
            figures[name] = f = measured(given.models / f"{name}.onnx", saved, given.rounds)
            print(
                f"{name:18}{f['load_s']:9.3f}{f['ort_s']:9.3f}{f['load_s'] / f['ort_s']:8.2f}{f['private_mb']:12.1f}"
                f"{f['arena_mb']:10.1f}{f['file_mb']:9.0f}{f['shared']:8.3f}",
                flush=True,
            )
            saved.unlink()
    ratios = [f["load_s"] / f["ort_s"] for f in figures.values()]
    print(f"geometric mean of load time over onnxruntime's: {statistics.geometric_mean(ratios):.2f}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


def measured(model: Path, saved: Path, rounds: int) -> dict[str, float]:
    """Returns the figures of one model: medians over the rounds."""
    subprocess.run([sys.executable, "-c", SAVE, str(model), str(saved)], check=True)
    loads, sessions = [], []
    for _ in range(rounds):
        first, second = (Worker("mgx", model, saved) for _ in range(2))
        loads += [first.told, second.told]
        shares = [w.ask() for w in (first, second)]
        for w in (first, second):
            w.end()
        peer = Worker("ort", model, saved)
        sessions.append(peer.told)
        peer.end()
    notes = [n for told in loads for n in told["notes"]]
    assert not notes, notes
    rss, pss = (sum(s[key] for s in shares) for key in ("Rss", "Pss"))
    return {
        "load_s": statistics.median(t["seconds"] for t in loads),
        "ort_s": statistics.median(t["seconds"] for t in sessions),
        "private_mb": statistics.median(t["private_kb"] / 1024 - t["arena"] / 2**20 for t in loads),
        "arena_mb": loads[0]["arena"] / 2**20,
        "file_mb": saved.stat().st_size / 2**20,
        "shared": 2 * (rss - pss) / rss,
    }


class Worker:
    """A new process that loads a program, reports measurements, and waits."""

    def __init__(self, engine: str, model: Path, saved: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", engine, str(model), str(saved)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.told: dict[str, Any] = self._line()

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self) -> Any:
        """Returns the resident memory of the process that maps the file, in kB."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        self.process.communicate("end\n")


def work(engine: str, model: Path, saved: Path) -> None:
    """Body of a worker."""
    feed = dict(np.load(model.with_suffix(".in.npz")))
    if engine == "ort":
        import onnxruntime as ort

        chosen = ort.SessionOptions()
        chosen.intra_op_num_threads = 2
        start = time.perf_counter()
        ort.InferenceSession(str(model), chosen, providers=["CPUExecutionProvider"])
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
        return
    import mgx_core as mgx

    before = own_memory()
    start = time.perf_counter()
    program = mgx.load(saved)
    seconds = time.perf_counter() - start
    private = own_memory() - before
    program.run(feed)
    assert program.executable is not None
    natives = [i.runner.program.program for i in program.executable.instances()]  # type: ignore[attr-defined]
    told = {
        "seconds": seconds,
        "private_kb": private,
        "arena": max((n.arena_bytes + n.scratch_bytes for n in natives), default=0),
        "notes": program.executable.notes,
    }
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        if line.startswith("end"):
            return
        program.run(feed)
        print(json.dumps(mapped(saved)), flush=True)


def own_memory() -> int:
    """Returns the private memory of this process in kB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))


def mapped(file: Path) -> dict[str, int]:
    """Returns the smaps values, summed over all mappings of a file, in kB."""
    found: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = words[-1] == str(file)
        elif inside and len(words) == 3:
            found[words[0][:-1]] = found.get(words[0][:-1], 0) + int(words[1])
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
