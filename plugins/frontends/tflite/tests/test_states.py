"""Variables that persist between runs: assigned in order, in one of two branches, in loop iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import ParseError
from mgx_tflite.model import Model, Operator, Quantization, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model


class Options:
    """Attributes of an operator, each a method."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        return lambda: self.values.get(name, 0)


VARIABLE = Options(Container=b"", SharedName=b"caf\xe9")  # not UTF-8: bytes like any other
PLAIN = Options()


def tensor(name: str, kind: Any, dims: list[int], value: Any = None) -> Tensor:
    return Tensor(name, kind, dims, None if value is None else np.asarray(value, kind.numpy), None)


def handle() -> Tensor:
    return Tensor("handle", None, [], None, None)


def adding(name: str, extra: list[Tensor], operators: list[Operator], outputs: list[int]) -> Subgraph:
    """Returns a subgraph that adds its input 0 to the variable: tensors 1 to 3 are its handle, value and sum."""
    tensors = [
        tensor("x", dt.float32, []),
        handle(),
        tensor("old", dt.float32, []),
        tensor("new", dt.float32, []),
        *extra,
    ]
    steps = [
        Operator("VAR_HANDLE", [], [1], [], VARIABLE, b"", 0),
        Operator("READ_VARIABLE", [1], [2], [], None, b"", 1),
        Operator("ADD", [2, 0], [3], [], PLAIN, b"", 2),
        Operator("ASSIGN_VARIABLE", [1, 3], [], [], None, b"", 3),
    ]
    inputs = [k for k, t in enumerate(tensors) if t.name in ("x", "k", "n")]
    return Subgraph(name, tensors, [*steps, *operators], inputs, outputs)


def beginning() -> Subgraph:
    """Returns the subgraph that sets the variable to 0 before the first run."""
    steps = [
        Operator("VAR_HANDLE", [], [0], [], VARIABLE, b"", 0),
        Operator("ASSIGN_VARIABLE", [0, 1], [], [], None, b"", 1),
    ]
    return Subgraph("begin", [handle(), tensor("zero", dt.float32, [], 0)], steps, [], [])


ONCE = Operator("CALL_ONCE", [], [], [], Options(InitSubgraphIndex=3), b"", 0)


def program(subgraphs: list[Subgraph], target: str) -> Any:
    made = parse_model(Model(subgraphs), TfliteOptions())
    made.compile(mgx.get_target(target))
    return made


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_branch_sets_a_variable(target: str):
    tensors = [tensor("x", dt.float32, []), tensor("on", dt.bool_, []), handle(), tensor("zero", dt.float32, [], 0),
               tensor("y", dt.float32, []), tensor("after", dt.float32, [])]  # fmt: skip
    operators = [
        ONCE,
        Operator("VAR_HANDLE", [], [2], [], VARIABLE, b"", 0),
        Operator("IF", [1, 0], [4], [], Options(ThenSubgraphIndex=1, ElseSubgraphIndex=2), b"", 1),
        Operator("READ_VARIABLE", [2], [5], [], None, b"", 2),
    ]
    graphs = [
        Subgraph("main", tensors, operators, [0, 1], [4, 5]),
        adding("then", [], [], [2]),
        Subgraph("else", [tensor("x", dt.float32, [])], [], [0], [0]),
        beginning(),
    ]
    made = program(graphs, target)
    for x, on, y, after in ((2, True, 0, 2), (5, False, 5, 2), (3, True, 2, 5)):
        found = made.run({"x": np.float32(x), "on": np.bool_(on)})
        assert [float(np.asarray(r)) for r in found] == [y, after]
    made.reset_state()
    assert float(np.asarray(made.run({"x": np.float32(1), "on": np.bool_(False)})[1])) == 0


def test_branches_with_other_numbers_of_results_are_refused():
    tensors = [tensor("x", dt.float32, []), tensor("on", dt.bool_, []), tensor("y", dt.float32, [])]
    steps = [Operator("IF", [1, 0], [2], [], Options(ThenSubgraphIndex=1, ElseSubgraphIndex=2), b"", 0)]
    arms = [Subgraph(name, [tensor("x", dt.float32, [])], [], [0], [0] * n) for name, n in (("then", 1), ("else", 2))]
    with pytest.raises(ParseError, match="subgraph 2 must return 1 result, got 2"):
        program([Subgraph("main", tensors, steps, [0, 1], [2]), *arms], "ref")


