"""Complex numbers have a last axis for their parts, which operators that count axes do not see."""

from __future__ import annotations

import numpy as np

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
