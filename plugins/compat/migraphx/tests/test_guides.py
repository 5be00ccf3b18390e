"""Code from guides for MIGraphX, verbatim: blocks run one after the other, on an emulated GPU.

The guides' models are replaced by small networks of the same names.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import migraphx
from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.compilers import compiler_for

CONVERT = """
import migraphx

# Parse ONNX model
model = migraphx.parse_onnx("model.onnx")

# Optimize the model
model = migraphx.optimize(model)

# Compile for GPU
context = migraphx.get_gpu_context()
model.compile(context)

# Save the compiled model
model.save("model.migraphx")
"""
TENSORFLOW = """
import migraphx

# Parse TensorFlow model
model = migraphx.parse_tf("model.pb")

# Optimize and compile
model = migraphx.optimize(model)
context = migraphx.get_gpu_context()
model.compile(context)
"""
LEVELS = """
# Default optimization
model = migraphx.optimize(model)

# Aggressive optimization (may change numerical precision)
model = migraphx.optimize(model, {"aggressiveness": 2})
"""
ARCHITECTURE = """
# Get GPU context
context = migraphx.get_gpu_context()

# Compile with target-specific optimizations
model.compile(context, {"target": "gfx1100"})  # For RDNA 3 GPUs (RX 7000 series)
"""
TUNING = """
# Set tuning parameters
tuning_params = {
    "exhaustive_tune": True,  # Perform exhaustive tuning (slower compilation, faster runtime)
    "fast_math": True,        # Use fast math operations (may reduce precision)
    "use_fp16": True,         # Use FP16 where possible
    "use_nhwc": True          # Use NHWC layout for convolutional operations
}

# Compile with tuning parameters
model.compile(context, tuning_params)
"""
BATCHES = """
import migraphx
import numpy as np
import time

# Load model
model = migraphx.load("model.migraphx")

# Test different batch sizes
batch_sizes = [1, 2, 4, 8, 16, 32, 64]
results = {}

for batch_size in batch_sizes:
    # Create input data
    input_shape = list(model.get_parameter_shapes()[0])
    input_shape[0] = batch_size  # Set batch dimension
    input_data = np.random.random(input_shape).astype(np.float32)

    # Warm-up
    for _ in range(10):
        model.run({"input": migraphx.argument(input_data)})

    # Benchmark
    times = []
    for _ in range(100):
        start = time.time()
        model.run({"input": migraphx.argument(input_data)})
        times.append(time.time() - start)

    # Calculate throughput (samples/second)
    avg_time = sum(times) / len(times)
    throughput = batch_size / avg_time
    results[batch_size] = throughput

    print(f"Batch size: {batch_size}, Throughput: {throughput:.2f} samples/sec")

# Find optimal batch size
optimal_batch_size = max(results, key=results.get)
print(f"Optimal batch size: {optimal_batch_size}")
"""
FP16 = """
import migraphx

# Load model
model = migraphx.parse_onnx("model.onnx")

# Quantize to FP16
model = migraphx.quantize_fp16(model)

# Compile for GPU
context = migraphx.get_gpu_context()
model.compile(context)

# Save quantized model
model.save("model_fp16.migraphx")
"""
INT8 = """
import migraphx
import numpy as np

# Load model
model = migraphx.parse_onnx("model.onnx")

# Prepare calibration data
calibration_data = []
for i in range(100):
    # Generate representative input data
    input_data = np.random.random((1, 3, 224, 224)).astype(np.float32)
    calibration_data.append({"input": migraphx.argument(input_data)})

# Quantize to INT8
model = migraphx.quantize_int8(model, calibration_data)

# Compile for GPU
context = migraphx.get_gpu_context()
model.compile(context)

# Save quantized model
model.save("model_int8.migraphx")
"""
MEMORY = """
# Set memory planning parameters
memory_params = {
    "memory_reuse": True,      # Enable memory reuse
    "aggressive_memory": True  # Aggressively reuse memory (may affect performance)
}

# Compile with memory parameters
model.compile(context, memory_params)
"""
FOOTPRINT = """
# Efficient input/output handling
input_data = np.random.random((1, 3, 224, 224)).astype(np.float32)
input_arg = migraphx.argument(input_data)