@pytest.mark.parametrize("given", [0, 2])
@pytest.mark.parametrize("name", ["CALL", "IF", "WHILE"])
def test_subgraphs_that_give_other_numbers_of_results_are_refused(name: str, given: int) -> None:
    """An IF with a constant condition parses one subgraph only; a WHILE has a condition subgraph before its body."""
    tensors = [tensor("x", dt.float32, []), tensor("on", dt.bool_, [], True), tensor("y", dt.float32, [])]
    options = Options(Subgraph=1, ThenSubgraphIndex=1, ElseSubgraphIndex=1, CondSubgraphIndex=2, BodySubgraphIndex=1)
    steps = [Operator(name, [1, 0] if name == "IF" else [0], [2], [], options, b"", 0)]
    doubled = Operator("ADD", [0, 0], [1], [], PLAIN, b"", 0)
    inner = Subgraph("inner", [tensor("x", dt.float32, []), tensor("z", dt.float32, [])], [doubled], [0], [1] * given)
    test = Subgraph("test", [tensor("x", dt.float32, []), tensor("on", dt.bool_, [], True)], [], [0], [1])
    with pytest.raises(ParseError, match=f"{name}.*subgraph 1 must return 1 result, got {given}"):
        program([Subgraph("main", tensors, steps, [0], [2]), inner, test], "ref")


@pytest.mark.parametrize(("outputs", "why"), [([], "must return 1 result"), ([0], "must return one boolean")])
def test_loops_whose_test_is_no_truth_value_are_refused(outputs: list[int], why: str) -> None:
    tensors = [tensor("x", dt.float32, []), tensor("y", dt.float32, [])]
    steps = [Operator("WHILE", [0], [1], [], Options(CondSubgraphIndex=1, BodySubgraphIndex=2), b"", 0)]
    inner = [
        Subgraph("test", [tensor("x", dt.float32, [])], [], [0], outputs),
        Subgraph(
            "body",
            [tensor("x", dt.float32, []), tensor("z", dt.float32, [])],
            [Operator("ADD", [0, 0], [1], [], PLAIN, b"", 0)],
            [0],
            [1],
        ),
    ]
    with pytest.raises(ParseError, match=f"WHILE.*{why}"):
        program([Subgraph("main", tensors, steps, [0], [1]), *inner], "ref")


def quantized(name: str, scale: float, value: Any = None) -> Tensor:
    held = None if value is None else np.asarray(value, np.int8)
    return Tensor(name, dt.int8, [2], held, Quantization(np.float32([scale]), np.array([-3]), 0))


def assigned(given: Tensor, old: Tensor, zero: Tensor) -> list[Subgraph]:
    """Returns subgraphs that read the variable's old value and assign the input; it is initially `zero`."""
    operators = [
        ONCE,
        Operator("VAR_HANDLE", [], [1], [], VARIABLE, b"", 0),
        Operator("READ_VARIABLE", [1], [2], [], None, b"", 1),
        Operator("ASSIGN_VARIABLE", [1, 0], [], [], None, b"", 2),
    ]
    begin = Subgraph("begin", [handle(), zero], beginning().operators, [], [])
    nothing = Subgraph("nothing", [], [], [], [])
    return [Subgraph("main", [given, handle(), old], operators, [0], [2]), nothing, nothing, begin]


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_variable_holds_quantized_values_in_their_own_type(target: str):
    """A value may be read with another scale than it was assigned with: bytes are stored."""
    made = program(assigned(quantized("x", 0.5), quantized("old", 0.25), quantized("zero", 0.5, [7, -8])), target)
    assert [v.dtype for v in made.states.values()] == [np.int8]
    for given, held in (([1, 2], [7, -8]), ([-128, 127], [1, 2]), ([0, 0], [-128, 127])):
        assert np.asarray(made.run({"x": np.int8(given)})[0]).tolist() == held


@pytest.mark.parametrize(
    "given", [tensor("x", dt.int32, [2]), tensor("x", dt.float32, [3]), tensor("x", dt.float32, [1, 2])]
)
def test_a_variable_keeps_its_type_and_extents(given: Tensor):
    two = [tensor("old", dt.float32, [2]), tensor("zero", dt.float32, [2], [7, -8])]
    with pytest.raises(mgx.UnsupportedError, match=r"ASSIGN_VARIABLE.*must keep its type and extents"):
        parse_model(Model(assigned(given, *two)), TfliteOptions())


def test_a_variable_is_read_in_its_own_type():
    three = tensor("x", dt.float32, [2]), tensor("old", dt.int32, [2]), tensor("zero", dt.float32, [2], [7, -8])
    with pytest.raises(mgx.ParseError, match="float32\\[2\\] is read as int32"):
        parse_model(Model(assigned(*three)), TfliteOptions())


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_run_that_changes_the_extents_of_a_variable_leaves_it_as_it_was(target: str):
    three = tensor("x", dt.float32, [-1]), tensor("old", dt.float32, [-1]), tensor("zero", dt.float32, [2], [7, -8])
    made = program(assigned(*three), target)
    made.run({"x": np.float32([1, 2])})
    with pytest.raises(mgx.ShapeError, match="has extents \\[2\\], this run gives it"):
        made.run({"x": np.float32([1, 2, 3])})
    assert np.asarray(made.run({"x": np.float32([5, 6])})[0]).tolist() == [1, 2]


