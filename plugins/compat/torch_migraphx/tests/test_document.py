"""The code of torch_migraphx's documentation, and of a guide that compares with torch, verbatim."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mgx_core
import torch_migraphx


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()


RESNET = """
import torch
import torchvision
import torch_migraphx

resnet = torchvision.models.resnet50()
sample_input = torch.randn(2, 3, 64, 64)
resnet_mgx = torch_migraphx.fx.lower_to_mgx(resnet, [sample_input])
result = resnet_mgx(sample_input)
"""
DENSENET = """
import torch
import torchvision
import torch_migraphx

densenet = torchvision.models.densenet161().cuda()
sample_input = torch.randn(2, 3, 512, 512).cuda()
densenet_mgx = torch.compile(densenet, backend="migraphx")
result = densenet_mgx(sample_input.cuda())
"""
USAGE = """
# FX Tracing
torch_migraphx.fx.lower_to_mgx(torch_model, sample_inputs)

# Dynamo Backend
torch.compile(torch_model, backend="migraphx")
"""
COMPARISON = """
import torch
import migraphx
import numpy as np
import time
import onnx

# Load PyTorch model
pytorch_model = torch.load("model.pt")
pytorch_model.eval().cuda()

# Export to ONNX
dummy_input = torch.randn(1, 3, 224, 224).cuda()
torch.onnx.export(
    pytorch_model,
    dummy_input,
    "model.onnx",
    export_params=True,
    opset_version=12,
    do_constant_folding=True,
    input_names=["input"],
    output_names=["output"]
)

# Load and compile MIGraphX model
migraphx_model = migraphx.parse_onnx("model.onnx")
migraphx_model = migraphx.optimize(migraphx_model)
context = migraphx.get_gpu_context()
migraphx_model.compile(context)

# Create input data
input_data = np.random.random((1, 3, 224, 224)).astype(np.float32)
torch_input = torch.tensor(input_data).cuda()
migraphx_input = migraphx.argument(input_data)

# Benchmark PyTorch
torch.cuda.synchronize()
torch_times = []
for _ in range(100):
    torch.cuda.synchronize()
    start = time.time()
    with torch.no_grad():
        _ = pytorch_model(torch_input)
    torch.cuda.synchronize()
    torch_times.append(time.time() - start)

# Benchmark MIGraphX
migraphx_times = []
for _ in range(100):
    start = time.time()
    _ = migraphx_model.run({"input": migraphx_input})
    migraphx_times.append(time.time() - start)

# Calculate statistics
torch_avg = sum(torch_times) / len(torch_times)
migraphx_avg = sum(migraphx_times) / len(migraphx_times)

print(f"PyTorch average time: {torch_avg * 1000:.2f} ms")
print(f"MIGraphX average time: {migraphx_avg * 1000:.2f} ms")
print(f"Speedup: {torch_avg / migraphx_avg:.2f}x")
"""

TORCHVISION = importlib.util.find_spec("torchvision") is not None
WHOLE = [pytest.mark.slow] if TORCHVISION else []  # its networks take more than 5 s


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the blocks without a GPU and torchvision: on the CPU, with small networks of the same names."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
        monkeypatch.setattr(nn.Module, "cuda", lambda self: self)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    if not TORCHVISION:

        def made() -> nn.Module:
            return nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()

        models = SimpleNamespace(resnet50=made, densenet161=made)
        monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    torch._dynamo.reset()


def ran(block: str, **scope: Any) -> dict[str, Any]:
    exec(compile(block, "block", "exec"), scope)
    return scope


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    "block", [pytest.param(RESNET, id="resnet", marks=WHOLE), pytest.param(DENSENET, id="densenet", marks=WHOLE)]
)
def test_networks(block: str) -> None:
    scope = ran(block)
    model = scope.get("resnet", scope.get("densenet"))
    with torch.no_grad():
        torch.testing.assert_close(scope["result"], model(scope["sample_input"]), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("anywhere")
def test_usage() -> None:
    ran(
        USAGE,
        torch=torch,
        torch_migraphx=torch_migraphx,
        torch_model=network(),
        sample_inputs=[torch.randn(2, 3, 8, 8)],
    )


@pytest.mark.slow
@pytest.mark.usefixtures("anywhere")
def test_comparison_with_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model file contains a whole module, which torch loads only if its classes are declared safe."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("migraphx")
    if not torch.cuda.is_available():
        monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
        monkeypatch.setattr("mgx_core.plugins.manager._manager", [])
    parts = [nn.Sequential, nn.Conv2d, nn.ReLU, nn.AdaptiveAvgPool2d]
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 7, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)), tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    with torch.serialization.safe_globals(parts), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        scope = ran(COMPARISON)
    assert "Speedup: " in capsys.readouterr().out
    with torch.no_grad():
        wanted = scope["pytorch_model"](scope["torch_input"]).cpu().numpy()
    np.testing.assert_allclose(np.array(scope["_"][0]), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", [torch_migraphx.fx.LowerPrecision.FP16, "fp16", "bf16", "fp32"])
def test_lower_precision(precision: Any) -> None:
    model, x = network(), torch.randn(2, 3, 8, 8)
    lowered = torch_migraphx.fx.lower_to_mgx(model, [x], lower_precision=precision, suppress_accuracy_check=True)
    assert isinstance(lowered, torch_migraphx.fx.MGXModule)
    with torch.no_grad():
        torch.testing.assert_close(lowered(x), model(x), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("backend", ["migraphx", "migraphx_pretraced", "migraphx_aot"])
def test_backends(backend: str) -> None:
    torch._dynamo.reset()
    model, x = network(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        got = torch.compile(model, backend=backend, options={"use_aot": True, "deallocate": False})(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


def test_benchmark() -> None:
    model, x = network(), torch.randn(2, 3, 8, 8)
    found = torch_migraphx.fx.tools.mgx_benchmark.benchmark(model, [x], n=2, print_results=False)
    assert found["rate"] > 0


def test_module_around_a_program(tmp_path: Path) -> None:
    model, x = network(), torch.randn(2, 3, 8, 8)
    torch_migraphx.fx.lower_to_mgx(model, [x]).save(tmp_path / "net.mxr")
    module = torch_migraphx.fx.MGXModule(mgx_core.load(tmp_path / "net.mxr"))
    with torch.no_grad():
        torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-4)


def test_int8_is_refused_with_the_way_to_it() -> None:
    with pytest.raises(mgx_core.UnsupportedError, match="quantized module"):
        torch_migraphx.fx.lower_to_mgx(network(), [torch.randn(2, 3, 8, 8)], lower_precision="int8")


def test_other_types_than_modules_are_rejected() -> None:
    with pytest.raises(mgx_core.ParameterError, match=r"takes a torch\.nn\.Module, got function"):
        torch_migraphx.fx.lower_to_mgx(lambda x: x, [torch.ones(2)])


def test_an_exported_module_is_lowered() -> None:
    """Its `eval` raises an error."""
    model, x = network(), torch.randn(2, 3, 8, 8)
    exported = torch.export.export(model, (x,)).module()
    lowered = torch_migraphx.fx.lower_to_mgx(exported, [x])
    with torch.no_grad():
        torch.testing.assert_close(lowered(x), model(x), rtol=1e-4, atol=1e-4)
