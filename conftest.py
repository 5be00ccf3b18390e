"""Settings for all tests: the program cache is off, hypothesis has no deadline, and no test sees what others drew."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
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
