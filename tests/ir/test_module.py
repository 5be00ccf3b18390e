"""Building and editing modules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgx_core as mgx
from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ir.graph import Graph
from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module, nested
from mgx_core.ir.ordering import captures
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.types.shape import Shape, TupleShape

S = Shape("float", [2])


def read(text: str) -> Module:
    return parse_module(text, STANDARD)


def op(name: str, **attributes):
    return STANDARD.make(name, **attributes)


def names(module: Module) -> list[str]:
    return [i.name for i in module]


def two_relus() -> Module:
    return read("""
        module main
          %x = @param["x"] -> float32[2]
          %1 = relu(%x)
          %2 = relu(%1)
          @return(%2)""")


# building


def test_instructions_come_before_the_return():
    module = Module()
    x = module.add_parameter("x", S)
    end = module.add_return([x])
    relu = module.add(op("relu"), x)
    early = module.insert_instruction(relu, op("neg"), [x])
    y = module.add_parameter("y", S)
    one = module.add_literal(1.0)
    assert list(module) == [x, y, early, relu, one, end]
    assert list(reversed(module)) == [end, one, relu, early, y, x]
    assert len(module) == 6
    assert module.parameters == {"x": x, "y": y}
    assert module.outputs == (x,)
    assert module.output_shapes() == [S]
    assert verify(module) == []


def test_a_module_without_return_returns_its_last_instruction():
    module = Module()
    assert module.outputs == ()
    x = module.add_parameter("x", S)
    assert module.outputs == (x,)
    relu = module.add(op("relu"), x)
    assert module.outputs == (relu,)
    assert module.returned is None


def test_replacing_the_result_of_a_module_without_return_makes_it_return_the_other_value():
    module = Module()
    x = module.add_parameter("x", S)
    first = module.add(op("relu"), x)
    last = module.add(op("neg"), first)
    module.replace(last, x)
    assert module.outputs == (x,)
    assert module.sweep() == 2
    assert names(module) == ["@param", "@return"]
    assert verify(module) == []
    module = Module()
    first = module.add(op("relu"), module.add_parameter("x", S))
    new = module.add(op("abs"), first)
    last = module.add(op("neg"), first)
    module.replace(first, module.parameters["x"])  # not its result
    assert module.outputs == (last,)
    module.replace_each({last: new})
    assert module.outputs == (new,)
    module = two_relus()
    module.replace_instruction(module.outputs[0], op("abs"))
    assert [o.name for o in module.outputs] == ["abs"]
    assert len([i for i in module if i.is_return]) == 1


def test_errors_of_building():
    module = two_relus()
    x = module.parameters["x"]
    with pytest.raises(ShapeError, match="add takes 2 inputs"):
        module.add(op("add"), x)
    with pytest.raises(ParameterError, match="has a parameter 'x' already"):
        module.add_parameter("x", S)
    with pytest.raises(ParameterError, match="has a return already"):
        module.add_return([x])
    other = Module("other")
    there = other.add_parameter("y", S)
    with pytest.raises(ParameterError, match="is not in module 'main'"):
        module.add(op("relu"), x, before=there)
    assert names(module) == ["@param", "relu", "relu", "@return"]


def test_other_types_than_operations_and_instructions_are_rejected_and_named():
    main = Module()
    x = main.add_parameter("x", S)
    relu = mgx.op("relu")
    for args, message in [
        (("relu", x), r"add takes an operation \(mgx_core.op\(\"relu\"\)\), got 'relu'"),
        ((type(relu), x), "add takes an operation .* got <class"),
        ((relu, np.zeros(2, np.float32)), r"relu: operand 0 must be an instruction .*add_literal.* type ndarray"),
        ((mgx.op("add"), x, None), "add: operand 1 must be an instruction .* got None"),
        ((relu, [x]), "operand 0 must be an instruction .* a value of type list"),
    ]:
        with pytest.raises(ParameterError, match=message):
            main.add(*args)
    for results in (x, None, [x, "y"], [x, None]):
        with pytest.raises(ParameterError, match="a return takes"):
            main.add_return(results)
    kept = main.add_return([x])
    with pytest.raises(ParameterError, match="a return takes"):
        main.replace_return(x)
    assert main.returned is kept
    assert [i.name for i in main] == ["@param", "@return"]


def test_users_count_every_reading():
    module = Module()
    x = module.add_parameter("x", S)
    total = module.add(op("add"), x, x)
    assert x.users == (total,)
    assert x.outputs == [total]
    module.set_inputs(total, [x, module.add_literal(np.float32([1, 2]))])
    assert x.users == (total,)
    module.remove(total)
    assert x.users == ()


def test_an_equal_input_leaves_the_symbol_of_a_result():
    module = Module()
    x = module.add_parameter("x", S)
    first, second = module.add(op("relu"), x), module.add(op("relu"), x)
    found = module.add(op("nonzero"), first)
    flat = module.add(op("reshape", dims=found.result.dims[1:]), found)  # its dims use the symbol
    module.add_return([flat])
    module.set_inputs(found, [second])
    assert found.result.dims[1:] == flat.op.dims
    assert evaluate_module(module, [np.float32([0, 3])])[0].tolist() == [1]


def test_extents_without_a_name_get_their_parameters():
    module = Module()
    ranges = [mgx.DynamicDimension(1, 4), mgx.DynamicDimension(3, 3)]
    one = module.add_parameter("a", Shape("float", dyn_dims=ranges))
    two = module.add_parameter("b", Shape("float", dyn_dims=ranges))
    assert str(one.result) == "float32[a_0, 3]"
    assert str(two.result) == "float32[b_0, 3]"


def test_literals():
    module = Module()
    view = module.add_literal(np.arange(6, dtype=np.float32).reshape(2, 3).T)
    assert view.result == Shape("float", [3, 2])
    assert view.get_literal().tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(ShapeError, match="is not a literal"):
        module.add(op("relu"), view).get_literal()


def test_a_tuple_has_no_tensor_shape():
    module = Module()
    x = module.add_parameter("x", Shape("float", [4]))
    top = module.add(op("topk", k=2, axis=0), x)
    with pytest.raises(ShapeError, match=r"gives a .*where a tensor is required"):
        _ = top.shape


# editing


def test_replace_moves_the_users_but_not_the_new_one():
    module = two_relus()
    x, first, second, end = module
    new = module.add(op("neg"), first, before=second)
    module.replace(first, new)
    assert second.inputs == (new,)
    assert new.inputs == (first,)
    module.replace(second, new)
    assert end.inputs == (new,)
    assert module.sweep() == 1
    assert names(module) == ["@param", "relu", "neg", "@return"]
    assert verify(module) == []
    wide = module.add(op("convert", target_type=dt.float64), x)
    with pytest.raises(ShapeError, match=r"cannot be replaced by .*type would change"):
        module.replace(new, wide)


def test_replace_instruction_takes_ops_and_keeps_modules_and_sources():
    module = two_relus()
    _, first, second, end = module
    second.sources = ("node",)
    new = module.replace_instruction(second, op("abs"))
    assert (new.inputs, new.sources, end.inputs) == ((first,), ("node",), (new,))
    grouped = read("""
        module main
          %x = @param["x"] -> float32[2]
          %1 = group[tag="a"](%x){body}
          @return(%1)
        module body
          %y = @param["y"] -> float32[2]
          %2 = relu(%y)
          @return(%2)""")
    group = grouped.outputs[0]
    again = grouped.replace_instruction(group, op("group", tag="b"))
    assert again.modules == group.modules
    grouped.sweep()
    assert names(again.modules[0]) == ["@param", "relu", "@return"]
    assert verify(grouped) == []


def test_replace_op_infers_again():
    module = two_relus()
    _, first, second, _ = module
    module.replace_op(second, op("convert", target_type=dt.float16))
    assert second.result == Shape("half", [2])
    version = module.version
    module.set_inputs(second, [module.parameters["x"]])
    assert module.version > version
    assert first.users == ()
    with pytest.raises(ShapeError, match="unsqueeze"):
        module.replace_op(second, op("unsqueeze", axes=[7]))
    assert second.name == "convert"


def test_move():
    module = two_relus()
    x, first, second, end = module
    aside = module.add(op("abs"), x)
    module.move(aside, first)
    assert list(module) == [x, aside, first, second, end]
    module.move(aside, None)
    assert list(module) == [x, first, second, aside, end]
    module.move(aside, aside)
    assert len(module) == 5
    stranger = Module("other").add_literal(1)
    with pytest.raises(ParameterError, match="is not in module 'main'"):
        module.move(aside, stranger)
    with pytest.raises(ParameterError, match="is not in module 'main'"):
        module.move(stranger, aside)
    assert list(module) == [x, first, second, aside, end]
    assert verify(module) == []


def test_instructions_with_readers_cannot_be_removed():
    module = two_relus()
    _, first, second, _ = module
    with pytest.raises(ParameterError, match="is still read by relu"):
        module.remove(first)
    with pytest.raises(ParameterError, match="is not in module 'other'"):
        Module("other").remove(second)


def test_removing_while_iterating():
    module = two_relus()
    for _ in range(5):
        module.add(op("abs"), module.parameters["x"])
    for ins in module:
        if ins.name == "abs":
            module.remove(ins)
    assert names(module) == ["@param", "relu", "relu", "@return"]


NESTED = """
    module main
      %c = @param["c"] -> bool[]
      %x = @param["x"] -> float32[2]
      %1 = relu(%x)
      %2 = if(%c){then, else}
      %3 = get_tuple_elem[index=0](%2)
      @return(%3)
    module then
      %4 = abs(%1)
      %5 = neg(%x)
      @return(%4)
    module else
      @return(%x)"""


def test_sweep_reaches_nested_modules_and_their_captures():
    module = read(NESTED)
    branch = module.outputs[0].inputs[0]
    assert [i.name for i in captures(branch.modules[0])] == ["relu", "@param"]
    assert [m.name for m in nested(module)] == ["main", "then", "else"]
    assert module.sweep() == 1  # neg
    module.replace_return([module.parameters["x"]])
    assert module.sweep() == 3
    assert names(module) == ["@param", "@param", "@return"]
    assert module.parameters["x"].users == (module.returned,)


def test_a_module_that_two_instructions_run_outlives_one_of_them():
    text = """
        module main
          %x = @param["x"] -> float32[2]
          %1 = group[tag="a"](%x){body}
          %2 = group[tag="b"](%x){body}
          @return(%2)
        module body
          %y = @param["y"] -> float32[2]
          %3 = relu(%y)
          @return(%3)"""
    module = read(text)
    assert module.sweep() == 1
    (group,) = module.outputs
    assert names(group.modules[0]) == ["@param", "relu", "@return"]
    module.clear()
    assert len(group.modules[0]) == 0


def test_sort_moves_inputs_first():
    module = read(NESTED)
    _, _, relu, branch, item, end = module
    module.move(relu, end)
    module.move(item, branch)
    assert verify(module) != []
    module.sort()
    assert verify(module) == []
    assert list(module)[-1] is end
    module.set_inputs(relu, [item])
    with pytest.raises(ShapeError, match="depends on itself"):
        module.sort()


@given(st.permutations(range(12)), st.data())
@settings(max_examples=40, deadline=None)
def test_sort_mends_any_order(order, data):
    module = Module()
    values = [module.add_parameter("x", S)]
    for _ in range(12):
        pick = st.sampled_from(values)
        values.append(module.add(op("add"), data.draw(pick), data.draw(pick)))
    module.add_return([values[-1]])
    for at in order:
        module.move(values[1 + at], None)
    module.sort()
    assert verify(module) == []
    assert len(list(module)) == len(module) == 14


# copies


def test_clone_is_independent_and_shares_literals():
    module = read(NESTED)
    module.add_literal(np.float32([1, 2]))
    copy = module.clone()
    assert copy.text() == module.text()
    assert verify(copy) == []
    assert not set(copy) & set(module)
    assert not set(nested(copy)) & set(nested(module))
    copy.replace_return([copy.parameters["x"]])
    copy.sweep()
    assert module.outputs[0].name == "get_tuple_elem"
    assert verify(module) == []


SYMBOLIC = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n, 3]
      %k = @literal(1.0) -> float32[1]
      %1 = multibroadcast[out_lens=[n, 3]](%k)
      %2 = add(%x, %1)
      %3 = reshape[dims=[n*3]](%2)
      @return(%3)"""


