"""Settings for all tests: the program cache is off, and hypothesis has no deadline."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ["MGX_KEEP_PROGRAMS"] = "0"  # tests of the program cache enable it themselves
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import HealthCheck, settings

        # generating and running examples takes longer on a busy machine, which is not a fault of the tested code
        settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("patient")
