from __future__ import annotations

import dataclasses

import pytest

from mgx_core import CompileOptions, Program, Shape, Target, op, parse_onnx_buffer
from mgx_core.errors import FEW, ParameterError, suggestion


def test_records_mappings_and_keywords():
    assert CompileOptions.of() == CompileOptions()
    assert CompileOptions.of({"fast_math": False}, threads=2) == CompileOptions(fast_math=False, threads=2)
    record = CompileOptions(fast_math=False)
    assert CompileOptions.of(record) == record
    assert CompileOptions.of(record, fast_math=True) == CompileOptions()
    assert CompileOptions.of(record, instances=1) == CompileOptions(fast_math=False, instances=1)


def test_values_take_one_form():
    made = CompileOptions.of(disable_passes=["b", "a"], fast_math=0, fusion_rules={"x": False}, target="gfx1100")
    assert made.disable_passes == ("b", "a")
    assert made.fast_math is False
    assert made.fusion_rules == {"x": False}
    assert CompileOptions.of(disable_passes={"b", "a"}).disable_passes == ("a", "b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fast_maths": True}, "there is no compile option 'fast_maths'; did you mean 'fast_math'"),
        (["fast_math"], "compile options must be a CompileOptions, a mapping or keywords, got .'fast_math'."),
        ({"zzz": True}, "there is no compile option 'zzz'; known are offload_copy, "),
        ({"fast_math": "yes"}, "'fast_math' must be true or false, got 'yes'"),
        ({"fast_math": 2}, "'fast_math' must be true or false, got 2"),
        ({"threads": 1.5}, "'threads' must be an int, 0 or more, got 1.5"),
        ({"threads": -1}, "'threads' must be an int, 0 or more, got -1"),
        ({"threads": True}, "'threads' must be an int, 0 or more, got True"),
        ({"disable_passes": "lower"}, "'disable_passes' must be a list of names, got 'lower'"),
        ({"disable_passes": [1]}, "'disable_passes' must be a list of names"),
        ({"fusion_rules": ["x"]}, "'fusion_rules' must be a mapping from rule names to true or false"),
        ({"fusion_rules": {"x": 1}}, "'fusion_rules' must be a mapping"),
        ({"target": 7}, "'target' must be a string, got 7"),
        ({"aggressiveness": 9}, "'aggressiveness' must be one of 0, 1, 2, got 9"),
        ({"aggressiveness": True}, "'aggressiveness' must be one of 0, 1, 2, got True"),
        ({"aggressiveness": "2"}, "'aggressiveness' must be one of 0, 1, 2, got '2'"),
        ({"float32_precision": "low"}, "'float32_precision' must be one of highest, high, medium, got 'low'"),
        ({"float32_precision": ["high"]}, "'float32_precision' must be one of highest, high, medium"),
    ],
)
def test_errors_of_invalid_input(given, message):
    with pytest.raises(ParameterError, match=message):
        CompileOptions.of(given)


def test_records_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CompileOptions().fast_math = False


def test_channels_last_is_refused_where_convolutions_are_not():
    class Plain(Target):
        name = "plain"

    class ChannelsLast(Plain):
        channels_last = True

    program = Program()
    main = program.get_main_module()
    main.add_return([main.add_parameter("x", Shape("float32", [2]))])
    with pytest.raises(ParameterError, match=r"use_nhwc requires .* which target 'plain' does not have"):
        program.compile(Plain(), use_nhwc=True)
    program.compile(ChannelsLast(), use_nhwc=True)


def test_another_architecture_is_rejected_without_a_compiler_for_it():
    program = Program()
    module = program.get_main_module()
    module.add_return([module.add(op("neg"), module.add_parameter("x", Shape("float32", [2])))])

    class Here(Target):
        name = "here"

    class Everywhere(Here):
        architectures = True

    with pytest.raises(ParameterError, match="'here' compiles for the machine that it runs on: leave 'gfx1100' out"):
        program.compile(Here(), target="gfx1100")
    program.compile(Everywhere(), target="gfx1100")
    assert program.executable.options.target == "gfx1100"


def test_an_unknown_name_is_answered_by_all_names_or_by_the_command_that_lists_them():
    names = [f"name_{i}" for i in range(FEW)]
    assert suggestion("zzz", names, "list") == f"known are {', '.join(names)}"
    assert suggestion("zzz", [*names, "more"], "list") == (
        f"none of the {FEW + 1} known names is similar (list lists them all)"
    )


def test_a_message_lists_all_options_of_a_frontend():
    pytest.importorskip("mgx_onnx")
    with pytest.raises(ParameterError, match=r"takes no option 'zzz'; known are .*strict"):
        parse_onnx_buffer(b"", zzz=1)
