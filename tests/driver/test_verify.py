"""``verify``: comparison of results, and bisection to the instruction at fault."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import HostContext, Program, Shape, op
from mgx_core.driver.accuracy import FOUR_BITS, HALF, WIDE, Difference, Tolerance, compare, default_tolerance
from mgx_core.driver.bisection import Bisection
from mgx_core.driver.edit import prefix, steps


def test_passes_on_a_right_target(drive, drive_json, chain):
    assert "passed on host" in drive("verify", chain("exp tanh"))
    document = drive_json("verify", chain("exp tanh"))
    assert document["ok"] is True
    assert document["tolerance"] == {"rms": 0.001, "atol": 0.001, "rtol": 0.001}


@pytest.mark.parametrize("option", ["--atol", "--rtol", "--rms-tol"])
def test_a_tolerance_below_zero_is_refused(drive, chain, option):
    assert "-1.0 is not in the range x>=0" in drive("verify", chain("exp"), option, "-1", code=2)


@pytest.mark.parametrize("option", ["--atol", "--rtol", "--rms-tol", "--sqnr"])
def test_a_limit_that_nothing_exceeds_is_refused(drive, chain, option):
    assert "NaN is not a limit" in drive("verify", chain("exp"), option, "nan", code=2)


def test_says_which_sizes_it_chose(drive, drive_json, chain, tmp_path):
    path = chain("exp", "batch 4 time")
    for words in (("verify",), ("perf", "-n", "1"), ("time", "-n", "1")):
        assert "\nsizes   batch=3, time=3 (--dim-param and --input-dim choose others)\n" in drive(*words, path)
        assert drive_json(*words, path)["sizes"] == {"batch": 3, "time": 3}
        assert "\nsizes   time=3 (" in drive(*words, path, "--dim-param", "@batch", "2")
        np.save(tmp_path / "x.npy", np.zeros((2, 4, 5), np.float32))
        assert "sizes" not in drive(*words, path, "--load-arg", "@x", tmp_path / "x.npy")
        assert "sizes" not in drive(*words, path, "--input-dim", "@x", "2", "4", "6")


def test_fails_with_status_1(drive, drive_json, chain):
    path = chain("exp tanh")
    assert "FAILED on wrong" in drive("verify", path, "--target", "wrong", code=1)
    document = drive_json("verify", path, "--target", "wrong", code=1)
    assert document["ok"] is False
    assert document["outputs"][0]["largest"] == pytest.approx(0.1, rel=1e-3)
    drive("verify", path, "--target", "wrong", "--atol", "0.2", "--rms-tol", "0.9")


def test_bisect_names_the_instruction(drive, drive_json, chain):
    path = chain("exp neg sin tanh exp cos")
    found = drive_json("verify", path, "--target", "wrong", "--bisect", code=1)["first"]
    assert found["index"] == 3
    assert found["instruction"].startswith("tanh(sin)")
    assert found["sources"] == ["node3"]
    assert found["alone"] == "also differs alone"
    assert "first to differ: instruction 3, tanh(sin)" in drive("verify", path, "--target", "wrong", "-b", code=1)
    assert "no instruction differs" in drive("verify", path, "-b")


def test_per_instruction(drive_json, chain):
    found = drive_json("verify", chain("exp tanh neg"), "--target", "wrong", "-i", code=1)["instructions"]
    assert [e["ok"] for e in found] == [True, False, True]


def test_reduce(drive_json, chain):
    found = drive_json("verify", chain("exp tanh neg"), "--target", "wrong", "-r", code=1)["reduced"]
    assert [(e["instructions"], e["ok"]) for e in found] == [(3, False), (2, False), (1, True)]


def test_modes_exclude_each_other(drive, chain):
    assert "--per-instruction and --bisect exclude each other" in drive("verify", chain("exp"), "-i", "-b", code=2)


def test_compare_floats():
    gold = np.array([1, 2, np.nan, np.inf], np.float32)
    assert compare("x", gold.copy(), gold, WIDE).ok
    off = gold + np.float32(0.01)
    assert not compare("x", off, gold, WIDE).ok
    assert compare("x", off, gold, HALF).ok
    assert "worst at (1,)" in compare("x", np.array([1, 3], np.float32), np.array([1, 2], np.float32), WIDE).why
    assert "misplaced" in compare("x", np.array([np.nan], np.float32), np.array([1], np.float32), WIDE).why
    assert "misplaced" in compare("x", np.array([-np.inf]), np.array([np.inf]), WIDE).why
    assert "rms" in compare("x", np.array([1.1]), np.array([1.0]), Tolerance(0.01, 1, 1)).why


def test_compare_the_rest():
    assert compare("x", np.array([1, 2]), np.array([1, 2]), WIDE).ok
    assert "1 of 2 elements differ, first at (1,)" in compare("x", np.array([1, 3]), np.array([1, 2]), WIDE).why
    assert "required" in compare("x", np.zeros(2), np.zeros(3), WIDE).why
    assert "required" in compare("x", np.zeros(2, np.float32), np.zeros(2), WIDE).why
    assert compare("x", [np.zeros(1)], [np.zeros(1)], WIDE).ok
    assert compare("x", [np.ones(1)], [np.zeros(1)], WIDE).name == "x[0]"
    assert not compare("x", [], [np.zeros(1)], WIDE).ok
    assert compare("x", None, None, WIDE).ok
    assert not compare("x", np.zeros(1), None, WIDE).ok
    assert compare("x", np.zeros((0, 2)), np.zeros((0, 2)), WIDE).ok


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", WIDE), ("float64", WIDE), ("float16", HALF), ("float8_e5m2", HALF), ("float4_e2m1fn", FOUR_BITS)],
)
def test_default_tolerance(dtype, tolerance):
    program = Program()
    program.get_main_module().add_parameter("x", Shape(dtype, [1]))
    assert default_tolerance(program.get_main_module(), False) == tolerance
    assert default_tolerance(program.get_main_module(), True) == (FOUR_BITS if tolerance is FOUR_BITS else HALF)


def test_prefix_returns_what_is_alive(plugins):
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    a = main.add(op("exp"), x)
    b = main.add(op("neg"), x)
    main.add_return([main.add(op("add"), a, b)])
    cut, ends = prefix(program, 2)
    assert ends == [0, 1]
    assert [i.name for i in steps(cut.get_main_module())] == ["exp", "neg"]
    assert prefix(program, 3)[1] == [2]
    assert len(steps(main)) == 3
    cut.compile(HostContext(plugins.target("host")))
    results = cut.run({"x": np.zeros(2, np.float32)})
    assert [r.tolist() for r in results] == [[1, 1], [0, 0]]


def test_instruction_that_reads_a_tuple_is_checked_alone(plugins):
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4]))
    pair = main.add(op("topk", k=2, axis=0), x)
    main.add_return([main.add(op("get_tuple_elem", index=n), pair) for n in (0, 1)])

    def compile(one):
        one.compile(plugins.target("host"))
        return one.executable

    hunt = Bisection(program, {"x": np.array([3, 9, 1, 5], np.float32)}, WIDE, compile)
    assert [r.tolist() for r in hunt.results()] == [[9, 5], [1, 3]]
    assert [hunt.alone(n) for n in range(3)] == [(Difference(repr(hunt.steps[n]), ""), "") for n in range(3)]
