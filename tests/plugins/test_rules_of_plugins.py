"""Rules and passes of plugins obey the same options as the core's own."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import mgx_core as mgx
from mgx_core.compile.extensions import passes_of
from mgx_core.compile.stages import RULES
from mgx_core.driver import main
from mgx_core.ops.activation import Relu
from mgx_core.ops.pointwise import Abs, Mul, Sqrt
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl

PROGRAM = """
module main
  %x = @param["x"] -> float32[4]
  %1 = sqrt(%x)
  %2 = mul(%1, %1)
  %3 = relu(%2)
  @return(%3)
"""

rules = mgx.Rules("simplify-acme")
late = mgx.Rules("acme-late")


@rules.on(Mul, changes=mgx.ROUNDING)
def square_of_root(i, b):
    """sqrt(x) * sqrt(x) -> abs(x)"""
    left, right = i.inputs
    if left is not right or not isinstance(left.op, Sqrt):
        return mgx.No("no square of a root")
    return b.add(Abs(), left.inputs[0])


@rules.on(Sqrt)
def cancel_negations(i, b):
    """A rule with the same name as one of the core: it never fires."""
    return mgx.No("only for its name")


@late.on(Relu, changes=mgx.RANGE)
def relu_away(i, b):
    """relu(x) -> x"""
    return i.inputs[0]


@dataclass(frozen=True)
class Noted(mgx.Pass):
    """Records the options that the hook received."""

    seen: tuple = ()
    name: str = "acme-noted"

    def apply(self, module):
        return False


@pytest.fixture
def acme(monkeypatch):
    """Creates a manager with one plugin, which registers a rule through each of the two hooks, and a pass."""
    asked = []

    def passes(target, stage, options):
        asked.append(options.fast_math)
        return {"fuse": [Lazy("late", f"{__name__}:LATE"), Lazy("noted", f"{__name__}:NOTED")]}.get(stage, [])

    plugin = SimpleNamespace(
        rules=hookimpl(lambda target: [Lazy("acme", f"{__name__}:rules")]), passes=hookimpl(passes), asked=asked
    )
    made = Plugins(discover=False)
    made.register(plugin, "acme")
    monkeypatch.setattr(plugins, "_manager", [made])
    return plugin


LATE, NOTED = mgx.Rewrite(late), Noted()


def after(**options):
    made = mgx.optimize(mgx.parse_program(PROGRAM), options)
    found = {i.name for i in made.get_main_module()}
    return found | {i.name for outer in made.get_main_module() for inner in outer.modules for i in inner}


def test_changes_are_held_to_the_options(acme):
    assert "abs" in after(aggressiveness=2)
    assert "relu" not in after(aggressiveness=2)
    assert "abs" in after()
    assert "relu" in after()
    assert "abs" not in after(fast_math=False)
    assert "abs" not in after(aggressiveness=0)
    assert "relu" in after(aggressiveness=0)


def test_switched_by_name(acme):
    assert "abs" not in after(fusion_rules={"square_of_root": False})
    assert "abs" in after(fast_math=False, fusion_rules={"square-of-root": True})
    assert "relu" not in after(fusion_rules={"relu-away": True, "pointwise": False})
    with pytest.raises(mgx.ParameterError, match="no rule 'squrae-of-root'; did you mean 'square-of-root'"):
        after(fusion_rules={"squrae-of-root": False})


def test_a_duplicate_name_is_prefixed_by_its_set(acme):
    core = {"cancel-negations"}
    assert [r.name for r in plugins.manager().rules("", core).rules] == [
        "square-of-root",
        "simplify-acme.cancel-negations",
    ]
    assert [r.name for r in plugins.manager().rules("").rules] == ["square-of-root", "cancel-negations"]


def test_every_name_that_is_listed_can_be_switched(acme, monkeypatch):
    """Including rules that a pass carries, and tables whose names contain spaces."""
    clash = mgx.Rules("late rules = two")

    @clash.on(Relu, changes=mgx.RANGE)
    def cancel_negations(i, b):
        """relu(x) -> x"""
        return i.inputs[0]

    monkeypatch.setitem(globals(), "LATE", mgx.Rewrite(clash))
    listed = CliRunner().invoke(main, ["rules", "--json"]).output
    names = [row["name"] for row in json.loads(listed)]
    for name in ("simplify-acme.cancel-negations", "late-rules-two.cancel-negations"):
        assert names.count(name) == 1
        assert mgx.optimize(mgx.parse_program(PROGRAM), fusion_rules={name: False})
    assert "relu" not in after(aggressiveness=2)
    assert "relu" in after(aggressiveness=2, fusion_rules={"late_rules_two.cancel_negations": False})
    assert "relu" not in after(aggressiveness=2, fusion_rules={"cancel-negations": False})


def test_rules_of_a_target_are_disabled_by_name():
    """How they may change results is the target's decision: one that changes the range fires by default."""

    class Host(mgx.Target):
        name = "host"

        def passes(self, stage, context, options):
            return (mgx.Rewrite(late),) if stage in ("legalize", "lower") else ()

    def compiled(**options):
        program = mgx.parse_program(PROGRAM)
        program.compile(Host(), **options)
        (lowering,) = passes_of(RULES, Host(), "lower", None, mgx.CompileOptions(**options))
        return "relu(" in program.text(), len(lowering.rules.rules)

    assert compiled() == (False, 1)
    assert compiled(fusion_rules={"relu_away": False}) == (True, 0)
    assert compiled(fusion_rules={"drop-unit-factor": False}) == (False, 1)


