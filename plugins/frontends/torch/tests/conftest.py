"""One seed for every test, and nothing kept of what Dynamo compiled for another."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def overloads() -> ModuleType:
    """The module `overloads.py` beside the tests, loaded once."""
    spec = importlib.util.spec_from_file_location("overloads", Path(__file__).with_name("overloads.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["overloads"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
