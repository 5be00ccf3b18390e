"""Pointwise work behind pixel shuffles moves in front of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

from mgx_core.ops.convert import Convert
from mgx_core.ops.movement import Transpose
from mgx_core.ops.reshape import Reshape
from mgx_core.passes.rewrite import Rewrite
from mgx_gpu_hip.shuffle_rules import SHUFFLES


def shuffled(b: BuiltProgram, x: Any) -> Any:
    """Returns 8 channels of 6 x 5 as 2 of 12 x 10."""
    parts = b.add("reshape", x, dims=[2, 2, 2, 2, 6, 5])
    return b.add("reshape", b.add("transpose", parts, permutation=[0, 1, 4, 2, 5, 3]), dims=[2, 2, 12, 10])


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_one_kernel_shuffles_and_computes(device: int) -> None:
    """Of an image with its channels innermost."""
    b = BuiltProgram(1)
    x, _ = b.argument(2, 6, 5, 8)
    half = b.add("multibroadcast", b.main.add_literal(np.float16(0.5)), out_lens=[2, 2, 12, 10])
    wide = shuffled(b, b.add("transpose", x, permutation=[0, 3, 1, 2]))
    assert len(b.checked_steps(b.add("tanh", b.add("mul", wide, half)), device, 2e-3)) == 1


@pytest.mark.parametrize("image", [True, False])
def test_images_are_converted_as_they_are_shuffled(image: bool) -> None:
    """Results of convolutions only: rows would be copied in float32."""
    b = BuiltProgram(4)
    x, value = b.argument(2, 8, 6, 5)
    if image:
        x = b.add("convolution", x, b.main.add_literal(np.ones((8, 8, 1, 1), value.dtype)))
    b.main.add_return([b.add("convert", shuffled(b, x), target_type="float32")])
    Rewrite(SHUFFLES).apply(b.main)
    (convert,) = [i for i in b.main if isinstance(i.op, Convert)]
    assert isinstance(convert.inputs[0].op, Transpose if image else Reshape)


@pytest.mark.parametrize("kept", [False, True])
def test_activations_join_work_in_front_of_the_shuffle(kept: bool) -> None:
    """exp and tanh are one launch, and the copy another; unless something else reads what tanh does."""
    b = BuiltProgram(2)
    x, _ = b.argument(2, 8, 6, 5, kind="float32")
    wide = shuffled(b, b.add("exp", x))
    y = b.add("tanh", wide)
    out = b.add("concat", b.add("pad", wide, pads=[0, 1] * 4), b.add("pad", y, pads=[0, 1] * 4), axis=0) if kept else y
    steps = b.checked_steps(out, 1, 1e-5)
    assert ("tanh" in steps[0].name) is not kept


@pytest.mark.parametrize("why", ["reduced", "other"])
def test_work_stays_behind_the_shuffle(why: str) -> None:
    """A reduction computes what it reads; an operand of full size would have to be moved, too."""
    b = BuiltProgram(3)
    x, _ = b.argument(2, 8, 6, 5, kind="float32")
    wide = shuffled(b, x)
    if why == "reduced":
        out = b.add("reduce_sum", b.add("tanh", wide), axes=[3])
    else:
        out = b.add("add", b.add("tanh", wide), b.argument(2, 2, 12, 10, kind="float32")[0])
        out = b.add("sub", wide, out)
    assert len(b.checked_steps(out, 1, 1e-4)) == 2
