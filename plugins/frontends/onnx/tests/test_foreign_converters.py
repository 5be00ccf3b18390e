"""Converters of other packages: what they raise and give is reported with their names."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import mgx_core as mgx
from mgx_core.converting.converters import Converters
from mgx_onnx import model_parser
from mgx_onnx.converter import STANDARD


@pytest.mark.parametrize(
    ("converter", "said"),
    [
        (lambda n, x: {}["axis"], "failed: KeyError: 'axis'"),
        (lambda n, x: None, "gave None; it must return an instruction, or a tuple of them for several outputs"),
        (lambda n, x: "abc", "must give an instruction or a tuple of them, got 'abc'"),
        (lambda n, x: (x, 42), "must give an instruction or a tuple of them, got 42"),
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