# Reuse the same input argument for multiple runs
for _ in range(100):
    result = model.run({"input": input_arg})
    # Process result without copying back to CPU if possible
    output = np.array(result[0])
"""
FUSED = """
# Print the optimized program to see fused operators
print(model)
"""
RULES = """
# Define custom fusion rules
fusion_rules = {
    "conv_bias_relu": True,  # Fuse convolution + bias + ReLU
    "conv_bias": True,       # Fuse convolution + bias
    "conv_relu": True        # Fuse convolution + ReLU
}

# Apply custom fusion rules during optimization
model = migraphx.optimize(model, {"fusion_rules": fusion_rules})
"""
BENCHMARK = """
import migraphx
import numpy as np
import time

# Load model
model = migraphx.load("model.migraphx")

# Get input shape
input_shape = model.get_parameter_shapes()[0]
input_name = model.get_parameter_names()[0]

# Create input data
input_data = np.random.random(input_shape).astype(np.float32)
input_arg = migraphx.argument(input_data)

# Warm-up
for _ in range(10):
    model.run({input_name: input_arg})

# Benchmark
times = []
for _ in range(100):
    start = time.time()
    model.run({input_name: input_arg})
    times.append(time.time() - start)

# Calculate statistics
avg_time = sum(times) / len(times)
min_time = min(times)
max_time = max(times)
std_time = np.std(times)

print(f"Average inference time: {avg_time * 1000:.2f} ms")
print(f"Min inference time: {min_time * 1000:.2f} ms")
print(f"Max inference time: {max_time * 1000:.2f} ms")
print(f"Std inference time: {std_time * 1000:.2f} ms")
"""
DEBUGGING = """
# Enable debug output
import logging
logging.basicConfig(level=logging.DEBUG)

# Print model information
print(model)

# Print parameter shapes
for i, name in enumerate(model.get_parameter_names()):
    shape = model.get_parameter_shapes()[i]
    print(f"Parameter {name}: {shape}")

# Print output shapes
for i, shape in enumerate(model.get_output_shapes()):
    print(f"Output {i}: {shape}")
