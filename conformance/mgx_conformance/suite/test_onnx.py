"""The ONNX node tests."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from mgx_conformance.onnx_nodes import judge, node_tests, out_of_reach


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sample = max(1, metafunc.config.getoption("mgx_sample"))
    names = [n for n in sorted(node_tests()) if zlib.crc32(n.encode()) % sample == 0 and n not in out_of_reach()]
    metafunc.parametrize("name", names)


def test_case(name: str, mgx_target: Any) -> None:
    judge(node_tests()[name], mgx_target)