def test_clone_with_other_parameter_shapes():
    copy = read(SYMBOLIC).clone(parameters={"x": Shape("float", [5, 3])})
    assert verify(copy) == []
    assert copy.output_shapes() == [Shape("float", [15])]
    assert not any(i.result.dynamic() for i in copy if not i.is_return)
    values = read(SYMBOLIC).clone(values={"n": 2})
    assert values.output_shapes() == [Shape("float", [6])]


def test_clone_with_a_scalar_where_the_rank_was_open():
    module = Module()
    x = module.add_parameter("x", Shape.unranked(dt.float32))
    module.add_return([x])
    assert module.clone(parameters={"x": Shape("float", [])}).output_shapes() == [Shape("float", [])]
    assert module.clone(parameters={"x": Shape.unranked(dt.float64)}).output_shapes() == [Shape.unranked(dt.float64)]


def test_inline_replaces_parameters_by_arguments():
    body = read("""
        module body
          %a = @param["a"] -> float32[2]
          %b = @param["b"] -> float32[2]
          %1 = sub(%a, %b)
          @return(%1, %b)""")
    module = two_relus()
    x, first, second, end = module
    difference, passed = module.inline(body, [second, x], before=end)
    assert passed is x
    assert difference.inputs == (second, x)
    assert verify(module) == []
    with pytest.raises(ParameterError, match="module 'body' takes 2 parameters, got 1"):
        module.inline(body, [first])


