"""The code of torch_migraphx's own documentation, on a processor; networks are torch's where torchvision is absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mgx_core
import torch_migraphx


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()


@pytest.mark.slow
def test_lower_resnet50_using_fx_tracing() -> None:
    torchvision = pytest.importorskip("torchvision")
    resnet = torchvision.models.resnet50()
    sample_input = torch.randn(2, 3, 64, 64)
    resnet_mgx = torch_migraphx.fx.lower_to_mgx(resnet, [sample_input])
    result = resnet_mgx(sample_input)
    with torch.no_grad():
        torch.testing.assert_close(result, resnet(sample_input), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_lower_densenet_using_torch_compile() -> None:
    torchvision = pytest.importorskip("torchvision")
    densenet = torchvision.models.densenet161().eval()
    sample_input = torch.randn(2, 3, 512, 512)
    densenet_mgx = torch.compile(densenet, backend="migraphx")
    with torch.no_grad():
        torch.testing.assert_close(densenet_mgx(sample_input), densenet(sample_input), rtol=1e-3, atol=1e-3)


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
