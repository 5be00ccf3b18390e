"""Time of a server process between the end of one run and the start of the next, with a model that waits as for a device.

python benchmarks/serving/turnaround.py [--kind tokens|image] [--rows 2] [--wait 10] [--frontends 0] [--clients 32]
    [--shared-memory]

A run waits for `--wait` milliseconds and computes nothing; clients use HTTP like those of `scale.py`.  Printed are the rows per
run, the times between runs, in which a device would be idle, the share of time spent in runs, and the processor time per
request, of the process that runs the model and of its front ends.

tokens: two inputs of 128 int64 and 768 float32 results per row; image: 602,112 bytes and 1,000 float32 results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import load
import scale

MOST = 32  # rows of a run


def write_model(path: Path, kind: str) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    names = ["ids", "mask"] if kind == "tokens" else ["x"]
    dims, width = ([128], 768) if kind == "tokens" else ([3, 224, 224], 1000)
    of = TensorProto.INT64 if kind == "tokens" else TensorProto.FLOAT
    axes = numpy_helper.from_array(np.arange(1, len(dims) + 1), "axes")
    weights = numpy_helper.from_array(np.ones((1, width), np.float32), "w")
    nodes = [helper.make_node("Cast", [n], [f"{n}_f"], to=TensorProto.FLOAT) for n in names]
    nodes += [helper.make_node("ReduceSum", [f"{n}_f", "axes"], [f"{n}_s"], keepdims=0) for n in names]
    last = f"{names[0]}_s"
    if len(names) > 1:
        nodes.append(helper.make_node("Add", [last, f"{names[1]}_s"], ["sum"]))
        last = "sum"
    nodes.append(helper.make_node("Unsqueeze", [last, "one"], ["column"]))
    nodes.append(helper.make_node("Mul", ["column", "w"], ["y"]))
    inputs = [helper.make_tensor_value_info(n, of, ["batch", *dims]) for n in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])
    one = numpy_helper.from_array(np.array([1]), "one")
    graph = helper.make_graph(nodes, "g", inputs, [output], [axes, weights, one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def serve(wait: float, record: Path, arguments: list[str]) -> None:
    """Runs the server with runs that wait, and writes when each started and ended."""
    from mgx_serve.command import main
    from mgx_serve.model import Model

    seen: list[tuple[float, float, int]] = []

    def waiting(self: Model, feeds: Any, wanted: Any = None) -> list[Any]:
        start = time.perf_counter()
        rows = next(iter(feeds.values())).shape[0]
        time.sleep(wait)
        made = [np.zeros((rows, *t.shape[1:]), t.dtype) for t in self.signature.outputs]
        seen.append((start, time.perf_counter(), rows))
        return made

    Model.run = waiting  # type: ignore[method-assign]
    sys.argv = ["mgx-serve", *arguments]
    try:
        main()
    finally:
        if seen:
            record.write_text(json.dumps(seen))


def processor_seconds(process: int) -> float:
    """Returns the processor time of a process since its start, without that of its children."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def front_ends(process: int) -> list[int]:
    """Returns the ids of a server's front-end processes."""
    return [int(n) for n in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def report(record: Path, seconds: float) -> None:
    given = json.loads(record.read_text())
    last = given[-1][1] - 0.5
    runs = [r for r in given if last - seconds < r[0] and r[1] < last]
    gaps = np.array([b[0] - a[1] for a, b in itertools.pairwise(runs)]) * 1e3
    took = np.array([end - start for start, end, _ in runs]) * 1e3
    rows = np.array([n for *_, n in runs])
    whole = runs[-1][1] - runs[0][0]
    p10, p50, p90 = np.percentile(gaps, (10, 50, 90))
    full, part = rows.sum() / whole / (MOST / took.mean() * 1e3), took.sum() / whole / 1e3
    print(
        f"{len(runs)} runs of {rows.mean():.1f} rows, {took.mean():.2f} ms each; between them p10 {p10:.2f}, p50 {p50:.2f}, "
        f"p90 {p90:.2f}, mean {gaps.mean():.2f} ms; runs took {part:.2f} of the time, {full:.2f} of full ones",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["tokens", "image"], default="tokens")
    parser.add_argument("--rows", default="2", help="rows per request; several numbers are measured in turn: 1,2")
    parser.add_argument("--wait", type=float, default=10.0, help="milliseconds per run")
    parser.add_argument("--frontends", type=int, default=0)
    parser.add_argument(
        "--shared-memory", action="store_true", help="clients pass tensors in shared-memory regions of their own"
    )
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--processes", type=int, default=2, help="processes that the clients are distributed over")
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, record = Path(folder) / "model.onnx", Path(folder) / "runs.json"
        write_model(model, given.kind)
        for rows in map(int, given.rows.split(",")):
            port = load.free_port()
            options = [str(model), "--http-port", str(port), "--grpc-port", "-1", "--target", "ref", "--no-warm"]
            options += [
                "--max-batch",
                str(MOST),
                "--frontends",
                str(given.frontends),
                "--instances",
                str(given.instances),
            ]
            options += ["--shared-memory"] if given.shared_memory else []
            command = [sys.executable, __file__, "serve", str(given.wait / 1e3), str(record), *options]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
            try:
                feeds = scale.feeds_of(model, rows, {})
                text = scale.message(feeds, [])
                scale.ready(port, text)
                asked = scale.shared(port, text, feeds) if given.shared_memory else text
                with scale.clients(port, asked, given.clients, given.processes, given.seconds) as finished:
                    places = [[process.pid], front_ends(process.pid)]
                    before = [sum(map(processor_seconds, place)) for place in places]
                    seen = finished()
                    after = [sum(map(processor_seconds, place)) for place in places]
                    engine, front = (1e6 * (b - a) / len(seen) for a, b in zip(before, after, strict=True))
            finally:
                process.terminate()
                process.wait(60)
            statuses = Counter(status for *_, status in seen)
            if set(statuses) != {200}:
                print(f"statuses: {dict(statuses)}")
            spent = [s for at, s, _ in seen if at > seen[-1][0] - given.seconds]
            p50, p99 = (1e3 * np.percentile(spent, p) for p in (50, 99))
            print(
                f"{rows} rows per request: {engine:.1f} us of processor time each and {front:.1f} in front ends, p50 {p50:.1f}, "
                f"p99 {p99:.1f} ms",
                end="; ",
            )
            report(record, given.seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
