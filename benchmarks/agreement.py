"""Compares unoptimized programs with optimized ones, both on the reference target.

python benchmarks/agreement.py [MODELS] [--only a,b] [--nodes] [--json FILE]

MODELS is a folder of models, run on their example inputs; `--nodes` uses the ONNX node tests and their data.

A result's error is its largest difference over its largest magnitude, in units of the element type's rounding step.  The
tolerance is one unit per instruction of the unoptimized program; integers, booleans and text must be equal.  Programs that
disagree with themselves in a second run draw random numbers, and are counted separately.  Exit status 1 if anything else
disagrees.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import mgx_core as mgx
from mgx_conformance.onnx_nodes import values_of
from mgx_core.compile.pipeline import size


def plain(value: Any) -> Any:
    """Converts a value to numpy arrays and Python lists."""
    if isinstance(value, mgx.Argument):
        value = value.value if not isinstance(value.value, (list, tuple)) else value.get_sub_objects()
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def leaves(value: Any) -> Iterator[Any]:
    """Yields the arrays in nested lists."""
    if isinstance(value, list):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def units(one: Any, other: Any) -> float:
    """Returns the largest difference of two results in rounding steps of their type at their largest magnitude; infinite if
    their types or shapes differ.
    """
    if one is None or other is None:
        return 0.0 if one is other else np.inf
    a, b = np.asarray(one), np.asarray(other)
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf
    if a.dtype.kind in "biuOSUT" or not a.size:
        return 0.0 if np.array_equal(a, b) else np.inf
    try:
        step = float(ml_dtypes.finfo(a.dtype).eps)
    except ValueError:  # narrow integers without a numpy type
        return 0.0 if np.array_equal(a, b) else np.inf
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    scale = float(np.abs(a[finite]).max(initial=0.0))
    worst = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return worst / (step * scale) if worst else 0.0


def compared(program: mgx.Program, feeds: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """Returns the largest error over all results (negative if the program disagrees with itself), and the number of
    instructions.
    """
    count = size(program.get_main_module())
    worst = difference(program, feeds, True)
    if worst > count and difference(program, feeds, False) > count:
        return -1.0, count
    return worst, count


def difference(program: mgx.Program, feeds: Sequence[Mapping[str, Any]], optimize: bool) -> float:
    """Returns the largest error between a run without optimization and one with it (or a second one without)."""
    results = []
    for second in (False, True):
        program.compile(mgx.get_target("ref"), optimize=second and optimize)
        results.append([[plain(r) for r in program.run(feed)] for feed in feeds])
        program.executable = None
    one, other = (list(leaves(r)) for r in results)
    return (
        max((units(a, b) for a, b in zip(one, other, strict=True)), default=0.0) if len(one) == len(other) else np.inf
    )


def models(folder: Path, only: str | None) -> Iterator[tuple[str, mgx.Program, list[dict[str, Any]]]]:
    for name in only.split(",") if only else sorted(p.stem for p in folder.glob("*.onnx")):
        path = folder / f"{name}.onnx"
        yield name, mgx.parse_onnx(path), [dict(np.load(path.with_suffix(".in.npz")))]


def nodes(only: str | None) -> Iterator[tuple[str, mgx.Program, list[dict[str, Any]]]]:
    from onnx.backend.test.loader import load_model_tests

    for test in load_model_tests(kind="node"):
        if only and test.name.removeprefix("test_") not in only.split(","):
            continue
        program = mgx.parse_onnx_buffer(test.model.SerializeToString())
        names = program.get_parameter_names()
        feeds = []
        for inputs, _ in test.data_sets:
            given = values_of(inputs)
            feeds.append(dict(zip(names, given, strict=len(given) < len(names))))
        yield test.name.removeprefix("test_"), program, feeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="?")
    parser.add_argument("--only")
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.nodes == (given.models is not None):
        parser.error("pass a folder of models, or --nodes")
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, Any]] = {}
    for name, program, feeds in nodes(given.only) if given.nodes else models(given.models, given.only):
        start = time.perf_counter()
        with np.errstate(all="ignore"):
            try:
                worst, count = compared(program, feeds)
                rows[name] = {"units": worst, "instructions": count, "random": worst < 0, "agree": 0 <= worst <= count}
            except mgx.MgxError as error:
                rows[name] = {"error": f"{type(error).__name__}: {error}", "agree": False}
        row = rows[name]
        if not given.nodes or not row["agree"]:
            word = "agree" if row["agree"] else "random" if row.get("random") else "DISAGREE"
            said = row.get("error") or f"{row['units']:.3g} units, {row['instructions']} instructions"
            print(
                f"{name:28} {word}: {said} ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
    equal = sum(1 for r in rows.values() if r.get("units") == 0)
    agree = sum(1 for r in rows.values() if r["agree"])
    random = sum(1 for r in rows.values() if r.get("random"))
    print(f"{agree} of {len(rows)} agree, {equal} of them bitwise; {random} draw random numbers")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(agree + random < len(rows))


if __name__ == "__main__":
    main()