def test_variables_whose_names_differ_only_in_punctuation_are_distinct():
    tensors = [tensor("x", dt.float32, []), handle(), handle(), *(tensor(n, dt.float32, []) for n in "ab")]
    names = [Options(Container=b"", SharedName=name) for name in (b"a/b", b"a_b")]
    operators = [
        *(Operator("VAR_HANDLE", [], [k + 1], [], names[k], b"", k) for k in (0, 1)),
        Operator("ASSIGN_VARIABLE", [1, 0], [], [], None, b"", 2),
        Operator("ADD", [0, 0], [3], [], PLAIN, b"", 3),
        Operator("ASSIGN_VARIABLE", [2, 3], [], [], None, b"", 4),
        Operator("READ_VARIABLE", [1], [4], [], None, b"", 5),
    ]
    made = program([Subgraph("main", tensors, operators, [0], [3, 4])], "ref")
    assert [float(np.asarray(v)) for v in made.run({"x": np.float32(3)})] == [6, 3] and len(made.states) == 2


def looping(test: Subgraph, body: Subgraph) -> list[Subgraph]:
    """Returns a loop over the variable with x, 0 and n; it is 0 in the first run."""
    tensors = [tensor("x", dt.float32, []), tensor("n", dt.int32, []), handle(), tensor("zero", dt.int32, [], 0),
               tensor("a", dt.float32, []), tensor("b", dt.int32, []), tensor("c", dt.int32, []), tensor("y", dt.float32, [])]  # fmt: skip
    operators = [
        ONCE,
        Operator("VAR_HANDLE", [], [2], [], VARIABLE, b"", 0),
        Operator("WHILE", [0, 3, 1], [4, 5, 6], [], Options(CondSubgraphIndex=1, BodySubgraphIndex=2), b"", 1),
        Operator("READ_VARIABLE", [2], [7], [], None, b"", 2),
    ]
    return [Subgraph("main", tensors, operators, [0, 1], [7]), test, body, beginning()]


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_trips_of_a_loop_set_a_variable_though_nothing_reads_their_results(target: str):
    counters = [tensor("k", dt.int32, []), tensor("n", dt.int32, [])]
    test = [tensor("x", dt.float32, []), *counters, tensor("go", dt.bool_, [])]
    step = [*counters, tensor("one", dt.int32, [], 1), tensor("next", dt.int32, [])]
    graphs = looping(
        Subgraph("test", test, [Operator("LESS", [1, 2], [3], [], None, b"", 0)], [0, 1, 2], [3]),
        adding("body", step, [Operator("ADD", [4, 6], [7], [], PLAIN, b"", 4)], [0, 7, 5]),
    )
    made = program(graphs, target)
    for x, n, after in ((2, 3, 6), (1, 0, 6), (1, 2, 8)):
        assert float(np.asarray(made.run({"x": np.float32(x), "n": np.int32(n)})[0])) == after


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_the_condition_of_a_loop_sets_a_variable(target: str):
    """The condition is evaluated once more than the body."""
    counters = [tensor("k", dt.int32, []), tensor("n", dt.int32, [])]
    step = [tensor("x", dt.float32, []), *counters, tensor("one", dt.int32, [], 1), tensor("next", dt.int32, [])]
    less = Operator("LESS", [4, 5], [6], [], None, b"", 4)
    graphs = looping(
        adding("test", [*counters, tensor("go", dt.bool_, [])], [less], [6]),
        Subgraph("body", step, [Operator("ADD", [1, 3], [4], [], PLAIN, b"", 0)], [0, 1, 2], [0, 4, 2]),
    )
    made = program(graphs, target)
    for x, n, after in ((2, 3, 8), (1, 0, 9), (1, 2, 12)):
        assert float(np.asarray(made.run({"x": np.float32(x), "n": np.int32(n)})[0])) == after


def test_subgraphs_that_call_each_other_in_a_ring_are_refused():
    tensors = [tensor("x", dt.float32, []), tensor("y", dt.float32, [])]
    calls = [Operator("CALL", [0], [1], [], Options(Subgraph=k), b"", 0) for k in (1, 2, 1)]
    graphs = [Subgraph(f"g{k}", tensors, [call], [0], [1]) for k, call in enumerate(calls)]
    with pytest.raises(mgx.ParseError, match="calls itself"):
        parse_model(Model(graphs), TfliteOptions())
