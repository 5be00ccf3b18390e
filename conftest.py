"""Settings for all tests: the program cache is off, hypothesis has no deadline, no test sees what others drew, and of many
combinations of parameters some are slow tests.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
import pytest

# the generators of random numbers of each test module, with their states before any test ran
GENERATORS = pytest.StashKey[dict[ModuleType, list[tuple[np.random.Generator, Any]]]]()


def pytest_configure(config: pytest.Config) -> None:
    os.environ["MGX_KEEP_PROGRAMS"] = "0"  # tests of the program cache enable it themselves
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # generating and running examples takes longer on a busy machine, which is not a fault of the tested code
        settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow the combinations of parameters that a test marked `pairs` does not need to run every pair of values.

    The others are those whose positions add up to a multiple of a number: whatever two of the parameters are, the rest reaches
    each remainder.
    """
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("pairs"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in tests.values():
        columns = [places for places in _positions(same) if max(places)]
        if prod(max(places) + 1 for places in columns) == len(same):  # not only some of its combinations are asked for
            of = 1 + sum(sorted(max(places) for places in columns)[:-2])
            for item, *places in zip(same, *columns, strict=True):
                if sum(places) % of:
                    item.add_marker(pytest.mark.slow)


def _positions(same: list[pytest.Function]) -> Iterator[list[int]]:
    """Yields for each parameter of a test, or several that change together, the positions of its values in all items."""
    names = [m.args[0] for m in same[0].iter_markers("parametrize")]
    joint = [[n.strip() for n in one.split(",")] if isinstance(one, str) else list(one) for one in names]
    known = {name for one in joint for name in one}
    for one in (*joint, *([name] for name in same[0].callspec.params if name not in known)):
        order: dict[tuple[int, ...], int] = {}
        values = [tuple(id(item.callspec.params[name]) for name in one) for item in same]
        yield [order.setdefault(value, len(order)) for value in values]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects the tests without the garbage collector and exempts them from it: with tens of thousands of them, each full
    collection during a test would take half a second.  Tests themselves make much that is no garbage, e.g. syntax trees.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    modules = {item.module for item in session.items if isinstance(item, pytest.Function)}
    session.config.stash[GENERATORS] = {
        m: [(g, g.bit_generator.state) for g in vars(m).values() if isinstance(g, np.random.Generator)] for m in modules
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Resets the generators of the test's module: otherwise its values would depend on which tests ran before it."""
    if isinstance(item, pytest.Function):
        for generator, state in item.config.stash[GENERATORS][item.module]:
            generator.bit_generator.state = state
