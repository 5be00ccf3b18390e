"""Conversion of ragged tensors to dense ones: the forms of row partitions that TensorFlow accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import ShapeError
from mgx_tf.ops.ragged import RaggedToTensor

SPLITS = np.array([0, 2, 2, 3])


def dense(kinds: tuple[str, ...], *rows: Any) -> Any:
    values = np.arange(1, 5, dtype=np.float32)
    return RaggedToTensor(kinds=kinds, dims=()).compute(values, np.zeros(1, np.float32), *rows).tolist()


def test_row_ids_after_row_splits():
    """Rows of two, no and one inner rows; TensorFlow requires FIRST_DIM_SIZE only if row ids come first."""
    found = dense(("ROW_SPLITS", "VALUE_ROWIDS"), SPLITS, np.array([0, 0, 1, 2]))
    assert found == [[[1, 2], [3, 0]], [[0, 0], [0, 0]], [[4, 0], [0, 0]]]
    same = dense(("ROW_SPLITS", "ROW_SPLITS"), SPLITS, np.array([0, 2, 3, 4]))
    assert found == same


def test_row_ids_need_a_number_of_rows():
    with pytest.raises(ShapeError, match="VALUE_ROWIDS requires a FIRST_DIM_SIZE or another row partition before it"):
        dense(("VALUE_ROWIDS",), np.array([0, 0, 2, 1]))


@pytest.mark.parametrize("ids", [[0, 3], [-1, 0]])
def test_row_ids_out_of_range_are_rejected(ids: list[int]):
    with pytest.raises(ShapeError, match=r"row ids must be in 0\.\.2"):
        dense(("FIRST_DIM_SIZE", "VALUE_ROWIDS"), np.array(3), np.array(ids))
