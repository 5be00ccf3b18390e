"""Debug symbols: names assigned by users, and node names if requested from the parser."""

from __future__ import annotations

import migraphx


def built():
    program = migraphx.program()
    main = program.get_main_module()
    s = migraphx.shape(lens=[2, 3], type="float")
    total = main.add_instruction(migraphx.op("add"), [main.add_parameter("x", s), main.add_parameter("y", s)])
    return program, main, total, main.add_instruction(migraphx.op("relu"), [total])


def test_they_are_added_merged_and_removed() -> None:
    _, main, total, positive = built()
    assert not main.has_debug_symbols() and total.get_debug_symbols() == set()
    main.add_debug_symbols(total, {"a", "b"})
    main.add_debug_symbols(total, {"b", "c"})
    main.add_debug_symbols(positive, {"onnx:relu"})
    assert total.get_debug_symbols() == {"a", "b", "c"}
    assert {i.name(): i.get_debug_symbols() for i in main if i.get_debug_symbols()} == {
        "add": {"a", "b", "c"},
        "relu": {"onnx:relu"},
    }
    main.remove_debug_symbols(total)
    assert total.get_debug_symbols() == set() and main.has_debug_symbols()
    main.remove_debug_symbols(positive)
    assert not main.has_debug_symbols()
    main.add_debug_symbols(total, {"again"})
    assert total.get_debug_symbols() == {"again"}


def test_passes_carry_them_along(tmp_path) -> None:
    program, main, _, positive = built()
    main.add_debug_symbols(positive, {"last"})
    main.add_return([positive])
    smaller = migraphx.optimize(program)
    assert {s for i in smaller.get_main_module() for s in i.get_debug_symbols()} == {"last"}
    program.save(tmp_path / "p.mxr")
    assert migraphx.load(tmp_path / "p.mxr").get_output_shapes()[0].lens() == [2, 3]


def test_nodes_of_a_model_are_shown_on_demand(small_network) -> None:
    model = small_network([1, 3, 8, 8], 2)
    for node in model.graph.node:
        node.name = f"the {node.op_type}"
    for shown in (True, False):
        main = migraphx.parse_onnx_buffer(model.SerializeToString(), use_debug_symbols=shown).get_main_module()
        assert main.has_debug_symbols() == shown
        found = {s for i in main for s in i.get_debug_symbols()}
        assert found == ({f"the {node.op_type}" for node in model.graph.node} if shown else set())
