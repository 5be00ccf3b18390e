"""Horizontal fusion of small independent instructions, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

import mgx_core as mgx
from mgx_gpu_hip.join_launches import JoinLaunches
from mgx_gpu_hip.target import GpuTarget

Array = Any


class Built(BuiltProgram):
    """A program that is compiled and run."""

    def __init__(self) -> None:
        super().__init__(seed=3)

    def results(self, device: int, *outputs: Any, **options: Any) -> tuple[list[Array], list[str]]:
        """Returns the results and the names of the steps."""
        self.main.add_return(list(outputs))
        self.program.compile(GpuTarget("host", device), validate=True, **options)
        results = [r.to_numpy() for r in self.program.run(self.feed)]
        (instance,) = self.program.executable.instances()
        return results, [s.name.rpartition("_")[0] for s in instance.runner.schedule.steps]


def turned(x: Array, cos: Array, sin: Array) -> Array:
    a, b = np.split(x.astype(np.float32), 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_queries_and_keys_are_turned_and_caches_grow_in_two_launches(device: int) -> None:
    b = Built()
    (q, qs), (k, ks), (v, vs) = b.argument(1, 32, 1, 64), b.argument(1, 4, 1, 64), b.argument(1, 4, 1, 64)
    (keys, old_keys), (values, old_values) = b.argument(1, 4, 33, 64), b.argument(1, 4, 33, 64)
    angles = b.rng.standard_normal((1, 1, 32)).astype("float32")
    cos, sin = np.cos(angles).astype("float16"), np.sin(angles).astype("float16")
    c, s = b.main.add_literal(cos), b.main.add_literal(sin)
    q, k = (b.add("rotary_embedding", x, c, s) for x in (q, k))
    grown = [b.add("concat", old, new, axis=2) for old, new in ((keys, k), (values, v))]
    got, steps = b.results(device, q, *grown)
    assert steps == ["rotary_embedding", "concat_2"]
    cos, sin = cos[0].astype("float32"), sin[0].astype("float32")
    np.testing.assert_allclose(got[0], turned(qs, cos, sin), atol=4e-3)
    np.testing.assert_allclose(got[1], np.concatenate([old_keys, turned(ks, cos, sin)], 2), atol=4e-3)
    assert (got[2] == np.concatenate([old_values, vs], 2)).all()


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_kernels_of_other_kinds_and_types(device: int) -> None:
    b = Built()
    (x, xs), (y, ys), (t, ts) = b.argument(3, 700), b.argument(5, kind="float64"), b.argument(40, 8, kind="float32")
    rows = np.array([3, 39, 0], np.int64)
    one = b.add("relu", b.add("add", x, x))
    two = b.add("mul", b.add("neg", y), y)
    three = b.add("gather", t, b.main.add_literal(rows), axis=0)
    got, steps = b.results(device, one, two, three)
    assert len(steps) == 1
    assert (got[0] == np.maximum(xs + xs, 0)).all()
    assert (got[1] == -ys * ys).all()
    assert (got[2] == ts[rows]).all()


def test_views_that_follow_a_member_of_an_earlier_group() -> None:
    """The view of the first rows moves behind the first group, with a view of it; the second group leaves both there."""
    b = Built()
    (x, xs), (y, ys), (z, zs) = (b.argument(6, 5, kind="float32") for _ in range(3))
    rows = b.main.add_literal(np.array([3, 0, 1], np.int64))
    first, other = (b.add("gather", v, rows, axis=0) for v in (x, y))
    one = b.add("tanh", other)
    lifted = b.add("unsqueeze", first, axes=[0])
    two = b.add("tanh", z)
    wide = b.add("multibroadcast", lifted, out_lens=[2, 3, 5])
    b.main.add_return([one, two, wide])
    assert JoinLaunches().apply(b.main)
    assert [len(i.modules[0].output_shapes()) for i in b.main if i.modules] == [2, 2]
    b.program.compile(mgx.get_target("ref"), optimize=False, validate=True)
    wanted = (np.tanh(ys[[3, 0, 1]]), np.tanh(zs), np.stack([xs[[3, 0, 1]]] * 2))
    for got, values in zip(b.program.run(b.feed), wanted, strict=True):
        np.testing.assert_allclose(got.to_numpy(), values, rtol=1e-6)


def test_dependent_ops_stay_separate() -> None:
    b = Built()
    (x, xs), (y, ys), (z, zs) = b.argument(4, 64), b.argument(4, 64), b.argument(8, 3)
    joined = b.add("concat", x, y, axis=0)
    got, steps = b.results(1, joined, b.add("concat", joined, z, axis=1))
    assert steps == ["concat_2", "concat_2"]
    assert (got[1] == np.concatenate([np.concatenate([xs, ys]), zs], 1)).all()


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_members_need_not_be_neighbors(device: int) -> None:
    """Two chains, one written after the other, take the launches of one; the second one reads slices."""
    b = Built()
    (x, xs), (t, ts) = b.argument(6, 70, kind="float32"), b.argument(90, 3, kind="float32")
    made, wanted = [], []
    for begin, rows in ((0, [5, 80]), (3, [17, 2])):
        part = b.add("slice", x, axes=[0], starts=[begin], ends=[begin + 3])
        sums = b.add("reduce_sum", b.add("exp", part), axes=[1])
        taken = b.add("gather", t, b.main.add_literal(np.array(rows)), axis=0)
        made.append(b.add("dot", sums, b.add("relu", b.add("slice", taken, axes=[0], starts=[1], ends=[2]))))
        sums_wanted = np.exp(xs[begin : begin + 3]).sum(1, keepdims=True)
        wanted.append(sums_wanted @ np.maximum(ts[rows[1:]], 0))
    got, steps = b.results(device, *made)
    assert sum("reduce" in s for s in steps) == 1 and sum("gather" in s for s in steps) == 1, steps
    for found, array in zip(got, wanted, strict=True):
        np.testing.assert_allclose(found, array, rtol=1e-5)


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_lines_of_one_length_share_launches(device: int) -> None:
    b = Built()
    made, wanted = [], []
    for _ in range(2):
        x, xs = b.argument(30, 8, kind="float32")
        total = b.add("prefix_scan_sum", b.add("softmax", x, axis=1), axis=1)
        made.append(b.add("pad", total, pads=[0, 1, 0, 0]))
        powers = np.exp(xs - xs.max(1, keepdims=True))
        wanted.append(np.pad(np.cumsum(powers / powers.sum(1, keepdims=True), 1), ((0, 0), (1, 0))))
    got, steps = b.results(device, *made)
    assert len(steps) == 3, steps
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_lines_of_other_lengths_stay_apart() -> None:
    b = Built()
    (x, _), (y, _) = b.argument(30, 8, kind="float32"), b.argument(30, 600, kind="float32")
    _, steps = b.results(1, b.add("softmax", x, axis=1), b.add("softmax", y, axis=1))
    assert len(steps) == 2


def test_views_move_once() -> None:
    """More slices of one value than a group has members, among other work."""
    b = Built()
    (x, xs), (y, _) = b.argument(4, 21, kind="float32"), b.argument(4, 20, kind="float32")
    total, made = y, []
    for n in range(20):
        cut = b.add("slice", x, axes=[1], starts=[n], ends=[n + 2])
        made.append(b.add("exp", cut))
        total = b.add("pad", total, pads=[0, n % 2, 0, 1], mode="reflect")
    got, steps = b.results(1, *made, total)
    assert len(steps) <= 20 + 3, steps
    for n, found in enumerate(got[:20]):
        np.testing.assert_allclose(found, np.exp(xs[:, n : n + 2]), rtol=1e-6)


def test_views_of_computed_extents_stay_behind_what_computes_them() -> None:
    b = Built()
    (x, xs), (y, ys) = b.argument(3, 4, kind="float32"), b.argument(12, kind="float32")
    found = b.add("nonzero", b.add("relu", x))
    repeated = b.add("multibroadcast", b.main.add_literal(np.float32([2])), out_lens=found.shape.dims)
    got, _ = b.results(0, repeated, b.add("relu", b.add("neg", y)))
    assert np.count_nonzero(xs > 0) == got[0].shape[1] and (got[0] == 2).all()
    assert (got[1] == np.maximum(-ys, 0)).all()


def test_large_work_stays_apart() -> None:
    b = Built()
    (x, xs), (y, ys) = b.argument(2048, 520), b.argument(2048, 520)
    got, steps = b.results(1, b.add("relu", x), b.add("neg", y))
    assert len(steps) == 2
    assert (got[0] == np.maximum(xs, 0)).all() and (got[1] == -ys).all()


@pytest.mark.parametrize(("length", "steps"), [(40, 2), (3000, 1)], ids=["other blocks", "equal blocks"])
def test_threads_that_work_together_need_equal_blocks(length: int, steps: int) -> None:
    b = Built()
    (x, xs), (y, ys) = b.argument(2, 3000, kind="float32"), b.argument(3, length, kind="float32")
    made = []
    for value, array in ((x, xs), (y, ys)):
        largest = b.add("multibroadcast", b.add("reduce_max", value, axes=[1]), out_lens=list(array.shape))
        made.append(b.add("sub", value, largest))
    got, names = b.results(1, *made)
    assert len(names) == steps
    for found, array in zip(got, (xs, ys), strict=True):
        assert (found == array - array.max(1, keepdims=True)).all()


def test_the_pass_can_be_switched_off() -> None:
    b = Built()
    (x, _), (y, _) = b.argument(4, 64), b.argument(4, 64)
    _, steps = b.results(1, b.add("relu", x), b.add("neg", y), disable_passes=("join-launches",))
    assert len(steps) == 2
