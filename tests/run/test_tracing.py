"""Runs that report every instruction's value, and the log output that environment variables enable."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ParameterError


def relu_of_sum(**options) -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float", [2, 3]))
    w = main.add_literal(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    s = main.add(mgx.op("dot"), x, main.add(mgx.op("transpose", permutation=(1, 0)), w))
    main.add_return([main.add(mgx.op("softmax", axis=1), s), x])
    program.compile(mgx.get_target("ref"), optimize=False, **options)
    return program


def test_every_instruction_with_its_value_in_order() -> None:
    x = np.array([[1, 0, 2], [0, -1, 1]], np.float32)
    seen = []
    results = relu_of_sum().run_trace({"x": x}, lambda ins, value: seen.append((ins, value.to_numpy())))
    assert [ins.name for ins, _ in seen] == ["@param", "@literal", "transpose", "dot", "softmax"]
    scores = x @ np.array([[1, 4], [2, 5], [3, 6]], np.float32)
    np.testing.assert_array_equal(seen[0][1], x)
    np.testing.assert_array_equal(seen[3][1], scores)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(seen[4][1], powers / powers.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(results[0].to_numpy(), seen[4][1])


def test_extents_that_vary() -> None:
    program = _open()
    program.compile(mgx.get_target("ref"))
    for n in (1, 3):
        x = np.ones((n, 2), np.float32)
        seen = {}
        program.run_trace({"x": x}, lambda ins, value, seen=seen: seen.update({ins.name: value.to_numpy().shape}))
        assert seen["softmax"] == (n, 2)


def _open() -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    shape = mgx.Shape("float", dyn_dims=[mgx.DynamicDimension(1, 8), mgx.DynamicDimension(2, 2)])
    main.add_return([main.add(mgx.op("softmax", axis=1), main.add_parameter("x", shape))])
    return program


def test_places_of_results_on_the_host() -> None:
    program = relu_of_sum(offload_copy=False)
    x, place = np.ones((2, 3), np.float32), np.zeros((2, 2), np.float32)
    for run in (program.run, program.run_async):
        place[...] = 0
        results = run({"x": x, "main:#output_0": place})
        assert results[0].data_ptr() == place.ctypes.data
        np.testing.assert_allclose(place.sum(1), 1, rtol=1e-6)
    with pytest.raises(ParameterError, match="writable memory for a result"):
        program.run({"x": x, "main:#output_0": [[0, 0], [0, 0]]})
    place.flags.writeable = False
    with pytest.raises(ParameterError, match="writable memory for a result"):
        program.run({"x": x, "main:#output_0": place})
    with pytest.raises(ParameterError, match="must be float32"):
        program.run({"x": x, "main:#output_0": np.zeros((2, 3), np.float32)})
    assert program.get_parameter_names() == ["x"]  # a target without device memory does not query them


def test_messages_at_debug(caplog) -> None:
    with caplog.at_level(logging.DEBUG, logger="mgx"):
        relu_of_sum()
    assert any("compiled for ref" in r.message for r in caplog.records)
    assert any(r.message.startswith("pass ") for r in caplog.records)


@pytest.mark.parametrize(
    ("setting", "wanted"), [(("MGX_TIME", "1"), "run on ref in"), (("MGX_TRACE", "run"), "softmax")]
)
def test_the_environment_enables_it(setting, wanted, monkeypatch, caplog) -> None:
    monkeypatch.setenv(*setting)
    logger = logging.getLogger("mgx")
    before = logger.level
    try:
        program = relu_of_sum()
        caplog.clear()
        program.run({"x": np.ones((2, 3), np.float32)})
        assert any(wanted in r.message for r in caplog.records)
    finally:
        logger.setLevel(before)


def test_an_unknown_word_is_rejected(monkeypatch) -> None:
    monkeypatch.setenv("MGX_TRACE", "run, compiles")
    with pytest.raises(
        ParameterError, match=r"MGX_TRACE must be a comma-separated list of compile, run, got 'compiles'"
    ):
        relu_of_sum()


def test_threads_by_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("MGX_THREADS", "3")
    assert mgx.CompileOptions.of().threads == 3
    assert mgx.CompileOptions.of(threads=2).threads == 2
    for given in ("many", "\u00b2"):  # a small two is a digit, not a number
        monkeypatch.setenv("MGX_THREADS", given)
        with pytest.raises(ParameterError, match=f"MGX_THREADS must be a number of threads, got '{given}'"):
            mgx.CompileOptions.of()
