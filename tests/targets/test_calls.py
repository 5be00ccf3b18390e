"""Faulty targets and runners: the message names the target, its class and the member."""

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import PluginError, Runner, Target

PROGRAM = """symbol n
module main
  %x = @param["x"] -> float32[n, 2]
  %1 = exp(%x)
  @return(%1)"""


def compiled_and_run(target):
    program = mgx.parse_program(PROGRAM)
    program.compile(target)
    return program.run({"x": np.zeros((3, 2), np.float32)})


def target_with(**members):
    return type("Strange", (Target,), {"name": "strange", **members})()


def raises(*args):
    raise KeyError("boom")


@pytest.mark.parametrize(
    "member", ["get_context", "kernels", "passes", "emitter", "runner", "instance_shape", "accept"]
)
def test_members_that_raise(member):
    with pytest.raises(PluginError, match=rf"{member} of target 'strange' \(.*\.Strange\) failed: KeyError: 'boom'"):
        compiled_and_run(target_with(**{member: raises}))


def test_errors_of_mgx_pass():
    def refuses(self, context):
        raise mgx.DeviceError("no such device")

    with pytest.raises(mgx.DeviceError, match=r"^no such device$"):
        compiled_and_run(target_with(kernels=refuses))


@pytest.mark.parametrize(
    ("member", "required"),
    [
        ("emitter", "must return an instance of mgx_core.targets.emission.Emitter or None, got 7"),
        ("instance_shape", r"must return a Shape for float32\[n, 2\], got 7"),
    ],
)
def test_members_that_return_wrong_types(member, required):
    with pytest.raises(PluginError, match=f"{member}.*target 'strange'.* {required}"):
        compiled_and_run(target_with(**{member: lambda *args: 7}))


def runner_that(run):
    made = type("Runs", (Runner,), {} if run is None else {"run": run})()
    return target_with(runner=lambda *args: made)


def test_a_runner_that_cannot_run():
    with pytest.raises(
        PluginError, match=r"target 'strange' returned a Runs, which derives from Runner and must define run"
    ):
        compiled_and_run(runner_that(None))


def test_a_runner_that_raises():
    with pytest.raises(PluginError, match=r"the runner of target 'strange' .* failed: KeyError: 'boom'"):
        compiled_and_run(runner_that(raises))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, "must return a list of 1 value, got None"),
        ([], "must return 1 value, got 0"),
        ([1], r"must return float32\[n, 2\] as result 0, got int 1"),
        ([np.zeros((3, 2))], r"must return float32\[n, 2\] as result 0, got float64\[3, 2\]"),
    ],
)
def test_results_of_another_type(given, error):
    with pytest.raises(PluginError, match=rf"the runner of .*'strange'.* {error}"):
        compiled_and_run(runner_that(lambda self, args: given))


def test_results_are_validated_once_per_instance():
    given = [[np.ones((3, 2), np.float32)], [np.ones((3, 2), np.float32)]]
    target = runner_that(lambda self, args: given.pop())
    program = mgx.parse_program(PROGRAM)
    program.compile(target)
    for _ in range(2):
        assert np.asarray(program.run({"x": np.zeros((3, 2), np.float32)})[0]).tolist() == [[1, 1]] * 3
