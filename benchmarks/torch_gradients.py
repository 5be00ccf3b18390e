"""Gradients of public architectures under ``torch.compile(backend="mgx")``, compared with eager's, in float32.

    python -m benchmarks.torch_gradients [--training] [NAME ...]

One line per architecture: the largest difference of a parameter's gradient, relative to the largest value of that gradient; its
parameter; the same for the whole gradient; and the errors of both against eager in float64, as some gradients differ by
rounding alone.  Then the graphs, operators that mgx runs, and reasons for those that torch runs.  Gradients whose largest value
is below 1e-6 of the overall largest are rounding noise, and are compared only as parts of the whole.

--training: modules in training mode, without dropout; otherwise batch norms use their running statistics.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from benchmarks.zoo.architectures import ARCHITECTURES, make
from mgx_torch.backend import Part, compile_graph
from mgx_torch.options import TorchOptions

TEN = (
    "resnet18", "mobilenetv3_large_100", "convnext_atto", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "BertModel",
    "GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration", "Wav2Vec2Model", "lstm", "gru",
)  # fmt: skip
FLOOR = 1e-6  # of the largest gradient: smaller gradients are rounding noise

Gradients = Mapping[str, torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--training", action="store_true")
    given = parser.parse_args()
    for name in given.names or TEN:
        torch._dynamo.reset()
        try:
            print(f"{name:40} {checked(name, given.training)}", flush=True)
        except Exception as error:  # continue with the table
            print(f"{name:40} FAILED {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True)


def checked(name: str, training: bool) -> str:
    """Returns errors, graphs, and what ran where.  Errors: AssertionError if mgx ran no part of a graph."""
    module, inputs = make(ARCHITECTURES[name], 2)
    values = list(inputs.values())
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    module.train(training)
    wide = copy.deepcopy(module).double()
    exact = gradients(wide, wide, [v.double() if v.is_floating_point() else v for v in values])
    start = copy.deepcopy(module.state_dict())
    want = gradients(module, module, values)
    module.load_state_dict(start)
    parts: list[Part] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(gm, example_inputs, TorchOptions(), parts)

    got = gradients(module, torch.compile(module, backend=backend), values)
    assert set(got) == set(want), f"other parameters have gradients: {sorted(set(got) ^ set(want))}"
    ours = sum(len(part.operators) for part in parts if part.target != "torch")
    assert ours, "mgx ran no part of it"
    kept = sorted({why for part in parts for why in part.reasons})
    worst, where, whole = difference(got, want)
    mine, theirs = difference(got, exact), difference(want, exact)
    return (
        f"{worst:.1e} ({where}) whole {whole:.1e} from float64 {mine[0]:.1e} eager's {theirs[0]:.1e} "
        f"gradients {len(got)} operators {ours} with torch {len(kept)} {kept[:2]}"
    )


def gradients(module: nn.Module, call: Any, values: Sequence[torch.Tensor]) -> Gradients:
    """Returns the parameters' gradients for a fixed cotangent of the first result, a quadratic function of it."""
    module.zero_grad(set_to_none=True)
    out = next(v for v in tree_leaves(call(*values)) if isinstance(v, torch.Tensor))
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    ((out * weights).sum() + out.square().mean()).backward()
    return {n: p.grad.double() for n, p in module.named_parameters() if p.grad is not None}


def difference(got: Gradients, want: Gradients) -> tuple[float, str, float]:
    """Returns the largest relative difference of a gradient, its parameter, and that of the concatenated gradients."""
    top = max(float(g.abs().max()) for g in want.values())
    errors = {
        n: float((got[n] - g).abs().max() / g.abs().max())
        for n, g in want.items()
        if float(g.abs().max()) > FLOOR * top
    }
    where = max(errors, key=lambda n: errors[n])
    return errors[where], where, max(float((got[n] - g).abs().max()) for n, g in want.items()) / top


if __name__ == "__main__":
    main()
