"""Whole networks, compared with the reference: small ones built by the kit, and those of a directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core
from mgx_conformance.compare import differs
from mgx_conformance.networks import NETWORKS
from mgx_conformance.noise import expected
from mgx_conformance.trial import placements
from mgx_core import dtype

DEFAULT_EXTENT = 2  # of symbols of third-party models


def draw(program: Any, extents: dict[str, int]) -> dict[str, Any]:
    """Returns values for all parameters: normal floats, small integers, true masks."""
    rng = np.random.default_rng(5)
    feed = {}
    for name, shape in program.get_parameter_shapes().items():
        symbols = {
            s.name: extents.get(s.name, DEFAULT_EXTENT) for d in shape.dims for s in mgx_core.types.dim.symbols_of(d)
        }
        lens = shape.substitute(symbols).lens()
        if shape.dtype.kind == "f":
            feed[name] = rng.standard_normal(lens).astype(np.float32).astype(shape.dtype.numpy)
        elif shape.dtype.kind == "b":
            feed[name] = np.ones(lens, np.bool_)
        else:
            high = 2 if "mask" in name or "type" in name else 40
            feed[name] = rng.integers(0, high, lens).astype(shape.dtype.numpy)
    return feed


def compare(program: Any, compiled: Any, feed: dict[str, Any], samples: int) -> None:
    module = program.get_main_module()
    wanted = expected(module, [feed[n] for n in module.parameters], samples=samples)
    assert not wanted.vacuous(), "rounding alone decides the results; the model tells nothing"
    for n, (got, value, allowed) in enumerate(zip(compiled.run(feed), wanted.results, wanted.tolerances, strict=True)):
        why = differs(got.value, value, allowed)
        assert not why, f"result {n}: {why}"


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, mgx_target: Any, record_property: Any) -> None:
    make, sets = NETWORKS[name]
    program = mgx_core.parse_onnx_buffer(make())
    compiled = program.clone()
    compiled.compile(mgx_target)
    for extents in sets:
        compare(program, compiled, draw(program, extents), samples=4)
    on_host = sorted(op for op, place in placements(compiled).items() if place != "target")
    record_property("on_host", on_host)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "file" in metafunc.fixturenames:
        folder = metafunc.config.getoption("mgx_models")
        files = sorted(Path(folder).glob("*.onnx")) if folder else []
        if folder and not files:
            raise pytest.UsageError(f"--mgx-models {folder}: no .onnx file is there")
        metafunc.parametrize("file", [pytest.param(f, id=f.stem) for f in files])


def test_file(file: Path, mgx_target: Any, record_property: Any) -> None:
    """A model file: with NAME.in.npz and NAME.out.npz beside it compared with these values, else with the reference on random
    ones.
    """
    program = mgx_core.parse_onnx(file)
    compiled = program.clone()
    start = time.perf_counter()
    compiled.compile(mgx_target)
    record_property("compile_seconds", round(time.perf_counter() - start, 3))
    given, gold = (file.with_suffix(f".{word}.npz") for word in ("in", "out"))
    feed = dict(np.load(given)) if given.exists() else draw(program, {})
    if not (given.exists() and gold.exists()):
        compare(program, compiled, feed, samples=2)
        return
    outputs = np.load(gold)
    for key, got in zip(outputs.files, compiled.run(feed), strict=True):
        why = normwise(got.value, outputs[key])
        assert not why, f"{key}: {why}"


def normwise(got: Any, wanted: Any) -> str:
    """Compares with results of another engine: relative to the largest value, some thousand rounding units for some hundred
    layers.
    """
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{wanted.dtype}{list(wanted.shape)} required, got {got.dtype}{list(got.shape)}"
    if dtype.of(wanted.dtype).kind != "f" or not wanted.size:
        return (
            "" if np.array_equal(got, wanted) else f"{np.count_nonzero(got != wanted)} of {wanted.size} elements differ"
        )
    scale = float(np.abs(wanted.astype(np.float64)).max()) or 1.0
    worst = float(np.abs(got.astype(np.float64) - wanted).max()) / scale
    limit = 1024 * dtype.of(wanted.dtype).epsilon
    return "" if worst <= limit else f"differs by {worst:.3g} of the largest value, {limit:.3g} allowed"
