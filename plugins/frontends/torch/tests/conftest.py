"""Fixtures: a fixed seed for every test, and reset of what Dynamo compiled for another."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

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


@pytest.fixture
def same() -> Callable[..., None]:
    """Compares a function compiled by the backend with eager torch; mgx must run all of it."""
    from mgx_torch import explain

    def compare(function: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> None:
        with torch.no_grad():
            found = explain(function, *args)
            assert found.whole, str(found)
            got, want = torch.compile(function, backend="mgx", fullgraph=True)(*args), function(*args)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)

    return compare


@pytest.fixture(scope="session")
def called() -> Callable[[Callable[..., Any]], torch.nn.Module]:
    """Makes a module that calls a function."""

    class Called(torch.nn.Module):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, *args: torch.Tensor) -> Any:
            return self.function(*args)

    return Called
