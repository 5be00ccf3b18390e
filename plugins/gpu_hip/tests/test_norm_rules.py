"""Norms and the ops around them run as few launches, without copies, and their results are the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

from mgx_gpu_hip.target import GpuTarget

DEVICES = pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])


def steps(built: BuiltProgram, result: Any, device: int, close: float = 4e-3) -> list[str]:
    """Compares the result on an emulated device with the reference; returns the names of the kernels that ran."""
    return [s.name.rpartition("_")[0] for s in built.checked_steps(result, device, close)]


def group_norm(built: BuiltProgram, groups: int, *dims: int, factors: bool = True) -> Any:
    """A group norm of a value with channels last."""
    batch, channels, *spatial = dims
    x, _ = built.argument(batch, *spatial, channels)
    x = built.add("transpose", x, permutation=[0, len(dims) - 1, *range(1, len(dims) - 1)])
    given = [built.main.add_literal(built.rng.standard_normal(channels).astype(np.float16)) for _ in range(2 * factors)]
    return built.add("groupnorm", x, *given, num_groups=groups)


@DEVICES
@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize(("groups", "dims"), [(4, (2, 12, 5, 6)), (3, (3, 6, 9)), (5, (2, 10)), (6, (1, 6, 2, 3, 4))])
def test_group_norm_reads_channels_last(groups: int, dims: tuple[int, ...], factors: bool, device: int) -> None:
    built = BuiltProgram(1)
    y = group_norm(built, groups, *dims, factors=factors)
    back = built.add("transpose", y, permutation=[0, *range(2, len(dims)), 1])
    (name,) = steps(built, back, device)
    assert name.startswith("reduce_")


@DEVICES
def test_activation_and_sums_join_a_group_norm(device: int) -> None:
    built = BuiltProgram(2)
    y = group_norm(built, 4, 2, 8, 5, 6)
    scale, shift = (built.argument(2, 8, 1, 1)[0] for _ in range(2))
    for name, factor in (("mul", scale), ("add", shift)):
        y = built.add(name, y, built.add("multibroadcast", factor, out_lens=[2, 8, 5, 6]))
    other, _ = built.argument(2, 5, 6, 8)
    y = built.add("add", built.add("swish", y), built.add("transpose", other, permutation=[0, 3, 1, 2]))
    (name,) = steps(built, built.add("transpose", y, permutation=[0, 2, 3, 1]), device)
    assert name.startswith("reduce_")


@DEVICES
def test_a_difference_with_a_reshaped_value_joins_a_group_norm(device: int) -> None:
    """The reshape of the norm is not the first one that the difference reads."""
    built = BuiltProgram(7)
    y = group_norm(built, 4, 2, 8, 5, 6)
    other = built.add("reshape", built.argument(2, 8, 30)[0], dims=[2, 8, 5, 6])
    y = built.add("transpose", built.add("sub", other, y), permutation=[0, 2, 3, 1])
    (name,) = steps(built, y, device)
    assert name.startswith("reduce_")


@DEVICES
def test_sum_per_channel_joins_a_group_norm(device: int) -> None:
    """An embedding of time is added between a convolution and the norm of its result."""
    built = BuiltProgram(5)
    x, time = built.argument(2, 4, 5, 8)[0], built.argument(2, 8, 1, 1)[0]
    x = built.add("transpose", x, permutation=[0, 3, 1, 2])
    weights = built.main.add_literal(built.rng.standard_normal((8, 8, 1, 1)).astype(np.float16) / 3)
    x = built.add("convolution", x, weights)
    x = built.add("add", x, built.add("multibroadcast", time, out_lens=[2, 8, 4, 5]))
    y = built.add("transpose", built.add("groupnorm", x, num_groups=2), permutation=[0, 2, 3, 1])
    convolution, norm = steps(built, y, device)
    assert norm.startswith("reduce_add_") and not convolution.startswith("reduce_")


def test_sums_without_elements_may_be_reshaped_to_other_channels() -> None:
    """Those of the embedding cannot."""
    built = BuiltProgram(6)
    x, time = built.argument(2, 4, 0)[0], built.argument(2, 4, 1)[0]
    x = built.add("add", x, built.add("multibroadcast", time, out_lens=[2, 4, 0]))
    built.main.add_return([built.add("relu", built.add("reshape", x, dims=[2, 3, 5, 0], allowzero=True))])
    built.program.compile(GpuTarget("host", 1))
    assert built.program.run(built.feed)[0].to_numpy().shape == (2, 3, 5, 0)


@DEVICES
def test_a_group_norm_with_two_readers(device: int) -> None:
    built = BuiltProgram(3)
    y = group_norm(built, 4, 2, 8, 5, 6)
    both = built.add("add", built.add("swish", y), built.add("relu", y))
    assert len(steps(built, built.add("transpose", both, permutation=[0, 2, 3, 1]), device)) == 2


@DEVICES
@pytest.mark.parametrize("sliced_first", [False, True])
def test_adaptive_norm_is_one_launch(sliced_first: bool, device: int) -> None:
    """The scale is 1 + a slice of a product, as in diffusion transformers."""
    built = BuiltProgram(4)
    x, given = built.argument(2, 7, 16)[0], built.argument(2, 24)[0]
    weights = built.main.add_literal(built.rng.standard_normal((24, 32)).astype(np.float16) / 4)
    made = built.add("dot", given, weights)
    made = made if sliced_first else built.add("unsqueeze", made, axes=[1])
    scale, shift = (built.add("slice", made, axes=[-1], starts=[n], ends=[n + 16]) for n in (0, 16))
    if sliced_first:
        scale, shift = (built.add("unsqueeze", v, axes=[1]) for v in (scale, shift))
    one = built.add("multibroadcast", built.main.add_literal(np.asarray(1, np.float16)), out_lens=[2, 1, 16])
    scale = built.add("add", scale, one)
    wide = [built.add("multibroadcast", v, out_lens=[2, 7, 16]) for v in (scale, shift)]
    y = built.add("add", built.add("mul", built.add("layernorm", x), wide[0]), wide[1])
    product, norm = steps(built, y, device, 1e-2)
    assert norm.startswith("reduce_") and not product.startswith("reduce_")
