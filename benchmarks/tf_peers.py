"""TensorFlow and TFLite files compared with OpenVINO and LiteRT on the cpu: latency, seconds of loading and compiling, peak
memory.

    python benchmarks/tf_peers.py [--form=saved|lite|int8] [--processor] FOLDER NAME ...

FOLDER contains NAME (a SavedModel), NAME.tflite, NAME_int8.tflite and NAME.npz as `plugins/frontends/tf/tests/gold/make.py`
writes them.  Needs openvino and ai-edge-litert.  Each engine has its own process with two threads; the three alternate call by
call, and printed are medians of ratios; `--processor` compares processor time on one thread, which other load disturbs least.
Loading is the processor time of parsing and compiling, and of the same with a first run, best of three, with empty caches;
"memory" is the growth of the peak of a process that only parses, over the bytes of the weights.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

ROUNDS = 15
PROCESSOR = os.environ.get("TF_PEERS_PROCESSOR") == "1"  # set for the engines' processes
THREADS = 1 if PROCESSOR else 2
CLOCK = time.process_time if PROCESSOR else time.perf_counter
FORMS = {"saved": "{}", "lite": "{}.tflite", "int8": "{}_int8.tflite"}
PEERS = {"saved": ("openvino",), "lite": ("openvino", "litert"), "int8": ("openvino", "litert")}


def ours(path: Path, image: Any) -> Callable[[], Any]:
    import mgx_core as mgx

    program = mgx.parse(path)
    program.compile(mgx.get_target("cpu"), threads=THREADS)
    (name,) = program.get_parameter_names()
    return lambda: np.asarray(program.run({name: image})[0])


def openvino(path: Path, image: Any) -> Callable[[], Any]:
    import openvino as ov

    core = ov.Core()
    # on processors with bfloat16, OpenVINO rounds to it by default: results then differ in the third digit
    settings = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    return lambda: next(iter(request.infer([image]).values()))


def litert(path: Path, image: Any) -> Callable[[], Any]:
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(str(path), num_threads=THREADS)
    engine.allocate_tensors()
    given, made = engine.get_input_details()[0]["index"], engine.get_output_details()[0]["index"]

    def call() -> Any:
        engine.set_tensor(given, image)
        engine.invoke()
        return engine.get_tensor(made)

    return call


ENGINES = {"mgx": ours, "openvino": openvino, "litert": litert}


def serve(engine: str, path: Path, gold: Path) -> None:
    """A process of one engine: reports the load time, then reads numbers of runs and prints their latencies."""
    image = np.load(gold)["in"][:1]
    __import__({"mgx": "mgx_core", "litert": "ai_edge_litert.interpreter"}.get(engine, engine))
    begin = time.process_time()
    call = ENGINES[engine](path, image)
    loaded = time.process_time() - begin
    first = call()
    total = time.process_time() - begin
    print(json.dumps({"load": loaded, "first": total, "sum": float(np.abs(first).sum())}), flush=True)
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            begin = CLOCK()
            call()
            taken.append(CLOCK() - begin)
        print(json.dumps(median(taken)), flush=True)


def parse_only(path: Path) -> None:
    """Prints the growth of peak memory while a file was parsed, over the bytes of its literals."""
    import mgx_core as mgx

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = mgx.parse(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    main = program.get_main_module()
    size = sum(np.asarray(i.literal.value).nbytes for i in main if i.literal is not None)
    print(json.dumps({"ratio": grown * 1024 / size, "weights": size}))


class Worker:
    def __init__(self, engine: str, path: Path, gold: Path) -> None:
        command = [sys.executable, __file__, "--serve", engine, str(path), str(gold)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "MGX_KEEP_PROGRAMS": "0"}  # the peers cache nothing between processes
        self.process = subprocess.Popen(command, text=True, env=environment, **streams)  # type: ignore[call-overload]
        self.facts = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("ended")
        return json.loads(line)

    def latency(self, count: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measured(path: Path, gold: Path, peers: tuple[str, ...]) -> dict[str, Any]:
    workers: dict[str, Worker] = {}
    loads: dict[str, list[tuple[float, float]]] = {}
    for attempt in range(3):
        for engine in ("mgx", *peers):
            try:
                worker = Worker(engine, path, gold)
            except RuntimeError:
                continue  # the peer cannot read it
            loads.setdefault(engine, []).append((worker.facts["load"], worker.facts["first"]))
            if attempt < 2:
                worker.close()
            else:
                workers[engine] = worker
    count = max(1, min(10, int(0.1 / workers["mgx"].latency(3))))
    rows = []
    for turn in range(ROUNDS):
        order = list(workers) if turn % 2 else list(workers)[::-1]
        rows.append({e: workers[e].latency(count) for e in order})
    for worker in workers.values():
        worker.close()
    return {
        "ms": {e: median(r[e] for r in rows) * 1e3 for e in workers},
        "ratio": {e: median(r["mgx"] / r[e] for r in rows) for e in workers if e != "mgx"},
        "load": {e: [min(times) for times in zip(*v, strict=True)] for e, v in loads.items()},
    }


def row(name: str, form: str, path: Path, gold: Path) -> tuple[str, float]:
    """Returns a line of the table, and the time over that of the best peer."""
    facts = measured(path, gold, PEERS[form])
    command = [sys.executable, __file__, "--parse", str(path)]
    memory = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["ratio"]
    ratios, load = facts["ratio"], facts["load"]
    cells = [name, form, f"{facts['ms']['mgx']:.1f}"]
    cells += [f"{ratios[e]:.2f}" if e in ratios else "-" for e in ("openvino", "litert")]
    for place in (0, 1):
        beside = f"{load['mgx'][place] / load['openvino'][place]:.2f}" if "openvino" in load else "-"
        cells += [f"{load['mgx'][place]:.2f}", beside]
    return "| " + " | ".join([*cells, f"{memory:.2f}"]) + " |", max(ratios.values())


def main(arguments: list[str]) -> None:
    forms = list(FORMS)
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option == "--processor":
            os.environ["TF_PEERS_PROCESSOR"] = "1"
        else:
            forms = option.removeprefix("--form=").split(",")
    folder, *names = arguments
    found: dict[str, list[float]] = {}
    print(
        "| network | form | mgx ms | / OpenVINO | / LiteRT | load, s | / OpenVINO | with a run, s | / OpenVINO | memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        for form in forms:
            path = Path(folder) / FORMS[form].format(name)
            if path.exists():
                line, ratio = row(name, form, path, Path(folder) / f"{name}.npz")
                print(line, flush=True)
                found.setdefault(form, []).append(ratio)
    for form, values in found.items():
        print(f"{form}: geometric mean {geometric_mean(values):.2f} of the best peer, worst {max(values):.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", engine, path, gold]:
            serve(engine, Path(path), Path(gold))
        case ["--parse", path]:
            parse_only(Path(path))
        case given:
            main(given)
