"""Each op on each element type and layout, compared with its reference implementation."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from mgx_conformance.cases import all_cases
from mgx_conformance.cases.case import Case
from mgx_conformance.packages import GROUP, cases_of
from mgx_conformance.trial import NotApplicable, attempt, selected
from mgx_core import MgxError, Operation


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sample = max(1, metafunc.config.getoption("mgx_sample"))
    seen: set[type[Operation]] = set()
    chosen = []
    package = metafunc.config.getoption("mgx_ops")
    cases = all_cases() if package is None else of_package(package)
    chosen += [pytest.param(case, "", id=f"{case}/no-case") for case in cases if isinstance(case, str)]
    for case, layout in selected(c for c in cases if isinstance(c, Case)):
        name = f"{case.id}/{layout}"
        if type(case.op) not in seen or zlib.crc32(name.encode()) % sample == 0:
            seen.add(type(case.op))
            chosen.append(pytest.param(case, layout, id=name))
    metafunc.parametrize(("case", "layout"), chosen)


def of_package(package: str) -> list[Case | str]:
    """Returns a package's cases.  Errors: UsageError if it has no ops."""
    try:
        return list(cases_of(package))
    except MgxError as error:
        raise pytest.UsageError(f"--mgx-ops {package}: {error}") from None


def test_case(
    case: Case | str, layout: str, mgx_target: Any, record_property: Any, pytestconfig: pytest.Config
) -> None:
    if isinstance(case, str):
        pytest.fail(
            f"no operands were found that {case} takes; give cases: an entry point of the group {GROUP!r} names a "
            "mgx_conformance.cases.case.Family (docs/plugins.md)"
        )
    record_property("op", case.op.name)
    try:
        trial = attempt(case, layout, mgx_target)
        if pytestconfig.getoption("mgx_ops") is not None:  # kernels of packages run again with guarded memory
            attempt(case, layout, mgx_target, {"validate": True})
    except NotApplicable as error:
        pytest.skip(str(error))
    if case.error is None:
        refused = [why for why in trial.placed.values() if why != "target"]
        record_property("place", refused[0] if refused else "target")
