"""Public architectures as torch exports them: results, time, memory, compared with peers and with the machine's limits.

python benchmarks/zoo MODELS [--target cpu] [--precision f32] [--only a,b] [--peers ort,ov] [--rounds 5] [--threads 2]
                      [--clock wall] [--limit 120] [--markdown FILE] [--json FILE]

MODELS is a folder written by export.py.  Every engine runs each model in a separate process; bursts of runs alternate between
engines.

Columns:
  error     largest difference from torch's float64 result, relative to its largest value; tolerance: 1e-4 in f32 (or twice
            torch's own error in f32, for badly conditioned networks), else 1e-3
  ms, ratio median time of a run; median over rounds of the ratio to the best peer (--clock processor: processor time of all
            threads, for one thread on machines that others use, too)
  compile   parsing and compiling to the first result, seconds
  steps     the runner's calls in a run
  host      steps that run the reference implementation on the host
  arena     planned memory of intermediate values, MB
  rss       peak resident memory after the first run, MB
  disturbed bursts disturbed by other processes in all five attempts (--clock wall); of all engines
  floor     time at the machine's measured peaks (the larger of that for the operations and that for the bytes of inputs,
            weights and results) over `ms`
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]

ATTEMPTS = 5  # attempts of a burst, before a disturbed one is accepted
DISTURBED = 0.08  # processor shares of other processes during a burst


class Engine:
    """A process that loads one model in one engine and runs bursts on request."""

    def __init__(self, engine: str, path: Path, given: argparse.Namespace) -> None:
        self.name = engine
        self.limit = given.limit
        options = [f"--target={given.target}", f"--precision={given.precision}", f"--threads={given.threads}"]
        options.append(f"--clock={given.clock}")
        self.disturbed = 0  # bursts that other processes disturbed in every attempt
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), engine, str(path), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | dict.fromkeys(("OMP_NUM_THREADS", "MGX_CPU_THREADS"), str(given.threads))
            | {"MGX_KEEP_PROGRAMS": "0"},
        )
        self.started = self._answer()

    def _answer(self) -> Row:
        """Returns the next line of the process as a record; {"failed": why} if it ended or timed out."""
        import select

        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit)
        line = self.process.stdout.readline() if ready else ""
        if line.startswith("{"):
            return dict(json.loads(line))
        if not ready:
            self.process.kill()
            return {"failed": f"no answer in {self.limit:g} s"}
        code = self.process.wait()
        self.log.seek(0)
        last = (self.log.read().strip().splitlines() or [f"ended with status {code}"])[-1]
        return {"failed": f"signal {-code}" if code < 0 else last[:200]}

    def undisturbed(self, seconds: float) -> float | None:
        """Returns the result of the first `burst` without disturbance by other processes, or else of the least disturbed one."""
        if self.process.poll() is not None:
            return None
        least, best = math.inf, None
        for attempt in range(ATTEMPTS):
            time.sleep(0.3 * attempt)
            before, start = self._others(), time.perf_counter()
            taken = self.burst(seconds)
            if taken is None:
                return None
            others = (self._others() - before) / (time.perf_counter() - start)
            if others < least:
                least, best = others, taken
            if least < DISTURBED:
                break
        self.disturbed += least >= DISTURBED
        return best

    def _others(self) -> float:
        """Returns the processor time of all processes except this engine's, in seconds."""
        whole = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        own = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        busy = sum(whole[:3]) + sum(whole[5:8])  # not idle, not waiting for a disk
        return (busy - int(own[11]) - int(own[12])) / os.sysconf("SC_CLK_TCK")

    def burst(self, seconds: float) -> float | None:
        """Returns the median time of a run over a burst, in seconds; None if the process failed."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self._answer()
        return float(answer["seconds"]) if "seconds" in answer else None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def compare(path: Path, given: argparse.Namespace) -> Row:
    """Returns the measurements of one model."""
    engines = [Engine("mgx", path, given)]
    row: Row = {"model": path.name.removesuffix(".onnx"), **engines[0].started}
    if "failed" not in row:
        engines += [Engine(name, path, given) for name in filter(None, given.peers.split(","))]
        running = [e for e in engines if "failed" not in e.started]
        row["peers"] = {e.name: e.started for e in engines[1:]}
        times: dict[str, list[float]] = {e.name: [] for e in running}
        for _ in range(given.rounds):
            for engine in running:
                seconds = engine.undisturbed(0.3) if given.clock == "wall" else engine.burst(0.3)
                times[engine.name].append(math.nan if seconds is None else seconds)
        row["ms"] = statistics.median(times["mgx"]) * 1e3
        row["disturbed"] = sum(e.disturbed for e in running)
        row["floor"] = row["floor_s"] * 1e3 / row["ms"] if row["floor_s"] else math.nan
        others = [e.name for e in running if e.name != "mgx"]
        for name in others:
            row["peers"][name]["ms"] = statistics.median(times[name]) * 1e3
        if others:
            best = [min(t[r] for n, t in times.items() if n != "mgx") for r in range(given.rounds)]
            row["ratio"] = statistics.median(o / b for o, b in zip(times["mgx"], best, strict=True))
            first = min(row["peers"][n]["compile"] for n in others)
            row["compile_ratio"] = row["compile"] / first
    for engine in engines:
        engine.close()
    return row


def _line(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells) + " |"


COLUMNS = (
    "model",
    "error",
    "ms",
    "ratio",
    "compile",
    "compile_ratio",
    "steps",
    "host",
    "arena",
    "rss",
    "disturbed",
    "floor",
    "failed",
)


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as a table, sorted by decreasing ratio to the best peer."""
    ordered = sorted(rows, key=lambda r: (-("failed" in r), -r.get("ratio", 0.0)))
    lines = [_line(COLUMNS), _line("---" for _ in COLUMNS)]
    return "\n".join(lines + [_line(r.get(c, "") for c in COLUMNS) for r in ordered])


def geomean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def summary(rows: Sequence[Row]) -> str:
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    floors = [r["floor"] for r in rows if r.get("floor", math.nan) == r.get("floor", math.nan) and "floor" in r]
    wrong = [r["model"] for r in rows if "error" in r and not r["error"] <= r["bar"]]  # so is NaN
    failed = [r["model"] for r in rows if "failed" in r]
    return (
        f"{len(rows)} models; failed: {', '.join(failed) or 'none'}; wrong: {', '.join(wrong) or 'none'}\n"
        f"ratio to the best peer: geometric mean {geomean(ratios):.3f}, worst {max(ratios, default=math.nan):.2f}, "
        f"above 1.05: {sum(r > 1.05 for r in ratios)} of {len(ratios)}; floor over time: geometric mean {geomean(floors):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--precision", choices=("f32", "f16", "bf16"), default="f32")
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="ort,ov")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--limit", type=float, default=120, help="timeout in seconds after which an engine is stopped")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    paths = sorted(given.models.glob("*.gold.npz"))
    paths = [p.with_name(p.name.replace(".gold.npz", ".onnx")) for p in paths]
    if given.only:
        wanted = set(given.only.split(","))
        paths = [p for p in paths if p.name.split(".")[0] in wanted]
    rows: list[Row] = []
    start = time.perf_counter()
    for path in paths:
        rows.append(compare(path, given))
        print(_line(rows[-1].get(c, "") for c in COLUMNS), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    print(summary(rows), f"\n{time.perf_counter() - start:.0f} s", flush=True)
    if given.markdown:
        given.markdown.write_text(f"{table(rows)}\n\n{summary(rows)}\n")


if __name__ == "__main__":
    main()
