"""Single operations compared with onnxruntime: models of one node each, results checked, processor time on one thread.

OMP_NUM_THREADS=1 MGX_CPU_THREADS=1 taskset -c 0 python benchmarks/ops.py [--only TEXT] [--rounds 5] [--seconds 0.02]
                                                                          [--above 1.2] [--markdown FILE] [--json FILE]

Rounds alternate between the engines; reported is the median over rounds of the processor time per run.  Cases that take
onnxruntime less than 20 us measure the call overhead rather than the kernel: their mean is reported separately.  Results must
agree within 1e-4 of the largest value (1e-2 in float16; or a case's own tolerance), including NaN and infinities; results in
arbitrary order are compared accordingly.  Without --only every family of cases runs in a separate process.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from op_cases import FAMILIES, Case

import mgx_core as mgx

Run = Callable[[], list[Any]]
Row = dict[str, Any]
LEAST = 20e-6  # seconds: below, a case measures the call overhead
HALF = 1e-2  # tolerance in float16


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Returns the model of a case, whose results have unspecified extents, and its inputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)
    given = {n: np.asarray(x) for n, x in zip(names, case.inputs, strict=True) if n}
    constants = {f"x{i}" for i in case.constants} & given.keys()
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in given.items()
            if n not in constants
        ],
        [helper.make_value_info(name, helper.make_tensor_type_proto(TensorProto.FLOAT, None)) for name in outputs],
        [numpy_helper.from_array(given[n], n) for n in sorted(constants)],
    )
    imports = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    for output in model.graph.output:
        output.ClearField("type")
    return model, {n: x for n, x in given.items() if n not in constants}


def theirs(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> Run:
    """Returns a function that runs onnxruntime on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 1, 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, feed))


def ours(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> tuple[Run, Any]:
    """Returns a function that runs the cpu target, and its program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        path.write_bytes(model.SerializeToString())
        program = mgx.parse_onnx(path)
    program.compile(mgx.get_target("cpu"))
    feed = {name: feed[name] for name in program.get_parameter_names()}
    return lambda: [np.asarray(r) for r in program.run(feed)], program


def apart(ours: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the largest difference over the largest finite magnitude; infinite if shapes, NaN or infinities differ."""
    if ours.shape != wanted.shape or ours.dtype != wanted.dtype:
        return math.inf
    ours, wanted = (v.astype(np.float64) for v in (ours, wanted))
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):
        between = np.abs(ours - wanted)
    same = (ours == wanted) | (np.isnan(ours) & np.isnan(wanted))
    return float(np.where(same, 0.0, np.nan_to_num(between, nan=np.inf)).max(initial=0.0) / size)


def error(case: Case, found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Returns the difference of results in units of the tolerance."""
    if case.op == "TopK" and case.attributes.get("sorted") == 0:  # in any order
        found, wanted = ([np.sort(v) for v in values] for values in (found, wanted))
    halves = any(np.asarray(x).dtype == np.float16 for x in case.inputs if x is not None)
    return max(apart(a, b) for a, b in zip(found, wanted, strict=True)) / (HALF if halves else case.allowed)


def seconds(run: Run, least: float) -> float:
    """Returns the processor time of a run, averaged over runs of at least `least` seconds in total."""
    begin = time.process_time()
    run()
    once = max(time.process_time() - begin, 1e-6)
    count = max(1, int(least / once))
    begin = time.process_time()
    for _ in range(count):
        run()
    return (time.process_time() - begin) / count


def measured(case: Case, given: argparse.Namespace) -> Row:
    """Returns the figures of one case."""
    row: Row = {"case": case.name}
    try:
        model, feed = model_of(case)
        other = theirs(model, feed)
        wanted = other()
    except Exception as e:
        return row | {"skipped": str(e)[:150]}
    try:
        run, program = ours(model, feed)
        row["error"] = error(case, run(), wanted)
        executable = program.executable
        placements = [p for i in executable.instances() for p in i.placements]
        row["host"] = sum(p.place == "host" for p in placements)
    except Exception as e:
        return row | {"failed": f"{type(e).__name__}: {e}"[:150]}
    times: list[list[float]] = [[], []]
    for _ in range(given.rounds):
        for taken, each in zip(times, (run, other), strict=True):
            taken.append(seconds(each, given.seconds))
    row["ours"], row["theirs"] = (statistics.median(t) for t in times)
    return row | {"ratio": statistics.median(a / b for a, b in zip(*times, strict=True))}


def mean(rows: list[Row]) -> float:
    """Returns the geometric mean of the ratios."""
    return statistics.geometric_mean(r["ratio"] for r in rows) if rows else math.nan


def told(rows: list[Row], above: float) -> str:
    """Returns the table in Markdown: cases above a ratio, the slowest first, after wrong ones, and means below."""
    timed = sorted((r for r in rows if "ratio" in r), key=lambda r: -r["ratio"])
    long, short = ([r for r in timed if (r["theirs"] >= LEAST) == wanted] for wanted in (True, False))
    lines = ["| case | mgx us | ORT us | ratio |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {r['case']} | {r['ours'] * 1e6:.1f} | {r['theirs'] * 1e6:.1f} | {r['ratio']:.2f} |"
        for r in long
        if r["ratio"] > above
    ]
    lines += ["", *(f"failed: {r['case']}: {r['failed']}" for r in rows if "failed" in r)]
    lines += [f"wrong: {r['case']}: {r['error']:.3g} times what is allowed" for r in rows if r.get("error", 0) > 1]
    lines += [f"onnxruntime declines: {r['case']}: {r['skipped']}" for r in rows if "skipped" in r]
    over = sum(r["ratio"] > 1.2 for r in long)
    lines.append(f"{len(long)} cases: geometric mean {mean(long):.3f}, {over} above 1.2")
    lines.append(f"{len(short)} cases shorter than 20 us: geometric mean {mean(short):.3f}")
    return "\n".join(lines)


def family(index: int, given: argparse.Namespace) -> list[Row]:
    """Returns the rows of a family, measured in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        limits = [f"--rounds={given.rounds}", f"--seconds={given.seconds}", f"--json={path}", f"--family={index}"]
        subprocess.run([sys.executable, __file__, *limits], check=False)
        return list(json.loads(path.read_text())) if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--family", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--above", type=float, default=1.2)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.only or given.family is not None:
        families = FAMILIES if given.family is None else FAMILIES[given.family : given.family + 1]
        chosen = (case for f in families for case in f() if given.only.lower() in case.name.lower())
        rows = []
        for case in chosen:
            rows.append(measured(case, given))
            print(rows[-1], file=sys.stderr, flush=True)
    else:
        rows = [row for index in range(len(FAMILIES)) for row in family(index, given)]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    if given.family is None:
        table = told(rows, given.above)
        print(table)
        if given.markdown:
            given.markdown.write_text(table + "\n")
    return int(any("failed" in r or r.get("error", 0) > 1 for r in rows))


if __name__ == "__main__":
    sys.exit(main())
