"""Converters of single operators against torch: samples of torch's own tests, by overload."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

spec = importlib.util.spec_from_file_location("overloads", Path(__file__).with_name("overloads.py"))
assert spec is not None
assert spec.loader is not None
overloads = sys.modules["overloads"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(overloads)

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
# (relative, absolute) of results of a type: what torch.testing.assert_close takes, rounded up for sums in another order
TOLERANCE = {
    torch.float32: (1e-5, 2e-5), torch.float64: (1e-7, 1e-7), torch.bfloat16: (1.6e-2, 1e-2), torch.float16: (2e-3, 1e-3),
}  # fmt: skip
# operators whose converters refuse what the samples ask, or whose results are not defined; each with its reason
REFUSED = (
    "divisor_override and ceil_mode", "average pooling of", "positions that adaptive max pooling", "depends on data",
    "mode 'edge' has nothing to repeat", "as_strided", "needs a", "draws from torch",
)  # fmt: skip
UNDEFINED = ("empty", "as_strided", "sort", "topk", "kthvalue", "native_batch_norm")
OPS = sorted({op.name: op for op in op_db if op.dtypes}.values(), key=lambda op: str(op.name))


def known(func: Any) -> bool:
    """True if a converter takes real tensors; samples with complex ones are skipped."""
    name = func._schema.name.partition("::")
    return any(overloads.CONVERTERS.find(name[0], p, 1) for p in (f"{name[2]}.{func._overloadname}", name[2]))


def skipped(func: Any, args: Any, kwargs: Any) -> bool:
    tags = func.tags
    return (
        func._schema.is_mutable
        or torch.Tag.nondeterministic_seeded in tags
        or torch.Tag.dynamic_output_shape in tags
        or torch.Tag.data_dependent_output in tags
        or any(word in str(func) for word in UNDEFINED)
        or any(isinstance(x, torch.Tensor) and x.is_complex() for x in tree_leaves((args, kwargs)))
        or not known(func)
    )


# what differs from torch, and why, by overload: all else agrees, and an entry of which no sample of these operators differs is stale
ROUNDING = "torch rounds to bfloat16 between its steps, mgx once or elsewhere"
LIMITS = "linspace between limits that are tensors is not converted"
DIFFERENT = {
    ("addbmm", "aten.addbmm.default"): ROUNDING,
    ("baddbmm", "aten.baddbmm.default"): ROUNDING,
    ("grid_sampler_2d", "aten.grid_sampler_2d.default"): ROUNDING,
    ("grid_sampler_3d", "aten.grid_sampler_3d.default"): ROUNDING,
    ("linspace", "aten.linspace.Tensor_Scalar"): LIMITS,
    ("linspace", "aten.linspace.Tensor_Tensor"): LIMITS,
    ("nn.functional.adaptive_avg_pool3d", "aten._adaptive_avg_pool3d.default"): ROUNDING,
    ("nn.functional.conv_transpose3d", "aten.convolution.default"): ROUNDING,
    ("nn.functional.grid_sample", "aten.grid_sampler_2d.default"): ROUNDING,
    ("nn.functional.logsigmoid", "aten.log_sigmoid_forward.default"): "its second result is a buffer of torch's own, which only its backward reads",
    ("nn.functional.multilabel_soft_margin_loss", "aten.log_sigmoid_forward.default"): "its second result is a buffer of torch's own, which only its backward reads",
}  # fmt: skip


@pytest.mark.parametrize("target", ["ref", pytest.param("cpu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(12))
def test_samples_of_torchs_own_tests(part: int, target: str) -> None:
    """All calls that the samples make agree, but for those that are named; each name is still needed for `ref`."""
    done, wrong, seen = 0, [], set()
    for op in OPS[part::12]:
        for dtype in TYPES:
            if dtype not in op.dtypes:
                continue
            torch.manual_seed(0)
            numpy.random.seed(0)
            try:
                samples = [s for s, _ in zip(op.sample_inputs("cpu", dtype), range(2), strict=False)]
            except Exception:  # torch's generators fail where a library is absent
                continue
            for sample in samples:
                found, mistakes = tried(op, sample, target)
                done += found
                seen |= {(op.name, m.partition(":")[0]) for m in mistakes}
                wrong += [m for m in mistakes if (op.name, m.partition(":")[0]) not in DIFFERENT]
    assert done > 20
    assert not wrong, wrong
    names = {op.name for op in OPS[part::12]}
    stale = [key for key in DIFFERENT if key[0] in names and key not in seen]
    assert target != "ref" or not stale, f"these agree now, take them out of DIFFERENT: {stale}"


def tried(op: Any, sample: Any, target: str) -> tuple[int, list[str]]:
    try:
        calls = list(overloads.recorded(lambda: op(sample.input, *sample.args, **sample.kwargs)))
    except Exception:  # samples that this build of torch does not run
        return 0, []
    done, wrong = 0, []
    for func, args, kwargs, want in calls:
        if skipped(func, args, kwargs):
            continue
        done += 1
        try:
            compare(overloads.computed(func, args, kwargs, target), want)
        except Exception as error:
            if not any(word in str(error) for word in REFUSED):
                wrong.append(f"{func}: {type(error).__name__}: {str(error)[:200]}")
    return done, wrong


def compare(got: Any, want: Any) -> None:
    for a, b in zip(got, want if isinstance(want, (tuple, list)) else [want], strict=True):
        if isinstance(b, torch.Tensor) and a is not None:
            relative, absolute = TOLERANCE.get(b.dtype, (0, 0))
            torch.testing.assert_close(a, b, rtol=relative, atol=absolute, equal_nan=True, check_stride=False)
