"""Models quantized by torchao: results equal torch's, with integer arithmetic or coded weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import mgx_torch
from mgx_core import Program, get_target

ao = pytest.importorskip("torchao.quantization")


def weight_only_4() -> Any:
    from torchao.quantization.granularity import PerGroup

    return ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))


CONFIGURATIONS = {
    "quant_dot": ao.Int8DynamicActivationInt8WeightConfig,
    "dequant_dot[bits=8": ao.Int8WeightOnlyConfig,
    "dequant_dot[bits=4": weight_only_4,
}


def compiled(module: Any, x: torch.Tensor, target: str) -> Program:
    with torch.no_grad():
        program = mgx_torch.from_exported(torch.export.export(module, (x,)))
    program.compile(get_target(target))
    return program


def result(program: Program, x: torch.Tensor) -> torch.Tensor:
    (name,) = program.get_parameter_names()
    return torch.from_numpy(program.run({name: x.numpy()})[0].value)


def kernels(program: Program) -> list[str]:
    assert program.executable is not None
    return [p.op.removeprefix('group[tag="') for p in program.executable.instances()[-1].placements]


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("kernel", CONFIGURATIONS)
def test_linear_layers_of_torchao(kernel: str, target: str) -> None:
    """A single layer if inputs are quantized: after another one, a different order of summation changes them by a whole step."""
    more = [] if kernel == "quant_dot" else [nn.Linear(96, 32)]
    module = nn.Sequential(nn.Linear(128, 96), nn.ReLU(), *more).eval()
    ao.quantize_(module, CONFIGURATIONS[kernel]())
    x = torch.randn(4, 128)
    program = compiled(module, x, target)
    with torch.no_grad():
        want = module(x)
    torch.testing.assert_close(result(program, x), want, rtol=1e-5, atol=1e-5)
    assert sum(k.startswith(kernel) for k in kernels(program)) == 1 + len(more), kernels(program)


def test_scales_of_rows_are_torchs_to_the_last_place() -> None:
    """A scale that differs in its last bit quantizes the largest element of its row to another integer."""
    module = nn.Linear(512, 256).eval()
    ao.quantize_(module, ao.Int8DynamicActivationInt8WeightConfig())
    x = torch.randn(64, 512)
    with torch.no_grad():
        want = module(x)
    torch.testing.assert_close(result(compiled(module, x, "cpu"), x), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", CONFIGURATIONS)
def test_linear_layers_of_torchao_under_torch_compile(kernel: str) -> None:
    module = nn.Linear(128, 96).eval()
    ao.quantize_(module, CONFIGURATIONS[kernel]())
    x = torch.randn(4, 128)
    with torch.no_grad():
        explained = mgx_torch.explain(module, x)
        assert explained.whole, explained
        got = torch.compile(module, backend="mgx")(x)
        torch.testing.assert_close(got, module(x), rtol=1e-5, atol=1e-5)


def test_static_quantization() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(800, 10),
    ).eval()
    x = torch.randn(2, 3, 12, 12)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
        prepared(x)
        quantized = convert_pt2e(prepared)
        want = quantized(x)
    program = compiled(quantized, x, "cpu")
    torch.testing.assert_close(result(program, x), want, rtol=1e-5, atol=1e-5)
    assert sum(k.startswith("quant_convolution") for k in kernels(program)) == 2, kernels(program)
    assert sum(k.startswith("quant_dot") for k in kernels(program)) == 1, kernels(program)
