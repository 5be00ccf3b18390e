"""Cost of serving: latency added by the server, and throughput with many clients, compared with two peers.

python benchmarks/serving [--mlserver PYTHON] [--ray PYTHON] [--model FILE.onnx] [--requests N] [--pause S] [--seconds S]
python benchmarks/serving --model FILE.onnx --max-batch 16    # batched requests, compared with runs in this process

PYTHON: interpreters of environments with mlserver, or ray[serve], and onnxruntime; peers without an interpreter are left out.
Every server has two cores, or as many as there are; clients and servers share them.  Calls of all systems are interleaved one
by one.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GROUP, AWAKE = 8, 3  # calls of a system per turn, and how many of them are not timed
sys.path.insert(0, str(HERE))
import load  # noqa: E402


@dataclass
class System:
    """A server process and its protocols; `run`: the same engine in this process."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    message: tuple[bytes, dict[str, str]]
    run: Callable[[np.ndarray], Any]
    x: np.ndarray
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)
    grpc: tuple[int, bytes] | None = None  # port and message

    def connect(self) -> None:
        """Opens connections, because servers close those that were idle while other systems were measured."""
        self.calls = {"REST": load.rest_caller(self.port, *self.message)}
        if self.grpc is not None:
            self.calls["gRPC"] = load.grpc_caller(*self.grpc)


def ours(model: Path, name: str, x: np.ndarray, *options: str) -> System:
    import mgx_core as mgx

    http, grpc = load.free_port(), load.free_port()
    command = [sys.executable, "-c", "from mgx_serve.command import main; main()", str(model), "--http-port", str(http)]
    process = subprocess.Popen([*command, "--grpc-port", str(grpc), *options], stdout=subprocess.DEVNULL)
    program = mgx.parse(model)
    program.compile(mgx.get_target(mgx.best_target()))
    message = load.rest_message(name, x)
    made = System("mgx-serve", process, http, message, lambda x: [np.asarray(r) for r in program.run({name: x})], x)
    load.wait(lambda: load.rest_caller(http, *message)())
    made.grpc = grpc, load.grpc_message(name, x)
    made.connect()
    return made


def onnxruntime_run(model: Path, name: str) -> Callable[[np.ndarray], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {name: x})


def mlserver(python: str, model: Path, name: str, x: np.ndarray) -> System:
    http, grpc = load.free_port(), load.free_port()
    command = [python, str(HERE / "mlserver_onnx.py"), str(model), str(http), str(grpc)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=tempfile.mkdtemp(), **quiet)
    message = load.json_message(name, x)  # it has no binary extension
    made = System("MLServer", process, http, message, onnxruntime_run(model, name), x)
    load.wait(lambda: load.rest_caller(http, *message)())
    made.grpc = grpc, load.grpc_message(name, x)
    made.connect()
    return made


