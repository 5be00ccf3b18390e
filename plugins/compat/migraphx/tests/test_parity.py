"""Every row of docs/migraphx.md, tried: members, call forms, commands and flags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import migraphx
from mgx_core.driver import main as driver

PAGE = Path(__file__).parents[4] / "docs" / "migraphx.md"

# classes, functions and members by name
MEMBERS: Final[dict[str, str]] = {
    "shape": "type lens strides ndim elements bytes type_string type_size dyn_dims packed transposed broadcasted standard "
    "scalar dynamic type_t dynamic_dimension",
    "argument": "get_shape data_ptr tolist save load",
    "instruction_ref": "shape op inputs outputs name get_literal",
    "module": "print add_instruction add_literal add_parameter add_return replace_return add_macro insert_macro",
    "program": "get_parameter_names get_parameter_shapes get_output_shapes is_compiled compile get_main_module create_module "
    "run run_async to_py sort print",
    "op": "name values pooling_mode rnn_direction",
    "macro": "name options",
    "": "target parse_onnx parse_onnx_buffer parse_tf get_onnx_operators load save save_buffer load_buffer get_target "
    "create_argument generate_argument fill_argument argument_from_pointer quantize_fp16 quantize_bf16 quantize_int8 "
    "quantize_fp8 autocast_fp8 allocate_gpu to_gpu from_gpu gpu_sync __version__",
}

# call forms, with `m` for the module, `p` for a compiled program of x float[2, 3], `f` for a model file
TRIED: Final = (
    "m.shape(type='int64_t', lens=[2], strides=[1])",
    "m.shape(lens=[2, 3], permutation=[1, 0])",
    "m.shape(type='float', dyn_dims=[m.shape.dynamic_dimension(1, 4, {2, 4})])",
    "m.shape() == m.shape() and m.shape(lens=[2]) != m.shape(lens=[3])",
    "int(m.shape.type_t.float_type) == 2 and len(m.shape.type_t.__members__) == 17",
    "repr(m.shape(lens=[2, 3])) == 'float_type, {2, 3}, {3, 1}'",
    "m.shape.dynamic_dimension() and m.shape.dynamic_dimension(1, 4).is_fixed() is False",
    "memoryview(m.argument(numpy.zeros(3))) and m.argument(numpy.ones(2)) == m.argument(numpy.ones(2))",
    "m.create_argument(m.shape(lens=[2]), [1, 2]).tolist() == [1, 2]",
    "m.generate_argument(s=m.shape(lens=[2]), seed=1) and m.fill_argument(s=m.shape(lens=[2]), value=3)",
    "m.argument_from_pointer(m.shape(lens=[2], type='double'), m.argument(numpy.zeros(2)).data_ptr())",
    "isinstance(m.get_target('ref'), m.target)",
    "hash(p.get_main_module()) and [hash(i) for i in p.get_main_module()]",
    "m.program() == m.program() and repr(p)",
    "m.parse_onnx(f).compile(t=m.get_target('ref'), offload_copy=True, fast_math=False, exhaustive_tune=False)",
    "m.parse_onnx(f).compile(m.get_target('ref'), True, True)",
    "m.parse_onnx(filename=f, default_dim_value=2)",
    "m.parse_onnx(f, default_dyn_dim_value=m.shape.dynamic_dimension(1, 4), dim_params={}, map_input_dims={})",
    "m.parse_onnx(f, map_dyn_input_dims={}, skip_unknown_operators=True, print_program_on_error=True)",
    "m.parse_onnx(f, max_loop_iterations=5, limit_max_iterations=9, use_debug_symbols=True)",
    "m.parse_onnx(f, 0, m.shape.dynamic_dimension(1, 1), {}, {}, {}, False, False, 10, 65535, False)",
    "m.parse_onnx_buffer(filename=bytes_of(f), external_data_path='')",
    "m.load_buffer(b=m.save_buffer(p=p))",
    "m.save(p=p, filename=f + '.mxr', format='msgpack') or m.load(filename=f + '.mxr', format='msgpack')",
    "m.save(p, f + '.json', 'json') or m.load(f + '.json', 'json')",
    "p.run({'x': numpy.zeros((2, 3), numpy.float32), 'other': 1})",
    "m.op('pooling', mode=1, padding=[0, 0], stride=[1, 1], lengths=[1, 1]).values()['mode'] == 1",
    "m.op('convert', target_type=2).name() == 'convert'",
    "m.op('reduce_mean', axes=[0]) == m.op('reduce_mean', axes=[0])",
    "int(m.op.pooling_mode.max) == 1 and int(m.op.rnn_direction.reverse) == 1",
    "m.macro('gemm', alpha=2.0).options() == {'alpha': 2.0}",
    "m.quantize_fp16(prog=m.parse_onnx(f), ins_names=['all'])",
    "m.quantize_bf16(prog=m.parse_onnx(f), ins_names=['all'])",
    "m.quantize_int8(prog=m.parse_onnx(f), t=m.get_target('ref'), calibration=[], ins_names=['dot', 'convolution'])",
    "m.quantize_fp8(prog=m.parse_onnx(f), t=m.get_target('ref'), calibration=[])",
    "m.autocast_fp8(prog=m.parse_onnx(f))",
    "exec(m.parse_onnx(f).to_py(), {})",
)

COMMANDS: Final = ["read", "params", "compile", "run", "time", "perf", "verify", "op", "onnx", "tf"]

# flags, by a command that has them
FLAGS: Final[dict[str, str]] = {
    "read": "--test --onnx --tf --migraphx --migraphx-json --batch --input-dim --dyn-input-dim --dim-param --default-dyn-dim "
    "--nhwc --nchw --output-names --skip-unknown-operators --debug-symbols --trim -t --trim-size -s --optimize -O --apply-pass "
    "-p --replace-literals --strip-context --graphviz -g --brief --cpp --python --py --json --text --binary --netron --output "
    "-o --log-level --log-file",
    "compile": "--gpu --cpu --ref --enable-offload-copy --disable-fast-math --exhaustive-tune --fp16 --bf16 --int8 --fp8 "
    "--int4-weights",
    "run": "--fill0 --fill1 --load-arg",
    "verify": "--rms-tol --atol --rtol -i --per-instruction -r --reduce -b --bisect --ref-use-double --compiled-model -c",
    "perf": "--iterations -n --detailed -d",
    "time": "--iterations -n",
    "op": "--list -l",
    "onnx": "--list -l",
    "tf": "--list -l",
}

# rows that hold in part, and why
PARTLY: Final[dict[str, str]] = {
    ".mxr and .json files": "own format, checked and sealed; neither program reads the other's files",
    "shapes of instructions": "row-major: strides of views are the compiler's, and appear when it has laid values out",
    "strides of arguments": "arrays of any strides are taken, also where MIGraphX wants those of the parameter",
    "--mlir": "there is no MLIR here; whole groups are kernels without it",
    "roctx": "needs AMD's profiler; `--trace FILE` of perf writes what Perfetto shows",
    "MIGRAPHX_* variables": "not read; options, and the five MGX_* variables of the guide, do what has an effect here",
    "fpga": "no such target",
    "run_on_target": "Python: `mgx_core.Program.compile` takes several targets; MIGraphX's own module has no such call either",
    "operations load, outline, as_shape": "parts of MIGraphX's lowered programs; lowering here has launches instead",
    "compile_options as a C++ class": "its private class is not behind the handle, which is a number here",
    "gqa_rotary_embedding num_heads": "refused: every head of the input is turned",
    "dynamic_range max_output": "refused: the result has as many elements as the inputs say",
}


@pytest.fixture
def scope(tmp_path) -> dict:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    program = migraphx.parse_onnx(str(path))
    program.compile(migraphx.get_target("ref"))
    return {"m": migraphx, "p": program, "f": str(path), "numpy": numpy, "bytes_of": lambda f: Path(f).read_bytes()}


@pytest.mark.parametrize("name", list(MEMBERS))
def test_members(name) -> None:
    of = getattr(migraphx, name) if name else migraphx
    assert [w for w in MEMBERS[name].split() if not hasattr(of, w)] == []


@pytest.mark.parametrize("expression", TRIED)
def test_call_forms(expression, scope) -> None:
    assert eval(expression, scope) is not False


def test_commands_and_flags() -> None:
    runner, missing = CliRunner(), []
    for command in COMMANDS:
        said = runner.invoke(driver, [command, "--help"])
        words = set(re.findall(r"(?<!\S)--?[a-z0-9-]+", said.output.replace(",", " "), re.IGNORECASE))
        missing += [f"{command} {f}" for f in FLAGS.get(command, "").split() if f not in words]
        assert said.exit_code == 0, command
    assert missing == []


def test_the_page_counts_the_rows_and_gives_the_reasons() -> None:
    page = PAGE.read_text()
    counted = {
        "classes, functions and members": sum(len(v.split()) for v in MEMBERS.values()) + len(MEMBERS) - 1,
        "call forms": len(TRIED),
        "driver: commands": len(COMMANDS),
        "driver: flags": sum(len(v.split()) for v in FLAGS.values()),
    }
    for subject, rows in counted.items():
        assert f"| {subject} | {rows} | {rows} | 0 |" in page
    for subject, reason in PARTLY.items():
        assert f"| {subject} | {reason} |" in page