def test_inline_follows_symbols_that_get_new_names():
    body = read("""
        symbol n in 1..8
        symbol found?0 in 0..8
        module body
          %x = @param["x"] -> float32[n]
          %one = @literal(1) -> int64[1]
          %1 = nonzero(%x) -> int64[1, found?0]
          %2 = multibroadcast[out_lens=[1, found?0]](%one) -> int64[1, found?0]
          %3 = add(%1, %2) -> int64[1, found?0]
          %4 = multibroadcast[out_lens=[2, n]](%x)
          @return(%3, %4)""")
    module = Module()
    x = module.add_parameter("x", Shape("float", [4]))
    module.add_return(module.inline(body, [x]))
    assert verify(module) == []
    found, wide = evaluate_module(module, [np.float32([0, 5, 0, 7])])
    assert found.tolist() == [2, 4]
    assert wide.shape.lens() == [2, 4]


# programs


def test_graphs_know_their_modules():
    graph = Graph(read(NESTED))
    assert list(graph.modules()) == ["main", "then", "else"]
    loose = graph.create_module("extra")
    assert list(graph)[-1] is loose
    with pytest.raises(ParameterError, match="there is a module 'then' already"):
        graph.create_module("then")
    graph.main.outputs[0].inputs[0].modules[0].name = "else"
    with pytest.raises(ParameterError, match="two modules are called 'else'"):
        graph.modules()


