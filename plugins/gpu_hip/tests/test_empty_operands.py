"""Empty operands: the reference's error, and no access outside the operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Operation, Shape, ShapeError
from mgx_gpu_hip.guarded import GuardedTarget


def run(op: Operation, *xs: Any) -> Any:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(op, *(m.add_parameter(f"x{n}", Shape(str(x.dtype), x.shape)) for n, x in enumerate(xs)))])
    program.compile(GuardedTarget())
    return program.run({f"x{n}": x for n, x in enumerate(xs)})[0].to_numpy()


def empty(*lens: int) -> Any:
    return np.zeros(lens, np.float32)


NOTHING: dict[str, tuple[Operation, list[Any], str]] = {
    "gather_elements": (mgx.op("gather_elements", axis=0), [empty(0, 4), np.zeros((2, 4), np.int64)], "must lie in"),
    "gathernd": (mgx.op("gathernd"), [empty(0, 4), np.zeros((2, 1), np.int64)], "must lie in"),
    "resize": (mgx.op("resize", sizes=(1, 1, 2, 2)), [empty(1, 1, 0, 3)], "axis 2 has no elements to make 2 from"),
    "resize linear": (mgx.op("resize", sizes=(1, 1, 2, 2), mode="linear"), [empty(1, 1, 0, 3)], "no elements"),
    "grid_sample": (mgx.op("grid_sample"), [empty(1, 1, 0, 3), empty(1, 2, 2, 2)], "no elements to sample"),
    "pad": (mgx.op("pad", pads=(1, 0, 1, 0), mode="edge"), [empty(0, 3)], "nothing to repeat"),
    "pad of what is cropped": (mgx.op("pad", pads=(-3, 0, 5, 0), mode="edge"), [empty(2, 3)], "nothing to repeat"),
    "reflection": (mgx.op("pad", pads=(-2, 0, 3, 0), mode="reflect"), [empty(2, 3)], "nothing to repeat"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_picked_from_nothing(name: str) -> None:
    op, given, said = NOTHING[name]
    with pytest.raises(ShapeError, match=said):
        run(op, *given)


@pytest.mark.parametrize("lens", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 5)])
def test_no_places_are_sampled(lens: Any) -> None:
    grid = np.zeros((lens[0], 0 if 0 not in lens else 6, 7, 2), np.float32)
    assert run(mgx.op("grid_sample"), empty(*lens), grid).shape == (*lens[:2], *grid.shape[1:-1])


def test_padding_of_empty_tensors_with_constants() -> None:
    got = run(mgx.op("pad", pads=(0, 2, 0, 1), value=3.0), empty(3, 0))
    assert got.shape == (3, 3) and (got == 3).all()
    assert run(mgx.op("pad", pads=(0, 1, 0, 2), mode="edge"), empty(0, 3)).shape == (0, 6)
    assert run(mgx.op("gathernd"), empty(0, 4), np.zeros((0, 1), np.int64)).shape == (0, 4)


@pytest.mark.parametrize("name", ["scatternd_none", "scatternd_add", "scatter_none"])
def test_no_updates_leave_the_data_as_it_is(name: str) -> None:
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    indices = np.zeros((0, 1) if "nd" in name else (0, 3), np.int64)
    np.testing.assert_array_equal(run(mgx.op(name), data, indices, empty(0, 3)), data)
