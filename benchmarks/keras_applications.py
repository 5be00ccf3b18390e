"""Every network of keras.applications, as SavedModel, frozen graph, float and int8 .tflite, compared with TensorFlow's
results.

    python benchmarks/keras_applications.py PYTHON FOLDER [NAME ...]

PYTHON is an interpreter with TensorFlow (`make gold-tf` creates `.venv-gold-tf/bin/python`); it writes FOLDER/NAME, which is
removed after the measurement unless `--keep` is given.  Each form runs with batches of one and two images on the cpu.  Errors
of float results are relative to their range, those of int8 results are in steps of the output.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MAKER = Path(__file__).resolve().parent.parent / "plugins/frontends/tf/tests/gold/make.py"
FORMS = {"saved": "{}", "frozen": "{}.pb", "lite": "{}.tflite", "int8": "{}_int8.tflite"}


def step_of(path: Path) -> float:
    """Returns the scale of the first output of a .tflite file before it is dequantized."""
    from mgx_tflite.model import read_model

    graph = read_model(path.read_bytes(), 1 << 34).subgraphs[0]
    made = {i: o for o in graph.operators for i in o.outputs}[graph.outputs[0]]
    given = graph.tensors[made.inputs[0] if made.name == "DEQUANTIZE" else graph.outputs[0]].quantization
    assert given is not None
    return float(given.scale[0])


def looked_at(path: Path, form: str, gold: Path) -> dict[str, Any]:
    """Returns the measurements of one file: the largest difference, seconds of parsing and compiling, peak memory in MB."""
    import numpy as np

    import mgx_core as mgx

    held = np.load(gold)
    wanted, images = held["out" if form in ("saved", "frozen") else form], held["in"]
    begin = time.perf_counter()
    program = mgx.parse(path)
    parsed = time.perf_counter()
    program.compile(mgx.get_target("cpu"))
    (parameter,) = program.get_parameter_names()
    worst = 0.0
    unit = step_of(path) if form == "int8" else float(np.abs(wanted).max())
    for count in (1, 2):
        got = np.asarray(program.run({parameter: images[:count]})[0])
        if got.shape != wanted[:count].shape:
            raise ValueError(f"shape {got.shape}, wanted {wanted[:count].shape}")
        worst = max(worst, float(np.abs(got - wanted[:count]).max()) / unit)
    return {
        "worst": worst,
        "spread": float(wanted.std() / np.abs(wanted).max()),
        "parse": parsed - begin,
        "all": time.perf_counter() - begin,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def row(name: str, python: str, folder: Path) -> str:
    """Returns one line of the table."""
    made = subprocess.run([python, str(MAKER), str(folder), name], capture_output=True, text=True, timeout=3000)
    if made.returncode:
        return f"| {name} | not made: {(made.stderr.strip().splitlines() or [f'ended with {made.returncode}'])[-1]} |"
    notes = next((json.loads(line[len(name) :]) for line in made.stdout.splitlines() if line.startswith(name)), {})
    cells = [name]
    for form, pattern in FORMS.items():
        path = folder / pattern.format(name)
        if not path.exists():
            cells.append(f"not made: {notes.get(form, '')[:60]}")
            continue
        command = [sys.executable, __file__, "--one", str(path), form, str(folder / f"{name}.npz")]
        found = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        if found.returncode:
            cells.append("failed: " + (found.stderr.strip().splitlines() or ["killed"])[-1][:300])
            continue
        facts = json.loads(found.stdout.splitlines()[-1])
        cells.append(f"{facts['worst']:.1f} steps" if form == "int8" else f"{facts['worst']:.1e}")
        print(name, form, json.dumps(facts), file=sys.stderr, flush=True)
    return "| " + " | ".join(cells) + " |"


def removed(name: str, folder: Path) -> None:
    shutil.rmtree(folder / name, ignore_errors=True)
    for path in folder.glob(f"{name}[._]*"):
        path.unlink()


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        print(json.dumps(looked_at(Path(arguments[1]), arguments[2], Path(arguments[3]))))
        return
    keep = "--keep" in arguments
    python, folder, *names = [a for a in arguments if a != "--keep"]
    print("| network | SavedModel | frozen | .tflite | int8 .tflite |\n|---|---|---|---|---|")
    for name in names or subprocess.run([python, str(MAKER), "--names"], capture_output=True, text=True).stdout.split():
        print(row(name, python, Path(folder)), flush=True)
        if not keep:
            removed(name, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
