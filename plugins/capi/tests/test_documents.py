"""The C++ program of MIGraphX's introduction, its CMakeLists.txt and its commands, verbatim.

Only characters that the page lost in HTML are restored: "#" and "<>" of includes, "*" of pointers and products.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mgx_c.locations import root

INCEPTION = r"""
#include <vector>
#include <string>
#include <algorithm>
#include <ctime>
#include <random>
#include <migraphx/migraphx.hpp>

int main(int argc, char** argv)
{
    migraphx::program prog;
    migraphx::onnx_options onnx_opts;
    // import and parse onnx file into migraphx::program
    prog = parse_onnx("inceptioni1.onnx", onnx_opts);
    // print imported model
    prog.print();
    migraphx::target targ = migraphx::target("gpu");
    migraphx::compile_options comp_opts;
    comp_opts.set_offload_copy();
    // compile for the GPU
    prog.compile(targ, comp_opts);
    // print the compiled program
    prog.print();
    // randomly generate input image
    // of shape (1, 3, 299, 299)
    std::srand(unsigned(std::time(nullptr)));
    std::vector<float> input_image(1*299*299*3);
    std::generate(input_image.begin(), input_image.end(), std::rand);
    // users need to provide data for the input
    // parameters in order to run inference
    // you can query into migraph program for the parameters
    migraphx::program_parameters prog_params;
    auto param_shapes = prog.get_parameter_shapes();
    auto input        = param_shapes.names().front();
    // create argument for the parameter
    prog_params.add(input, migraphx::argument(param_shapes[input], input_image.data()));
    // run inference
    auto outputs = prog.eval(prog_params);
    // read back the output
    float* results = reinterpret_cast<float*>(outputs[0].data());
    float* max     = std::max_element(results, results + 1000);
    int answer = max - results;
    std::cout << "answer: " << answer << std::endl;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.5)
project (CAI)

set (CMAKE_CXX_STANDARD 14)
set (EXAMPLE inception_inference)

list (APPEND CMAKE_PREFIX_PATH /opt/rocm/hip /opt/rocm)
find_package (migraphx)

message("source file: " ${EXAMPLE}.cpp " ---> bin: " ${EXAMPLE})
add_executable(${EXAMPLE} ${EXAMPLE}.cpp)

target_link_libraries(${EXAMPLE} migraphx::c)
"""

COMMANDS = """
mkdir build
cd build
cmake ..
make -j$(nproc)
./inception_inference
"""


def classifier(path: Path, answer: int) -> None:
    """Saves a network with Inception's input and output that classifies every image as `answer`: pooled colors and a bias."""
    random = np.random.default_rng(0)
    weight = (random.standard_normal((3, 1000)) * 1e-15).astype(np.float32)
    bias = np.zeros(1000, np.float32)
    bias[answer] = 10
    x = helper.make_tensor_value_info("x.1", TensorProto.FLOAT, [1, 3, 299, 299])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1000])
    nodes = [
        helper.make_node("GlobalAveragePool", ["x.1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"]),
    ]
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(made, path)


def test_the_documents_program_builds_by_its_commands_and_runs(tmp_path: Path) -> None:
    """Runs on the emulated GPU, with the model where the program expects it and CMake configured with the package's location."""
    (tmp_path / "inception_inference.cpp").write_text(INCEPTION)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    classifier(tmp_path / "inceptioni1.onnx", 417)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment = kept | {
        "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
        "CMAKE_PREFIX_PATH": str(root()),
        "MGX_GPU_DEVICE": "host",
    }
    commands = COMMANDS.replace("cd build", "cd build; ln -s ../inceptioni1.onnx .")
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "answer: 417"
    assert "x.1" in done.stdout and "@param" in done.stdout
