"""Projective transforms of images, compared with TensorFlow 2.21."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import ShapeError
from mgx_tf.ops.projective_transform import Project

IMAGE = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
TRANSFORM = np.array([[0.9, 0.3, -1.5, -0.2, 1.1, 0.6, 0.01, 0.02]], np.float32)
RIGHT = [[1.0784, 1.165], [5.5769, 5.619]]  # where all modes agree


@pytest.mark.parametrize(
    ("mode", "nearest", "blended"),
    [
        ("constant", [[-1, -1, 0, 1], [-1, 4, 5, 5]], [[-1, 0.049], [-1, 3.8373]]),
        ("reflect", [[5, 0, 0, 1], [8, 4, 5, 5]], [[2.9, 1.5842], [6.8431, 5.8252]]),
        ("wrap", [[7, 3, 0, 1], [11, 7, 5, 5]], [[4.9, 4.5842], [9.4902, 8.8252]]),
        ("nearest", [[4, 0, 0, 1], [8, 4, 5, 5]], [[2.4, 1.5842], [6.6667, 5.8252]]),
    ],
)
def test_elements_outside(mode: str, nearest: list[list[float]], blended: list[list[float]]):
    filler = np.float32(-1)
    found = Project(height=2, width=4, mode=mode).compute(IMAGE, TRANSFORM, filler)
    np.testing.assert_array_equal(found.reshape(2, 4), nearest)
    between = Project(height=2, width=4, mode=mode, blended=True).compute(IMAGE, TRANSFORM, filler)
    np.testing.assert_allclose(between.reshape(2, 4), np.hstack([blended, RIGHT]), atol=1e-4)


def test_a_number_of_transforms_that_fits_no_batch_is_refused():
    with pytest.raises(ShapeError, match="one transform or 1"):
        Project(height=2, width=4).compute(IMAGE, np.repeat(TRANSFORM, 2, 0), np.float32(0))
