"""Random numbers: mgx's own in exported programs, torch's under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mgx_core
from mgx_core.types.argument import Array
from mgx_torch import from_exported
from mgx_torch.decompositions import all_converters, converts, table

COUNT = 4000


class Calls(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def runs(function: Callable[[torch.Tensor], Any], x: torch.Tensor, times: int = 1) -> list[list[Array]]:
    """Returns the results of some runs of an exported function."""
    program = from_exported(torch.export.export(Calls(function), (x,)))
    program.compile(mgx_core.get_target("ref"))
    given = {name: x.numpy() for name in program.get_parameter_names()}
    return [[r.to_numpy() for r in program.run(given)] for _ in range(times)]


# function of 4000 quarters, and the mean, standard deviation, minimum and maximum of its samples
DRAWN = {
    "rand": (lambda x: torch.rand(COUNT), 0.5, 12**-0.5, 0, 1),
    "rand_like": (torch.rand_like, 0.5, 12**-0.5, 0, 1),
    "uniform": (lambda x: x.clone().uniform_(-2, 6), 2, 8 * 12**-0.5, -2, 6),
    "randn": (lambda x: torch.randn(COUNT), 0, 1, -6, 6),
    "randn_like": (torch.randn_like, 0, 1, -6, 6),
    "normal": (lambda x: torch.normal(x, 2.0), 0.25, 2, -12, 12),
    "normal_": (lambda x: x.clone().normal_(3, 0.5), 3, 0.5, 0, 6),
    "exponential": (lambda x: x.clone().exponential_(4), 0.25, 0.25, 0, 5),
    "bernoulli": (torch.bernoulli, 0.25, 0.1875**0.5, 0, 1),
    "bernoulli_p": (lambda x: torch.bernoulli(x, 0.75), 0.75, 0.1875**0.5, 0, 1),
    "randint": (lambda x: torch.randint(3, 6, (COUNT,)).float(), 4, (2 / 3) ** 0.5, 3, 5),
    "randint_like": (lambda x: torch.randint_like(x, 3), 1, (2 / 3) ** 0.5, 0, 2),
    "dropout": (lambda x: F.dropout(x, 0.75, True), 0.25, 3**0.5 / 4, 0, 1),
}


@pytest.mark.parametrize("name", DRAWN)
def test_distribution(name: str) -> None:
    function, mean, deviation, least, greatest = DRAWN[name]
    (first,), (second,) = runs(function, torch.full((COUNT,), 0.25), times=2)
    assert first.shape == (COUNT,)
    assert not np.array_equal(first, second), "each run draws new numbers"
    both = np.concatenate([first, second])
    assert least <= both.min()
    assert both.max() <= greatest
    # both bounds exceed six standard deviations
    assert abs(both.mean() - mean) < 0.07 * deviation
    assert abs(both.std() - deviation) < 0.15 * deviation


def test_permutation() -> None:
    found = runs(lambda x: torch.randperm(50), torch.zeros(1), times=2)
    for (order,) in found:
        assert sorted(order) == list(range(50))
    assert not np.array_equal(found[0][0], found[1][0])


def test_dropout_returns_its_mask() -> None:
    x = torch.arange(1.0, 101)
    ((y, kept),) = runs(lambda x: torch.native_dropout(x, 0.2, None), x)
    np.testing.assert_allclose(y, np.where(kept, x.numpy() * 1.25, 0), rtol=1e-6)
    assert 50 < kept.sum() < 100
    ((y, kept),) = runs(lambda x: torch.native_dropout(x, 1.0, True), x)
    assert not y.any()
    assert not kept.any()
    ((y, kept),) = runs(lambda x: torch.native_dropout(x, 0.2, False), x)
    assert np.array_equal(y, x.numpy())
    assert kept.all()


def test_categories() -> None:
    weights = torch.tensor([[1.0, 0, 3], [0, 5, 0]])
    ((found,),) = runs(lambda x: torch.multinomial(x, 2000, True), weights)
    assert set(found[0]) == {0, 2}
    assert abs((found[0] == 2).mean() - 0.75) < 0.07
    assert set(found[1]) == {1}
    for ((found,),) in (runs(lambda x: torch.multinomial(x, 2), weights[0]) for _ in range(3)):
        assert sorted(found) == [0, 2]


@pytest.mark.parametrize("train", [True, None])
def test_compiled_functions_draw_as_torch_does(train: bool | None) -> None:
    def drawn(x: torch.Tensor) -> Any:
        return torch.native_dropout(x, 0.5, train)[0] + torch.rand_like(x) + torch.randperm(8) + x.clone().normal_()

    x = torch.ones(8)
    torch.manual_seed(3)
    want = drawn(x)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.compile(drawn, backend="mgx")(x), want)


def test_abandoned_attempts_draw_no_numbers() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x + torch.rand(4)) * 2
        spread = torch.as_strided(y.expand(3, 4), (2, 2), (1, 1))  # which is rejected on conversion
        return y, spread + 1

    x = torch.zeros(4)
    compiled = torch.compile(function, backend="mgx")
    with torch.no_grad():
        torch.manual_seed(1)
        want = function(x), torch.rand(2)
        torch.manual_seed(1)
        got = compiled(x), torch.rand(2)
    torch.testing.assert_close(got, want)


def test_every_core_operator_has_a_way() -> None:
    """Each overload of Core ATen has a converter, is decomposed, or never occurs in a functional graph."""
    converters = all_converters()
    broken = table(converters)
    left = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            op = getattr(packet, overload)
            core = torch.Tag.core in op.tags and not op._schema.is_mutable and not name.startswith("sym_")
            if core and not converts(converters, op) and op not in broken:
                left.append(str(op))
    assert left == []