def test_an_empty_module_may_be_a_programs():
    empty = Module("mine")
    assert Graph(empty).main is empty
    graph = Graph(empty)
    assert mgx.Program(graph).graph is graph


def test_derived_data_is_cached_until_an_edit():
    module = two_relus()
    made = []

    def size(m: Module) -> int:
        made.append(len(m))
        return len(m)

    assert [module.derive("size", size) for _ in range(2)] == [4, 4]
    module.add(op("abs"), module.parameters["x"])
    assert module.derive("size", size) == 5
    assert made == [4, 5]


def test_symbols_of_parameters_stay_their_own():
    n = dim.symbol("n", 1, 4)
    module = Module()
    x = module.add_parameter("x", Shape("float", [n]))
    y = module.add_parameter("y", Shape("float", [n]))
    assert module.add(op("add"), x, y).result == Shape("float", [n])


def test_neighbors_and_ends():
    module = parse_module(
        'module main\n  %x = @param["x"] -> float32[2]\n  %1 = relu(%x) -> float32[2]\n  @return(%1)', STANDARD
    )
    x, relu, end = module
    assert (module.first, module.last) == (x, end)
    assert (relu.previous, relu.next, x.previous, end.next) == (x, end, None, None)


def test_an_op_is_replaced_by_the_given_result():
    module = parse_module(
        'module main\n  %x = @param["x"] -> float32[2]\n  %1 = relu(%x) -> float32[2]\n  @return(%1)', STANDARD
    )
    relu = module.outputs[0]
    version, result = module.version, relu.result
    module.replace_op(relu, op("abs"), result)
    assert relu.op == op("abs") and relu.result is result
    assert module.version > version


