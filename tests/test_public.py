"""The list of public names is fixed: adding or removing one is a deliberate change."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import mgx_core as mgx

HELD = """
    Argument Builder CompileOptions Context DType DeviceError Dim DynamicDimension EXACT Executable Frontend
    HostContext HostKernel Instruction Kernel Kernels Launch Lazy Macro MgxError Module No OpSet Operation
    OptionalShape ParameterError ParseError Pass PassError PluginError Pointwise Program RANGE ROUNDING Reference
    Rewrite Rules Runner SequenceShape Shape ShapeError StoreError Target TupleShape UnrankedError UnsupportedError Watch
    __version__ allocate_gpu argument argument_from_pointer autocast_fp8 best_target create_argument define_op dim dtype
    fill_argument from_gpu generate_argument get_gpu_context get_onnx_operators get_target get_tf_operators gpu_sync
    hookimpl load load_buffer op ops optimize parse parse_buffer parse_onnx parse_onnx_buffer parse_program parse_tf
    parse_tf_buffer plugin_manager program quantize_bf16 quantize_dynamic quantize_fp16 quantize_fp8
    quantize_int4_weights quantize_int8 save save_buffer scalar shape to_gpu
"""
NAMES = HELD.split()


def test_these_are_the_public_names():
    assert sorted(mgx.__all__) == NAMES
    assert dir(mgx) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_exists_and_is_documented(name):
    found = getattr(mgx, name)
    assert getattr(mgx, name) is found
    if inspect.isclass(found) or inspect.isfunction(found) or inspect.ismodule(found):
        assert inspect.getdoc(found)


def test_type_checkers_see_the_same_names():
    """The stub beside the package lists the names that are loaded at run time, from the same modules."""
    stub = ast.parse(Path(mgx.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    seen = {"argument": mgx.Argument, "program": mgx.Program, "shape": mgx.Shape}
    for node in ast.walk(stub):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = importlib.import_module(f"mgx_core.{node.module or alias.name}")
                seen[alias.asname or alias.name] = getattr(module, alias.name) if node.module else module
    assert sorted(seen) == NAMES, "add it to mgx_core/__init__.pyi"
    assert [name for name in NAMES if getattr(mgx, name) is not seen[name]] == []


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="module 'mgx_core' has no attribute 'nothing'"):
        _ = mgx.nothing


def test_three_names_are_classes_and_not_the_modules_of_that_name():
    assert (mgx.argument, mgx.program, mgx.shape) == (mgx.Argument, mgx.Program, mgx.Shape)
    from mgx_core.types.shape import matches

    assert callable(matches)
    assert mgx.shape is mgx.Shape


def test_attributes_by_the_names_of_migraphx():
    assert mgx.op("pooling", mode=mgx.op.pooling_mode.max, lengths=[2, 2]) == mgx.op(
        "pooling", mode="max", lengths=[2, 2]
    )
    for mode in ("average", "max", "lpnorm"):
        assert mgx.op("pooling", mode=getattr(mgx.op.pooling_mode, mode), lengths=[2]).values()["mode"] == mode
    for direction in ("forward", "reverse", "bidirectional"):
        made = mgx.op("lstm", hidden_size=4, direction=getattr(mgx.op.rnn_direction, direction))
        assert made.values()["direction"] == direction


def test_errors_form_one_tree():
    errors = [getattr(mgx, n) for n in NAMES if n.endswith("Error")]
    assert len(errors) == 10
    assert all(issubclass(e, mgx.MgxError) for e in errors)
    assert issubclass(mgx.UnrankedError, mgx.ShapeError)
    assert issubclass(mgx.ShapeError, ValueError)
    assert issubclass(mgx.UnsupportedError, NotImplementedError)


def test_errors_tell_their_place_outermost_first():
    error = mgx.ShapeError("extents differ").located("add").located("node 'a'").located("add")
    assert str(error) == "node 'a': add: extents differ"
    assert error.message == "extents differ"


def test_a_more_precise_location_of_the_same_node_replaces_it():
    error = mgx.ShapeError("extents differ").located("add").at_nodes(["a"]).located("node 'a' (Add, opset 18)")
    assert str(error) == "node 'a' (Add, opset 18): add: extents differ"
    assert str(mgx.ShapeError("extents differ").at_nodes([])) == "extents differ"
    assert str(mgx.ShapeError("extents differ").at_nodes(["a", "ab"]).located("node 'a'")).count("'a'") == 2
