"""Convolutions by MIOpen on a recording fake; they have never run on the library itself."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_core import dtype
from mgx_core.errors import DeviceError, No, ParameterError
from mgx_gpu_hip.library import Activation, ConvProblem
from mgx_gpu_hip.library.miopen import MIOpen, MIOpenPlan, activation_mode

RELU = Activation("relu")


class FakeMIOpen:
    """Returns handles, offers two solutions, records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fail: dict[str, int] = {}
        self.next = 0x100

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("miopen"):
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.calls.append((name, args))
            if "Create" in name:
                self.next += 1
                next(a for a in args if hasattr(a, "contents")).contents.value = self.next
            elif name == "miopenConvolutionForwardGetSolutionCount":
                args[-1].contents.value = 2
            elif name == "miopenConvolutionForwardGetSolution":
                args[-2].contents.value = args[-3]
                for i in range(args[-3]):
                    args[-1][i].id, args[-1][i].workspace = 40 + i, 512 * i
            return self.fail.get(name, 0)

        return call

    def args(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args in self.calls if called == name]


def test_a_plain_convolution_runs_in_immediate_mode() -> None:
    fake = FakeMIOpen()
    problem = ConvProblem((2, 8, 6, 6), 16, (3, 3), (2, 2), pads=((1, 1), (1, 1)), groups=2)
    plan = MIOpen(fake).plan(problem)
    assert isinstance(plan, MIOpenPlan)
    x, w, y, _ = fake.args("miopenSetTensorDescriptor")
    assert (x[1], list(x[3]), list(x[4])) == (0, [2, 8, 6, 6], [288, 1, 48, 8])
    assert list(w[3]) == [16, 4, 3, 3] and list(y[3]) == [2, 16, 3, 3]
    (conv,) = fake.args("miopenInitConvolutionNdDescriptor")
    assert (conv[1], list(conv[2]), list(conv[3]), list(conv[4]), conv[5]) == (2, [1, 1], [2, 2], [1, 1], 0)
    assert fake.args("miopenSetConvolutionGroupCount")[0][1] == 2
    plan.launch(0x5, x=1, w=2, y=3)
    plan.launch(0x5, x=1, w=2, y=3)
    run = fake.args("miopenConvolutionForwardImmediate")[0]
    assert (run[2], run[4], run[7], run[8], run[9], run[10]) == (2, 1, 3, None, 0, 40)
    assert len(fake.args("miopenSetStream")) == 1
    assert plan.choice == {"library": "miopen", "solution": 40, "workspace": 0}


def test_plans_and_saved_choices() -> None:
    fake = FakeMIOpen()
    problem = ConvProblem((1, 8, 6, 6), 8, (1, 1))
    plans = MIOpen(fake).plans(problem)
    assert not isinstance(plans, No) and [p.solution for p in plans] == [40, 41]
    with pytest.raises(ParameterError, match="workspace of 512"):
        plans[1].launch(0, x=1, w=2, y=3)
    fake = FakeMIOpen()
    again = MIOpen(fake).plan(problem, plans[1].choice)
    assert isinstance(again, MIOpenPlan) and again.solution == 41
    assert not fake.args("miopenConvolutionForwardGetSolution")


def test_bias_and_activation_are_a_fusion_plan() -> None:
    fake = FakeMIOpen()
    plan = MIOpen(fake).plan(ConvProblem((1, 8, 6, 6), 8, (1, 1), epilogue=("bias", Activation("relu", high=6.0))))
    assert isinstance(plan, MIOpenPlan)
    assert fake.args("miopenCreateOpActivationForward")[0][2] == 7
    assert fake.args("miopenSetOpArgsActivForward")[0][4:] == (6.0, 0.0, 0.0)
    with pytest.raises(ParameterError, match="bias"):
        plan.launch(0, x=1, w=2, y=3)
    plan.launch(0, x=1, w=2, y=3, bias=4)
    assert fake.args("miopenSetOpArgsConvForward")[0][4] == 2 and fake.args("miopenSetOpArgsBiasForward")[0][4] == 4
    run = fake.args("miopenExecuteFusionPlan")[0]
    assert (run[3], run[5]) == (1, 3)
    fake.fail["miopenExecuteFusionPlan"] = 5
    with pytest.raises(DeviceError, match=r"miopenExecuteFusionPlan: internal error \(5\)"):
        plan.launch(0, x=1, w=2, y=3, bias=4)


def test_activation_modes() -> None:
    assert activation_mode(RELU) == (3, 0.0, 0.0, 0.0)
    assert activation_mode(Activation("relu", slope=0.1)) == (8, 0.1, 0.0, 0.0)
    assert activation_mode(Activation("gelu_erf")) is None


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"epilogue": ("residual",)}, "fuses a bias"),
        ({"epilogue": ("bias", Activation("swish"))}, "no activation swish"),
        ({"pads": ((0, 1), (0, 1))}, "equal padding"),
        ({"pads": ((-1, -1), (0, 0))}, "at least 0"),
        ({"alpha": 0.5}, "does not scale"),
        ({"dtype": dtype.int64}, "element type"),
    ],
)
def test_refusals(given: Any, word: str) -> None:
    answer = MIOpen(FakeMIOpen()).plan(ConvProblem(**{"dims": (1, 8, 6, 6), "filters": 8, "kernel": (1, 1)} | given))
    assert isinstance(answer, No) and word in answer.why


def test_a_library_that_declines_is_a_refusal() -> None:
    fake = FakeMIOpen()
    fake.fail["miopenCompileFusionPlan"] = 8
    answer = MIOpen(fake).plan(ConvProblem((1, 8, 6, 6), 8, (1, 1), epilogue=("bias",)))
    assert isinstance(answer, No) and "miopenCompileFusionPlan: unsupported operation (8)" in answer.why
