"""For all tests: none takes a program that an earlier run kept, and no random example is judged by the clock."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ["MGX_KEEP_PROGRAMS"] = "0"  # tests of kept programs switch that on for themselves
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # on a busy machine examples take long to draw and to run, which is no fault of what is tested
        settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("patient")
