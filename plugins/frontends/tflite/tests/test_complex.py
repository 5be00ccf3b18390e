"""Complex numbers have an additional last axis for their parts, which axis attributes do not count."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tflite.model import Model, Operator, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model


class Axes:
    """The attributes of SQUEEZE."""

    def SqueezeDimsLength(self) -> int:
        return 1

    def SqueezeDimsAsNumpy(self) -> np.ndarray:
        return np.array([-2])


def test_axes_of_a_spectrum_are_counted_without_its_parts():
    tensors = [
        Tensor("x", dt.float32, [3, 1, 8], None, None),
        Tensor("length", dt.int32, [2], np.array([1, 8], np.int32), None),
        Tensor("spectrum", dt.complex64, [3, 1, 5], None, None),
        Tensor("rows", dt.complex64, [3, 5], None, None),
        Tensor("y", dt.float32, [3, 5], None, None),
    ]
    operators = [
        Operator("RFFT2D", [0, 1], [2], [], None, b"", 0),
        Operator("SQUEEZE", [2], [3], [], Axes(), b"", 1),
        Operator("COMPLEX_ABS", [3], [4], [], None, b"", 2),
    ]
    program = parse_model(Model([Subgraph("main", tensors, operators, [0], [4])]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.random.default_rng(0).standard_normal((3, 1, 8)).astype(np.float32)
    (found,) = program.run({"x": x})
    np.testing.assert_allclose(np.asarray(found), np.abs(np.fft.rfft(x[:, 0])), rtol=1e-5, atol=1e-6)


def test_products_of_complex_numbers():
    tensors = [Tensor("x", dt.float32, [4], None, None), Tensor("z", dt.complex64, [4], None, None)]
    turn = np.array([1 + 2j, 0.5j, -1, 3 - 1j], np.complex64)
    tensors += [Tensor("w", dt.complex64, [4], turn, None), Tensor("p", dt.complex64, [4], None, None)]
    tensors += [Tensor("y", dt.float32, [4], None, None)]
    operators = [
        Operator("CAST", [0], [1], [], None, b"", 0),
        Operator("MUL", [1, 2], [3], [], None, b"", 1),
        Operator("IMAG", [3], [4], [], None, b"", 2),
    ]
    program = parse_model(Model([Subgraph("main", tensors, operators, [0], [4])]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.array([1, 2, 3, -4], np.float32)
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), (x * turn).imag, rtol=1e-6)


def test_operators_that_would_count_the_axis_of_parts_are_refused():
    tensors = [Tensor("z", dt.complex64, [4], None, None), Tensor("y", dt.complex64, [4], None, None)]
    graph = Subgraph("main", tensors, [Operator("REVERSE_V2", [0], [1], [], None, b"", 0)], [0], [1])
    with pytest.raises(mgx.UnsupportedError, match="REVERSE_V2 of complex numbers"):
        parse_model(Model([graph]), TfliteOptions())
