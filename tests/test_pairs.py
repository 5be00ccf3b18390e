"""Tests marked `pairs`: some combinations of their parameters are slow, but no pair of values is."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import pytest

TEST = """
import pytest

@pytest.fixture(params=["x", "y"])
def layout(request):
    return request.param

@pytest.mark.pairs
@pytest.mark.parametrize("a", [0, 1, 2])
@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("d", ["p", "q"])
def test_it(a, b, c, d, layout):
    print("ran", a, f"{b}{c}", d, layout)
"""


def test_every_pair_of_values_remains(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text((request.config.rootpath / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    pairs\n")
    (tmp_path / "test_it.py").write_text(TEST)
    options = ["-qs", "-p", "no:cacheprovider", "-m", "not slow", "-c", str(tmp_path / "pytest.ini")]
    assert pytest.main([*options, "--rootdir", str(tmp_path), str(tmp_path)]) == 0
    ran = [tuple(line.split("ran ")[1].split()) for line in capsys.readouterr().out.splitlines() if "ran " in line]
    axes = ["012", ["00", "10", "11", "01"], "pq", "xy"]
    assert len(ran) == 16 < 48
    for one, two in combinations(range(4), 2):
        assert {(r[one], r[two]) for r in ran} == set(product(axes[one], axes[two]))
