"""Values that are too large are refused before they are allocated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import DeviceError, Shape
from mgx_core.types import memory_limit
from mgx_core.types.memory_limit import Growth, limited, machine_memory, require_bytes, require_memory


def test_matching_values_pass_and_others_are_rejected() -> None:
    require_bytes(1000)
    require_memory([10, 10], 4)
    with pytest.raises(
        DeviceError, match=r"the result of extents \[1000000, 1000000000\] would take 4000000000000000 bytes"
    ):
        require_memory([10**6, 10**9], 4)
    with limited(100):
        require_bytes(100)
        with pytest.raises(DeviceError, match=r"would take 101 bytes; 100 are allowed \(compile option limit_bytes\)"):
            require_bytes(101)
    require_bytes(101)


def test_the_machine_has_some_memory() -> None:
    assert 1 << 24 < machine_memory() <= 1 << 62


def test_allowed_changes_may_still_have_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "_free", lambda: 1 << 29)
    monkeypatch.setattr(memory_limit, "machine_memory", lambda: 1 << 40)
    require_bytes(1 << 29)
    with pytest.raises(DeviceError, match="536870912 are free on this machine"):
        require_bytes((1 << 29) + 1)


@pytest.fixture
def doubled() -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [mgx.DynamicDimension(1, 1000)]))
    dims = main.add_parameter("dims", Shape("int64", [2]))
    main.add_return([main.add(mgx.op("broadcast_with_dims"), main.add(mgx.op("concat", axis=0), x, x), dims)])
    return program


def test_the_limit_of_a_program(doubled: mgx.Program) -> None:
    pytest.importorskip("mgx_ref")
    doubled.compile(mgx.get_target("ref"), limit_bytes=80)

    def run(n: int, rows: int) -> object:
        return doubled.run({"x": np.ones(n, np.float32), "dims": np.array([rows, 2 * n])})[0].get_shape()

    assert run(5, 2) == Shape("float32", [2, 10])
    with pytest.raises(DeviceError, match="would take 120 bytes; 80 are allowed"):
        run(5, 3)
    with pytest.raises(DeviceError, match="80 are allowed"):
        run(11, 1)
    doubled.compile(mgx.get_target("ref"))
    assert run(11, 1) == Shape("float32", [1, 22])


# growth ----------------------------------------------------------------------------------------------------------------------


def grown(sizes: list[int], steps: int) -> None:
    """Calls the growth check for uint8 arrays of these sizes in order; `steps`: steps left after the last."""
    growth = Growth("the values")
    for n, size in enumerate(sizes):
        growth.require([np.empty(size, np.uint8)], steps + len(sizes) - 1 - n)


def test_steady_growth_is_refused_by_extrapolation() -> None:
    doubling = [1 << n for n in range(18, 27)]
    with limited(1 << 40):
        grown(doubling, steps=14)  # 2^40 at the end
        with pytest.raises(
            DeviceError,
            match=r"the values take at least 67108864 bytes, 2 times as many .* 15 trips are to come; 1099511627776",
        ):
            grown(doubling, steps=15)


@pytest.mark.parametrize(
    "sizes",
    [
        [1 << n for n in range(10, 26)],  # not large yet
        [1 << 27] * 9,  # does not grow
        [(1 << 26) + n * (1 << 20) for n in range(9)],  # by a row at a time
        [1 << 10, 1 << 26, 1 << 27],  # no trend yet
        [1 << n for n in range(16, 26)] + [1 << 25] * 9,  # has ended
    ],
)
def test_other_growth_is_ignored(sizes: list[int]) -> None:
    with limited(1 << 30):
        grown(sizes, steps=1000)


def test_letters_and_sequences_count() -> None:
    growth = Growth("the words")
    words = [[np.array(["a" * (1 << n)], object)] for n in range(20, 27)]
    with limited(1 << 30):
        for word in words[:-1]:
            growth.require([word], 1000)
        with pytest.raises(DeviceError, match="the words take"):
            growth.require([words[-1]], 1000)


def test_long_lists_count_by_their_last_items() -> None:
    """A list of which each trip reads all items takes time quadratic in their number."""

    class Counted(list):  # type: ignore[type-arg]
        seen = 0

        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            Counted.seen = len(found)
            return found

    growth = Growth("the list")
    many = Counted([np.empty(1 << 10, np.uint8)] * 5000)
    growth.require([many], 10)
    assert Counted.seen < 100
    with limited(1 << 30):
        for n in range(16, 26):
            many.append(np.empty(1 << n, np.uint8))
            growth.require([many], 1000)
        many.append(np.empty(1 << 26, np.uint8))
        with pytest.raises(DeviceError, match="the list take at least"):
            growth.require([many], 1000)
