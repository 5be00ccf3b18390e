"""Decomposition in place: the added instructions, and the reasons for refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import (
    HostKernel,
    Instruction,
    Kernels,
    Module,
    No,
    Operation,
    PluginError,
    Program,
    Shape,
    Target,
    TupleShape,
    define_op,
)
from mgx_core.ops.compare import Isnan
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.pointwise import Add, Neg
from mgx_core.ops.trigonometry import Tanh
from mgx_core.rules.decomposition import decompose, decomposed

X = Shape("float32", [2, 3])


class Twice(Operation):
    def infer(self, x: Shape) -> Shape:
        return x

    def compute(self, x: Any) -> Any:
        return x + x


@define_op("test_twice")
class Plain(Twice):
    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(Add(), x, x)


@define_op("test_twice_wrong")
class Wrong(Twice):
    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(Add(), b.add(Tanh(), x), b.literal(np.zeros((7, 7), np.float32)))


@define_op("test_twice_broken")
class Broken(Twice):
    def decompose(self, b: Any, x: Any) -> Any:
        return {}["x"]


@define_op("test_twice_other")
class Other(Twice):
    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(Isnan(), x)


@define_op("test_endless")
class Endless(Twice):
    """Decomposes into itself, directly or through another op."""

    count: int = 1

    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(self if self.count == 1 else Between(), x)


@define_op("test_between")
class Between(Twice):
    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(Endless(count=2), x)


@define_op("test_twice_and_negated")
class Both(Operation):
    def infer(self, x: Shape) -> TupleShape:
        return TupleShape([x, x])

    def compute(self, x: Any) -> Any:
        return x + x, -x

    def decompose(self, b: Any, x: Any) -> Any:
        return b.add(Add(), x, x), b.add(Neg(), x)


@define_op("test_second")
class Second(Operation):
    def infer(self, both: TupleShape) -> Any:
        return both.items[1]

    def compute(self, both: Any) -> Any:
        return both[1]

    def decompose(self, b: Any, both: Any) -> Any:
        return b.add(GetTupleElem(index=1), both)


def module_with(op: Operation) -> tuple[Module, Instruction]:
    module = Module("main")
    ins = module.add(op, module.add_parameter("x", X))
    module.add_return([ins])
    return module, ins


def test_the_decomposition_replaces_the_op() -> None:
    module, ins = module_with(Plain())
    assert [i.op for i in decompose(module, ins)] == [Add()]
    assert module.outputs[0].op == Add()


def test_each_result_is_written_in_place() -> None:
    module, ins = module_with(Both())
    module.replace_return([module.add(GetTupleElem(index=0), ins), module.add(Second(), ins)])
    assert [i.op for i in decompose(module, ins)] == [Add(), Neg()]
    assert [o.op for o in module.outputs] == [Add(), Neg()]
    body = decomposed(Both(), [X])
    assert [o.op for o in body.outputs] == [Add(), Neg()]


def test_results_read_as_one_are_kept() -> None:
    module, ins = module_with(Both())
    no = decompose(module, ins)
    assert isinstance(no, No)
    assert "test_twice_and_negated does not decompose: its results are used as one tuple" in no.why
    assert [i.name for i in module] == ["@param", "test_twice_and_negated", "@return"]


def test_an_error_inside_is_the_reason_and_leaves_no_state() -> None:
    module, ins = module_with(Wrong())
    no = decompose(module, ins)
    assert isinstance(no, No)
    assert "test_twice_wrong does not decompose" in no.why
    assert "add" in no.why
    assert [i.name for i in module] == ["@param", "test_twice_wrong", "@return"]


def test_ops_without_one_are_no_refusal() -> None:
    assert decompose(*module_with(Tanh())) is None
    assert decomposed(Tanh(), [X]) is None


def test_a_failure_names_the_op_and_its_package() -> None:
    with pytest.raises(
        PluginError, match=r"decomposition of test_twice_broken.* \(.*test_decomposition\) failed: KeyError"
    ):
        decompose(*module_with(Broken()))


def test_a_result_of_another_type_names_the_op_and_its_package() -> None:
    module, ins = module_with(Other())
    with pytest.raises(PluginError, match=r"test_twice_other.* \(.*\) must return float32\[2, 3\], got bool\[2, 3\]"):
        decompose(module, ins)
    assert [i.name for i in module] == ["@param", "test_twice_other", "@return"]


@pytest.mark.parametrize("count", [1, 2])
def test_one_without_an_end_names_the_op_and_its_package(count: int) -> None:
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add(Endless(count=count), main.add_parameter("x", X))])
    with pytest.raises(
        PluginError, match=r"decomposition of test_endless\[count=\d\] \(.*test_decomposition\) does not terminate"
    ):
        program.compile(Host())


class Host(Target):
    name = "host-add"

    def kernels(self, context: Any) -> Kernels:
        table = Kernels("host-add")
        table.plan(Add)(lambda o, shapes, context: HostKernel(o))
        return table


def test_the_reason_reaches_the_placement() -> None:
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add(Wrong(), main.add_parameter("x", X))])
    program.compile(Host())
    assert program.executable is not None
    (placement,) = program.executable.instances()[0].placements
    assert placement.place == "host"
    assert any("test_twice_wrong does not decompose: " in why for why in placement.refused)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), x + x)