def test_rewired_instructions_keep_their_result():
    module = parse_module(
        'module main\n  %x = @param["x"] -> float32[2]\n  %y = @param["y"] -> float32[2]\n  %1 = relu(%x) -> float32[2]\n  @return(%1)',
        STANDARD,
    )
    x, y, relu, end = module
    module.rewire(relu, [y])
    module.rewire(end, [relu, x])
    assert (relu.inputs, x.users, y.users) == ((y,), (end,), (relu,))
    assert end.result == TupleShape([relu.result, x.result])
    assert verify(module) == []


def test_symbols_are_substituted_in_ops_and_results():
    module = parse_module(
        'symbol n\nmodule main\n  %x = @param["x"] -> float32[n]\n  %1 = multibroadcast[out_lens=[3, n]](%x) -> float32[3, n]\n  @return(%1)',
        STANDARD,
    )
    module.substitute({"n": 4})
    assert module.text().splitlines()[1:3] == [
        '  %x = @param["x"] -> float32[4]',
        "  %1 = multibroadcast[out_lens=[3, 4]](%x) -> float32[3, 4]",
    ]
    assert verify(module) == []


def test_equal_extents_are_substituted_once(monkeypatch) -> None:
    """A long chain of results with the same extents: as many products of extents are computed as for one."""
    n = dim.symbol("n", 1, 9)
    made = []

    def counting(a, b):
        made.append((a, b))
        return dim.floordiv(a, b)

    module = Module("main")
    x = module.add_parameter("x", Shape("float", [n // 2, 6]))
    for _ in range(20):
        x = module.add(op("neg"), x)
    module.add_return([x])
    monkeypatch.setitem(dim.FUNCTIONS, "floordiv", counting)
    module.substitute({"n": dim.symbol("m", 1, 9)})
    assert len(made) == 1
    assert str(x.shape.dims[0]) == "(m//2)"


def test_extents_named_only_by_an_attribute_are_substituted() -> None:
    n = dim.symbol("n", 1, 9)
    module = Module("main")
    x = module.add_parameter("x", Shape("float", [6]))
    taken = module.add(op("slice", axes=[0], starts=[0], ends=[n]), x)
    fixed = module.add(op("reduce_sum", axes=[0]), taken)
    module.add_return([fixed])
    taken.result = Shape("float", [3])  # as in a rule that knows the result's shape before the symbol is defined
    module.substitute({"n": 3})
    assert not taken.op.symbols()
    assert verify(module) == []


def test_other_inputs_have_the_shape_inferred_again():
    m = Module("m")
    x = m.add_parameter("x", Shape("float32", [3]))
    y = m.add(op("neg"), x)
    z = m.add(op("exp"), y)
    m.replace_op(y, op("convert", target_type="float64"))
    m.set_inputs(z, [y])
    assert z.result == Shape("float64", [3])
