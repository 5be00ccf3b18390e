"""Each op on each element type and layout against its own definition."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from mgx_conformance.cases import selected
from mgx_conformance.cases.case import Case
from mgx_conformance.trial import NotApplicable, attempt
from mgx_core import Operation


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sample = max(1, metafunc.config.getoption("mgx_sample"))
    seen: set[type[Operation]] = set()
    chosen = []
    for case, layout in selected():
        name = f"{case.id}/{layout}"
        if type(case.op) not in seen or zlib.crc32(name.encode()) % sample == 0:
            seen.add(type(case.op))
            chosen.append(pytest.param(case, layout, id=name))
    metafunc.parametrize(("case", "layout"), chosen)


def test_case(case: Case, layout: str, mgx_target: Any, record_property: Any) -> None:
    record_property("op", case.op.name)
    try:
        trial = attempt(case, layout, mgx_target)
    except NotApplicable as error:
        pytest.skip(str(error))
    if case.error is None:
        refused = [why for why in trial.placed.values() if why != "target"]
        record_property("place", refused[0] if refused else "target")
