"""The smoke script as a test, on machines with a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mgx_gpu_hip.runtime import available


@pytest.mark.gpu
def test_smoke(capsys):
    found = available()
    if not found:
        pytest.skip("no GPU found")
    spec = importlib.util.spec_from_file_location("device_smoke", Path(__file__).with_name("device_smoke.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(found[0])
    assert capsys.readouterr().out.endswith("all right\n")
