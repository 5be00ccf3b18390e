"""Models quantized by torch, run by mgx: errors relative to torch, and how much of them uses integer arithmetic.

    python -m benchmarks.torch_quantized [--target cpu] [NAME ...]

Needs torchao.  NAME is ARCHITECTURE:METHOD, an architecture of `benchmarks.zoo` and one of the methods

    x86, xnnpack       PT2E, static: per channel weights, by the quantizers of those names
    dynamic            `quantize_` with Int8DynamicActivationInt8WeightConfig
    int8               `quantize_` with Int8WeightOnlyConfig
    int4               `quantize_` with IntxWeightOnlyConfig of 4 bits in groups of 32

One line per model: the largest difference from torch's result of the quantized graph, relative to the largest value, the same
of norms, and that of torch's float32 result from the quantized graph's; convolutions and products of the model, and how many
of them are launches with integer arithmetic (dynamic, static) or with coded weights (weight-only).
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from typing import Any

import torch
from torch import nn

import mgx_torch
from benchmarks.zoo.architectures import ARCHITECTURES, make
from mgx_core import Program, get_target

MODELS = (
    "resnet50:x86", "resnet50:xnnpack", "BertModel:x86", "BertModel:dynamic", "BertModel:int8", "BertModel:int4",
    "LlamaForCausalLM:dynamic", "LlamaForCausalLM:int8", "LlamaForCausalLM:int4",
)  # fmt: skip
CALIBRATION = 3  # inputs
FLOATING = ("convolution", "dot")
NARROW = ("quant_convolution", "quant_dot", "dequant_dot")
KINDS = re.compile(r"^(?:group\[tag=\")?(\w*convolution|\w*dot)\b")  # of a launch, or of a group's anchor


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="cpu")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for entry in given.names or MODELS:
        name, _, method = entry.partition(":")
        try:
            print(f"{entry:28} {checked(name, method, given.target)}", flush=True)
        except Exception as error:  # continue with the table
            print(f"{entry:28} FAILED {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True)


def checked(name: str, method: str, target: str) -> str:
    """Returns differences and counts of one model."""
    module, inputs = make(ARCHITECTURES[name], 1)
    values = list(inputs.values())
    with torch.no_grad():
        plain = module(*values)
        quantized = (static if method in ("x86", "xnnpack") else weights)(module, values, name, method)
        want = quantized(*values)
        exported = torch.export.export(quantized, tuple(values))
    program = mgx_torch.from_exported(exported)
    program.compile(get_target(target))
    feeds = {n: v.numpy() for n, v in zip(names_of(exported), values, strict=True)}
    got = torch.from_numpy(program.run({n: v for n, v in feeds.items() if n in program.get_parameter_names()})[0].value)
    narrow, wide = counted(program)
    return (
        f"{float((got - want).abs().max() / want.abs().max()):.1e} norm {float((got - want).norm() / want.norm()):.1e} "
        f"float32 {float((plain - want).norm() / want.norm()):.1e} narrow {narrow} of {narrow + wide}"
    )


def names_of(exported: Any) -> list[str]:
    return [s.arg.name for s in exported.graph_signature.input_specs if s.kind.name == "USER_INPUT"]


def counted(program: Program) -> tuple[int, int]:
    """Returns the counts of products and convolutions of a compiled program: with integer arithmetic or coded weights, and
    others.
    """
    assert program.executable is not None
    found = Counter(
        word for i in program.executable.instances() for p in i.placements for word in KINDS.findall(p.op)[:1]
    )
    return sum(found[n] for n in NARROW), sum(found[n] for n in FLOATING)


def static(module: nn.Module, values: list[torch.Tensor], name: str, method: str) -> Any:
    """Returns a module quantized by PT2E, calibrated with random inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    traced = torch.export.export(module, tuple(values)).module()
    traced.graph.eliminate_dead_code()  # type: ignore[union-attr]  # the x86 quantizer stumbles over results that nothing reads
    prepared = prepare_pt2e(traced, quantizer(method))
    prepared(*values)
    for seed in range(1, CALIBRATION):
        prepared(*make(ARCHITECTURES[name], 1, seed)[1].values())
    return convert_pt2e(prepared)


def quantizer(method: str) -> Any:
    if method == "x86":
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

    return xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))


def weights(module: nn.Module, values: list[torch.Tensor], name: str, method: str) -> Any:
    """Returns a module whose linear layers torchao has quantized."""
    from torchao import quantization as ao
    from torchao.quantization.granularity import PerGroup

    config = {
        "dynamic": ao.Int8DynamicActivationInt8WeightConfig,
        "int8": ao.Int8WeightOnlyConfig,
        "int4": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    }[method]()
    ao.quantize_(module, config)
    return module


if __name__ == "__main__":
    main()