def test_hooks_get_the_options(acme):
    after(fast_math=False)
    assert set(acme.asked) == {False}


def test_the_old_hook_of_two_arguments_is_served(monkeypatch):
    made = Plugins(discover=False)
    hook = hookimpl(lambda target, stage: [Lazy("late", f"{__name__}:LATE")] if stage == "fuse" else [])
    made.register(SimpleNamespace(passes=hook), "old")
    monkeypatch.setattr(plugins, "_manager", [made])
    assert "relu" not in after(aggressiveness=2)


def test_disabled_passes_must_exist(acme):
    assert "abs" in after(disable_passes=["acme-noted", "fuse-epilogue"])
    assert "abs" not in after(disable_passes=["simplify"])
    with pytest.raises(mgx.ParameterError, match="no pass 'acme-notd'; did you mean 'acme-noted'"):
        after(disable_passes=["acme-notd"])


@pytest.mark.parametrize("name", ["lower", "resolve-extents", "order-for-memory", "join-gathers", "acme-late"])
def test_optional_passes_and_passes_of_other_stages_can_be_disabled(acme, name):
    after(disable_passes=[name])


def drive(*words):
    done = CliRunner().invoke(main, [str(w) for w in words])
    return done.output


def test_the_driver_knows_them(acme, tmp_path):
    file = tmp_path / "program.txt"
    file.write_text(PROGRAM.replace("mul(%1, %1)", "mul(%1, %x)"))
    assert "no square of a root" in drive("read", file, "--why", "square-of-root")
    assert "did you mean 'square-of-root'" in drive("read", file, "--why", "square-of-rot")
    assert "relu" not in drive("read", file, "-p", "acme-late")
    assert "sqrt(x) * sqrt(x) -> abs(x)" in drive("rules", "square-of-root")
    assert "acme-noted" in drive("rules", "--passes")
    file.write_text(PROGRAM)
    assert "abs" in drive("read", file, "-O")


def test_tests_have_the_recorded_names():
    assert sys.modules[__name__].rules is rules


def test_verify_names_the_rules_of_packages_that_took_part(acme, monkeypatch, tmp_path):
    class Host(mgx.Target):
        name = "host"

    monkeypatch.setattr(mgx, "Host", Host, raising=False)
    acme_targets = SimpleNamespace(targets=hookimpl(lambda: [Lazy("host", "mgx_core:Host")]))
    plugins.manager().register(acme_targets, "targets")
    (tmp_path / "m.txt").write_text(PROGRAM)
    package = __name__.partition(".")[0]

    def verified(*options):
        done = CliRunner().invoke(main, ["verify", str(tmp_path / "m.txt"), "--fill1", "x", *options])
        assert done.exit_code == 0, done.output
        return done.output

    fired = json.loads(verified("--json"))["rules"]
    assert fired[package]["square-of-root"] == 1 and fired[package]["relu-away"] == 0
    assert f"rules   of {package}: square-of-root (1)\n" in verified()
    assert f"rules   of {package}: none fired\n" in verified("--rule", "square-of-root=off")
