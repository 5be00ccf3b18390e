"""Random graphs, compiled with all optimizations, compared with the same graphs interpreted without optimization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import hypothesis
import numpy as np
import pytest

from mgx_conformance import quantized_graphs
from mgx_conformance.claims import false_claims, watched
from mgx_conformance.compare import differs
from mgx_conformance.graphs import THEMES, Sketch, sketches
from mgx_conformance.guard import Guarded
from mgx_conformance.noise import expected

# all except explaining, which traces every line of a wrong graph's compilation
PHASES: Final = tuple(p for p in hypothesis.Phase if p is not hypothesis.Phase.explain)


@pytest.mark.parametrize("theme", THEMES)
def test_random(theme: str, mgx_target: Any, request: pytest.FixtureRequest) -> None:
    try_graphs(theme, mgx_target, request.config.getoption("mgx_examples"))


def test_random_quantized(mgx_target: Any, request: pytest.FixtureRequest) -> None:
    last = request.config.getoption("mgx_examples")
    for first in range(0, last, 10):
        quantized_graphs.attempt(mgx_target, *range(first, min(first + 10, last)))


def try_graphs(theme: str, target: Any, examples: int, phases: Sequence[hypothesis.Phase] = PHASES) -> None:
    """Errors: AssertionError, with a reduced program, for the first random graph that a target computes wrong."""

    @hypothesis.settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, print_blob=False, phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @hypothesis.given(sketches(THEMES[theme]))
    def run(sketch: Sketch) -> None:
        attempt(sketch, target)

    run()


def attempt(sketch: Sketch, target: Any) -> None:
    compiled = sketch.program.clone()
    compiled.compile(target)
    for feed in sketch.feeds:
        wanted = expected(sketch.program.get_main_module(), list(feed.values()))
        if wanted.vacuous():
            continue
        guards = {name: Guarded(value) for name, value in feed.items()}
        with watched() as evaluated, np.errstate(all="ignore"):
            got = [a.value for a in compiled.run({n: g.array for n, g in guards.items()})]
        for n, (a, b, t) in enumerate(zip(got, wanted.results, wanted.tolerances, strict=True)):
            why = differs(a, b, t)
            assert not why, f"result {n}: {why}"
        broken = [f"{n}: {g.broken()}" for n, g in guards.items() if g.broken()]
        assert not broken, broken
        why = false_claims(compiled.executable, evaluated)
        assert not why, why