"""
INCEPTION = """
# import migraphx and numpy
import migraphx
import numpy as np
# import and parse inception model
model = migraphx.parse_onnx("inceptioni1.onnx")
# compile model for the GPU target
model.compile(migraphx.get_target("gpu"))
# optionally print compiled model
model.print()
# create random input image
input_image = np.random.rand(1, 3, 299, 299).astype('float32')
# feed image to model, 'x.1` is the input param name
results = model.run({'x.1': input_image})
# get the results back
result_np = np.array(results[0])
# print the inferred class of the input image
print(np.argmax(result_np))
"""


@pytest.fixture
def here(tmp_path, monkeypatch, emulated, small_network):
    """Returns a folder with the guides' models."""
    onnx.save(small_network([1, 3, 224, 224], 32), tmp_path / "model.onnx")
    onnx.save(small_network([1, 3, 299, 299], 32, "x.1"), tmp_path / "inceptioni1.onnx")
    onnx.save(small_network([1, 3, 8, 8], 2), tmp_path / "small.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*blocks: str) -> dict:
    """Runs blocks one after the other; returns the names that they define."""
    scope: dict = {}
    for n, block in enumerate(blocks):
        exec(compile(block, f"block {n}", "exec"), scope)
    return scope


def test_converting_levels_and_parameters_of_compilation(here) -> None:
    ran(CONVERT)
    assert migraphx.load("model.migraphx").is_compiled()
    tuned = ran(CONVERT, LEVELS, TUNING)["model"]
    assert tuned.is_compiled()
    x = np.ones((1, 3, 224, 224), np.float32)
    plain = migraphx.load("model.migraphx").run({"input": x})[0]
    np.testing.assert_allclose(np.array(tuned.run({"input": x})[0]), np.array(plain), rtol=0.02, atol=0.02)


def test_a_named_architecture(here) -> None:
    try:
        compiler_for("gfx1100")
    except DeviceError as error:
        pytest.skip(str(error))
    model = ran(CONVERT, LEVELS, ARCHITECTURE)["model"]
    assert model.is_compiled()
    assert model.core.executable.options.target == "gfx1100"


def test_memory_fused_operators_and_rules(here, capsys) -> None:
    model = ran(CONVERT, MEMORY, "import numpy as np", FOOTPRINT, FUSED, RULES)["model"]
    assert "convolution" in capsys.readouterr().out
    assert not model.is_compiled()


def test_eight_bits(here) -> None:
    ran(INT8)
    quantized, plain = migraphx.load("model_int8.migraphx"), migraphx.parse_onnx("model.onnx")
    assert quantized.is_compiled()
    plain.compile(migraphx.get_target("ref"))
    x = np.random.default_rng(0).random((1, 3, 224, 224)).astype(np.float32)
    wanted = np.array(plain.run({"input": x})[0])
    np.testing.assert_allclose(np.array(quantized.run({"input": x})[0]), wanted, atol=0.1 * abs(wanted).max())


def test_half_precision(here) -> None:
    ran(FP16)
    assert migraphx.load("model_fp16.migraphx").is_compiled()


def test_benchmarks_and_debugging(here, capsys) -> None:
    ran(CONVERT, BENCHMARK)
    before = logging.getLogger().handlers[:]
    ran(CONVERT, DEBUGGING)
    logging.getLogger().handlers[:] = before
    out = capsys.readouterr().out
    assert "Average inference time: " in out
    assert "Parameter input: float_type, {1, 3, 224, 224}, {150528, 50176, 224, 1}" in out
    assert "Output 0: float_type, {1, 10}, {10, 1}" in out


def test_a_sweep_over_batch_sizes_on_a_model_of_batch_1(here, capsys) -> None:
    small = migraphx.parse_onnx("small.onnx")
    small.compile(migraphx.get_target("ref"))
    small.save("model.migraphx")
    scope = ran(BATCHES)
    assert sorted(scope["results"]) == [1, 2, 4, 8, 16, 32, 64]
    assert "Optimal batch size: " in capsys.readouterr().out
    whole = scope["model"].run({"input": scope["input_data"]})[0]
    one = scope["model"].run({"input": scope["input_data"][:1]})[0]
    assert whole.get_shape().lens() == [64, 10]
    np.testing.assert_allclose(np.array(whole)[:1], np.array(one), rtol=1e-5, atol=1e-5)


def test_inception(here, capsys) -> None:
    scope = ran(INCEPTION)
    model = migraphx.parse_onnx("inceptioni1.onnx")
    model.compile(migraphx.get_target("ref"))
    wanted = np.array(model.run({"x.1": scope["input_image"]})[0])
    np.testing.assert_allclose(scope["result_np"], wanted, rtol=1e-4, atol=1e-4)
    assert capsys.readouterr().out.split()[-1] == str(np.argmax(wanted))


def test_saving_with_tuning_and_running_from_the_shell(here) -> None:
    """``migraphx-driver compile --onnx resnet50.onnx ... --output resnet50.mxr``, then ``run --migraphx resnet50.mxr``."""
    (here / "model.onnx").rename(here / "resnet50.onnx")
    command = Path(sys.executable).with_name("migraphx-driver")
    for words in (
        "compile --onnx resnet50.onnx --enable-offload-copy --binary --output resnet50.mxr",
        "run --migraphx resnet50.mxr --enable-offload-copy",
    ):
        done = subprocess.run([command, *words.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert migraphx.load("resnet50.mxr").is_compiled()


def test_tensorflow(here) -> None:
    messages = pytest.importorskip("mgx_tf.wire.messages")
    graph = messages.message("GraphDef")()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for extent in (2, 3):
        x.attr["shape"].shape.dim.add(size=extent)
    graph.node.add(name="y", op="Relu", input=["x"]).attr["T"].type = 1
    (here / "model.pb").write_bytes(graph.SerializeToString())
    model = ran(TENSORFLOW)["model"]
    assert model.run({"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32)})[0].tolist() == [1, 0, 3, 0, 5, 0]
