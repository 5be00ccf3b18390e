"""Functions of complex numbers of large and small magnitude, whose squares overflow float32, compared with numpy's float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

C64, F32 = np.dtype(np.complex64), np.dtype(np.float32)
SIZES = (1e-30, 1e-12, 1.0, 1e12, 1e30)


def points() -> np.ndarray:
    found = [size * np.exp(1j * turn) for size in SIZES for turn in np.linspace(-3, 3, 7)]
    return np.array([*found, 0, 3e38, -3e38j, 3, -4j]).astype(np.complex64)


def run(g: Any, target: str, **given: np.ndarray) -> np.ndarray:
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target(target))
    found = np.asarray(program.run(given)[0])
    return found[..., 0] + 1j * found[..., 1] if found.ndim == 2 else found


def graph(new_graph: Any, op: str, **attributes: Any) -> Any:
    g = new_graph()
    for name in ("a", "b"):
        g.placeholder(name, F32, [-1])
    g.node("Complex", "z", "a", "b", T=F32, Tout=C64)
    g.node(op, "y", "z", T=C64, **attributes)
    return g


def assert_near(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_distances_from_zero(target: str, new_graph: Any):
    z = points()
    found = run(graph(new_graph, "ComplexAbs", Tout=F32), target, a=z.real.copy(), b=z.imag.copy())
    assert_near(found, np.abs(z.astype(np.complex128)))


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_an_infinite_part_is_infinitely_far(target: str, new_graph: Any):
    a, b = np.float32([np.inf, 1, -np.inf, np.inf]), np.float32([0, -np.inf, np.inf, 5])
    assert (run(graph(new_graph, "ComplexAbs", Tout=F32), target, a=a, b=b) == np.inf).all()


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("op", ["Sqrt", "Log", "Reciprocal"])
def test_functions_of_large_and_small_numbers(op: str, target: str, new_graph: Any):
    z = points()
    if op != "Sqrt":
        z = z[z != 0]
    wanted = {"Sqrt": np.sqrt, "Log": np.log, "Reciprocal": np.reciprocal}[op](z.astype(np.complex128))
    found = run(graph(new_graph, op), target, a=z.real.copy(), b=z.imag.copy())
    kept = np.abs(wanted) > 1e-37  # smaller ones have fewer digits
    assert_near(np.abs(found - wanted)[kept] + np.abs(wanted)[kept], np.abs(wanted)[kept])


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("op", ["Tanh", "Sigmoid"])
def test_limits_are_kept(op: str, target: str, new_graph: Any):
    a, b = np.float32([-500, -90, -3, 0.5, 3, 90, 500]), np.float32([1, -2, 0.5, 0.25, -1, 0.7, 3])
    z = a.astype(np.float64) + 1j * b
    wanted = np.tanh(z) if op == "Tanh" else 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(run(graph(new_graph, op), target, a=a, b=b), wanted, rtol=0, atol=1e-6)
