"""Converters of other packages: their exceptions and invalid results are reported with their names."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from onnx import TensorProto, helper

import mgx_core as mgx
from mgx_core.converting.converters import Converters
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl
from mgx_onnx import model_parser
from mgx_onnx.converter import STANDARD


@pytest.mark.parametrize(
    ("converter", "said"),
    [
        (lambda n, x: {}["axis"], "failed: KeyError: 'axis'"),
        (lambda n, x: None, "gave None; it must return an instruction, or a tuple of them for several outputs"),
        (lambda n, x: "abc", "must return an instruction or a tuple of them, got 'abc'"),
        (lambda n, x: (x, 42), "must return an instruction or a tuple of them, got 42"),
    ],
)
def test_converters_of_other_packages_are_blamed_by_name(monkeypatch, converter, said):
    more = Converters()
    more.converts("Odd", domain="acme")(converter)
    monkeypatch.setattr(model_parser, "all_converters", lambda: STANDARD + more)
    node = helper.make_node("Odd", ["x"], ["y"], domain="acme", name="odd")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    data = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=opsets)
    with pytest.raises(mgx.PluginError) as caught:
        mgx.parse_onnx_buffer(data.SerializeToString())
    package = __name__.partition(".")[0]
    assert f"node 'odd' (acme::Odd, opset 1): converter '<lambda>' of package {package} {said}" in str(caught.value)


def test_several_outputs_are_the_items_of_a_tuple(monkeypatch):
    node = helper.make_node("Best", ["x"], ["y", "indices"], domain="acme", name="best")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    info.append(helper.make_tensor_value_info("indices", TensorProto.INT64, [2]))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    data = helper.make_model(graph, opset_imports=opsets).SerializeToString()

    def parsed(converter):
        more = Converters()
        more.converts("Best", domain="acme")(converter)
        monkeypatch.setattr(model_parser, "all_converters", lambda: STANDARD + more)
        return mgx.parse_onnx_buffer(data)

    shapes = parsed(lambda n, x: n.items(n.add("topk", x, k=2, axis=0))).get_output_shapes()
    assert [str(s) for s in shapes] == ["float32[2]", "int64[2]"]
    with pytest.raises(
        mgx.ParseError, match=r"'best' .*: has 1 output, 2 are named; its converter must return `n\.items"
    ):
        parsed(lambda n, x: n.add("topk", x, k=2, axis=0))
    with pytest.raises(mgx.ParseError, match=r"has 1 output, 2 are named$"):
        parsed(lambda n, x: n.add("relu", x))


@pytest.mark.parametrize(("replaces", "op"), [(False, "relu"), (True, "abs")])
def test_a_converter_for_a_known_operator_spoils_no_model(monkeypatch, replaces, op):
    table = Converters()
    table.converts("Relu", replaces=replaces)(lambda n, x: n.add("abs", x))
    module = ModuleType("acme_relu")
    module.mgx_interface, module.TABLE = plugins.INTERFACE, table
    module.converters = hookimpl(lambda frontend: [Lazy("acme", "acme_relu:TABLE")] if frontend == "onnx" else [])
    monkeypatch.setitem(sys.modules, "acme_relu", module)
    manager = Plugins()
    manager.register(module)
    monkeypatch.setattr(plugins, "_manager", [manager])

    def names(kind):
        info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
        graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "g", info[:1], info[1:])
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return [i.name for i in mgx.parse_onnx_buffer(data.SerializeToString()).get_main_module()]

    assert names("Exp") == ["@param", "exp", "@return"]
    assert names("Relu") == ["@param", op, "@return"]
    (told,) = [r.error for r in manager.records if r.name == "acme_relu"]
    assert ("the frontend 'onnx' has a converter for Relu, which stays" in told) != replaces