def ray_serve(python: str, model: Path, name: str, x: np.ndarray) -> System:
    http = load.free_port()
    command = [python, str(HERE / "ray_onnx.py"), str(model), str(http)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    message = load.rest_message(name, x)
    made = System("Ray Serve", process, http, message, onnxruntime_run(model, name), x)
    load.wait(lambda: load.rest_caller(http, *message)())
    made.connect()
    return made


def latencies(systems: list[System], requests: int, pause: float) -> None:
    """Prints medians and 99th percentiles of the latency that each protocol adds to a run in this process, in ms.

    pause: 0 alternates between the systems call by call.  Otherwise each gets GROUP calls per turn, the first AWAKE of them
    untimed, after a pause of that many seconds: onnxruntime's threads spin for some 50 ms after a call and take processor time
    from the next system; after a longer sleep, processes are slow to wake up.
    """
    calls = {
        (s.name, protocol): call
        for s in systems
        for protocol, call in ({"": functools.partial(s.run, s.x)} | s.calls).items()
    }
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    group, awake = (GROUP, AWAKE) if pause else (1, 0)
    first = -(requests // 10)  # turns that are not timed
    for turn in range(first, -(-requests // (group - awake))):
        for key, call in calls.items():
            time.sleep(pause)
            for number in range(group):
                start = time.perf_counter()
                call()
                if turn >= 0 and number >= awake:
                    taken[key].append(1e3 * (time.perf_counter() - start))
    for (name, protocol), times in taken.items():
        local = taken[name, ""]
        p99, local_p99 = np.percentile(times, 99), np.percentile(local, 99)
        if not protocol:
            print(f"{name:10} in process   median {statistics.median(times):8.3f} ms   p99 {p99:8.3f} ms")
        else:
            added = statistics.median(times) - statistics.median(local)
            print(f"{name:10} {protocol:5} adds   median {added:8.3f} ms   p99 {p99 - local_p99:8.3f} ms")


def processor_seconds(ancestor: int) -> float:
    """Returns the processor time of a process and its descendants in seconds."""
    found: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
        except OSError:
            continue  # it has ended
    inside = {ancestor}
    while more := {p for p, (parent, _) in found.items() if parent in inside} - inside:
        inside |= more
    return sum(found[p][1] for p in inside) / os.sysconf("SC_CLK_TCK")


def costs(systems: list[System], requests: int) -> None:
    """Prints the processor time per request in all processes of a server, which other programs hardly affect."""
    for system in systems:
        system.connect()
        for protocol, call in system.calls.items():
            before = processor_seconds(system.process.pid)
            for _ in range(requests):
                call()
            spent = processor_seconds(system.process.pid) - before
            print(
                f"{system.name:10} {protocol:5} takes  {1e3 * spent / requests:8.3f} ms of processor time per request"
            )


def batching(system: System, x: np.ndarray, most: int, rounds: int, seconds: float) -> None:
    """Prints rows per second of runs in this process at its best batch, and of 32 clients with requests of one row,
    alternating.
    """

    def rows_a_second(size: int, limit: float) -> float:
        given, rows, start = np.repeat(x, size, 0), 0, time.perf_counter()
        while time.perf_counter() < start + limit:
            system.run(given)
            rows += size
        return rows / (time.perf_counter() - start)

    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]
    for size in sizes:
        rows_a_second(size, 0.0)  # all sizes are compiled by now
    best = max(sizes, key=lambda size: rows_a_second(size, seconds / 4))
    load.throughput(system.port, *system.message, clients=32, seconds=seconds)
    ratios = []
    for _ in range(rounds):
        local = rows_a_second(best, seconds)
        rate, p99 = load.throughput(system.port, *system.message, clients=32, seconds=seconds)
        ratios.append(rate / local)
        served = f"32 clients {rate:8.1f} rows/s, p99 {1e3 * p99:8.1f} ms"
        print(f"in process {local:8.1f} rows/s at batch {best}   {served}   {rate / local:.2f}")
    print(f"median {statistics.median(ratios):.2f}")


def trivial(path: Path) -> Path:
    """y = 2 x, [batch, 4]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy")
    two = numpy_helper.from_array(np.float32(2), "f")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "f"], ["y"])], "g", [x], [y], [two])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlserver")
    parser.add_argument("--ray")
    parser.add_argument("--model", type=Path, help="[default: a trivial one]")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        help="seconds before each system's turn; 0.1 for a model that uses threads",
    )
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-batch", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        if given.model is None:
            trivial(model)
        else:
            model.symlink_to(given.model.resolve())
        import mgx_core as mgx

        ((name, shape),) = mgx.parse(model).get_parameter_shapes().items()
        x = np.ones([d if isinstance(d, int) else 1 for d in shape.dims], np.float32)
        options = ["--max-batch", str(given.max_batch)] if given.max_batch else []
        systems = [ours(model, name, x, *options)]
        try:
            if given.mlserver:
                systems.append(mlserver(os.path.abspath(given.mlserver), model, name, x))
            if given.ray:
                systems.append(ray_serve(os.path.abspath(given.ray), model, name, x))
            if given.max_batch:
                batching(systems[0], x, given.max_batch, given.rounds, given.seconds)
                return
            latencies(systems, given.requests, given.pause)
            costs(systems, max(given.requests, 300))
            for _ in range(given.rounds if given.seconds else 0):
                for system in systems:
                    rate, p99 = load.throughput(system.port, *system.message, clients=32, seconds=given.seconds)
                    print(f"{system.name:10} REST  32 clients {rate:8.0f} requests/s   p99 {1e3 * p99:8.1f} ms")
                    if system.grpc is not None:
                        rate, p99 = load.grpc_throughput(*system.grpc, clients=32, seconds=given.seconds)
                        print(f"{system.name:10} gRPC  32 clients {rate:8.0f} requests/s   p99 {1e3 * p99:8.1f} ms")
        finally:
            for system in systems:
                system.process.terminate()
            for system in systems:
                system.process.wait(30)


if __name__ == "__main__":
    main()
