"""Fixtures for tests of rewrite rules: apply a rule to a module's text, and compare the resulting text and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_core.compile.stages import RULES
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.passes.fold_constants import FoldConstants
from mgx_core.rules.engine import EXACT, Rewriter, Rules
from mgx_core.types.dim import symbols_of

HEAD = "symbol n in 2..8\nmodule main\n"  # the symbol that module texts may use


def values(module: Module, seed: int = 0, symbol: int = 3) -> list[Any]:
    """Returns random values for a module's parameters; `symbol` is the value of their symbols."""
    random = np.random.default_rng(seed)
    symbols = {
        s.name: max(s.lo, min(s.hi, symbol))
        for p in module.parameters.values()
        for d in p.shape.dims
        for s in symbols_of(d)
    }
    out = []
    for p in module.parameters.values():
        shape = p.shape.substitute(symbols)
        dtype = shape.dtype
        if dtype.kind == "b":
            value = random.random(shape.lens()) < 0.5
        elif dtype.is_integer:
            value = random.integers(0 if dtype.kind == "u" else -4, 5, shape.lens())
        else:
            value = random.normal(0, 1.5, shape.lens())
        out.append(np.asarray(value).astype(dtype.numpy))
    return out


def agree(before: list[Any], after: list[Any], exact: bool, narrow: bool = False) -> None:
    """Asserts that results are equal, or equal except for rounding; narrow: some values have 16 bits."""
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if exact or one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other)
        else:
            scale = max(1.0, float(np.abs(np.nan_to_num(one.astype(np.float64), posinf=0, neginf=0)).max(initial=0)))
            limit = (4e-3 if narrow or one.dtype.itemsize < 4 else 4e-6) * scale
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=0, atol=limit)


class Applied:
    """A module after rules were applied, with the engine's report."""

    def __init__(self, before: str, rules: Rules, fold: bool = False) -> None:
        self.before = parse_module(HEAD + before.strip("\n"), STANDARD)
        assert verify(self.before) == []
        self.module = parse_module(HEAD + before.strip("\n"), STANDARD)
        self.rewriter = Rewriter(rules)
        self.rewriter.apply(self.module)
        if fold:
            FoldConstants().apply(self.module)
        self.module.sweep()
        assert verify(self.module) == []

    @property
    def text(self) -> str:
        """Returns the instructions of all modules, without the first line."""
        return self.module.text().split("module main\n", 1)[1]

    def compare(self, exact: bool) -> None:
        narrow = any(
            i.shape.dtype.is_float and i.shape.dtype.bits < 32 for i in self.before if hasattr(i.result, "dtype")
        )
        for seed in range(3):
            given = values(self.before, seed, 2 + seed)
            with np.errstate(all="ignore"):
                agree(Interpreter().run(self.before, given), Interpreter().run(self.module, given), exact, narrow)


def named(name: str, rules: Rules = RULES) -> Rules:
    found = Rules(name, [r for r in rules.rules if r.name == name])
    assert found.rules, f"there is no rule {name!r}"
    return found


@pytest.fixture
def rule_turns() -> Callable[..., None]:
    """Checks that one rule rewrites a text to another and that results agree."""

    def check(name: str, before: str, after: str, rules: Rules = RULES) -> None:
        only = named(name, rules)
        done = Applied(before, only, fold=True)
        assert done.rewriter.tally.fired[name] > 0
        assert done.text == after.strip("\n")
        done.compare(all(r.changes == EXACT for r in only.rules))

    return check


@pytest.fixture
def rule_refuses() -> Callable[..., None]:
    """Checks that one rule leaves a text unchanged, and its reason."""

    def check(name: str, before: str, why: str, rules: Rules = RULES) -> None:
        done = Applied(before, named(name, rules))
        assert not done.rewriter.tally.fired
        assert why in {r.why for r in done.rewriter.tally.refusals}

    return check


@pytest.fixture
def run_both() -> Callable[[Module, Module, bool], None]:
    """Runs two modules on the same random values and compares their results."""

    def check(before: Module, after: Module, exact: bool = False) -> None:
        given = values(before)
        with np.errstate(all="ignore"):
            agree(Interpreter().run(before, given), Interpreter().run(after, given), exact)

    return check
