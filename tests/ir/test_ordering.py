"""Orders of instructions."""

from __future__ import annotations

from mgx_core import Program, Shape, op
from mgx_core.ir.instruction import Instruction
from mgx_core.ir.ordering import shuffled
from mgx_core.ir.verify import verify


def wide() -> Program:
    """Returns a program with eight chains of three ops, whose ends are results."""
    program = Program()
    main = program.get_main_module()
    ends = [main.add_parameter("x", Shape("float32", [2]))] * 8
    for name in ("neg", "abs", "exp"):
        ends = [main.add(op(name), end) for end in ends]
    main.add_return(ends)
    return program


def positions(steps: list[Instruction], order: list[Instruction]) -> list[int]:
    return [steps.index(ins) for ins in order]


def test_shuffled_orders_are_topological_and_depend_on_the_seed_alone():
    main = wide().get_main_module()
    steps = [i for i in main if not (i.is_param or i.is_return)]
    orders = [positions(steps, shuffled(steps, seed)) for seed in range(8)]
    assert orders == [positions(steps, shuffled(steps, seed)) for seed in range(8)]
    assert len(set(map(tuple, orders))) == 8
    for order in orders:
        assert sorted(order) == list(range(24))
        assert all(order.index(n) < order.index(n + 8) for n in range(16))


def test_shuffled_modules_are_well_formed():
    main = wide().get_main_module()
    before = list(main)
    main.shuffle(3)
    assert verify(main) == []
    assert list(main) != before
