"""Faulty third-party packages: the message names what their author must fix, and everything else keeps working."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

import mgx_core as mgx
from mgx_core.converting.converters import no_converter
from mgx_core.driver import main
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.opset import OpSet
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl
from mgx_core.types.shape import Shape

PROGRAM = """
    module main
      %x = @param["x"] -> float32[2]
      %1 = neg(%x)
      @return(%1)"""


class Host(mgx.Target):
    """Runs everything with the reference implementations."""

    name = "host"


class Nameless(mgx.Target):
    """Has no name."""


class Duck:
    """Has a target's methods but does not derive from Target."""

    name = "duck"

    def get_context(self):
        return None

    def kernels(self, context):
        return mgx.Kernels("duck")


@op("relu")
class Relu(Operation):
    def infer(self, x: Shape) -> Shape:
        return x


@op("acme.one")
class First(Operation):
    def infer(self, x: Shape) -> Shape:
        return x


@op("acme.one")
class Second(Operation):
    def infer(self, x: Shape) -> Shape:
        return x


@op("acme.two")
class Two(Operation):
    def infer(self, x: Shape) -> Shape:
        return x


class Toy(mgx.Frontend):
    converter_type = dict


OBJECTS = {
    "Toy": Toy,
    "Host": Host,
    "Nameless": Nameless,
    "Duck": Duck,
    "instance": Host(),
    "needs": lambda device: Host(),
    "number": 42,
    "KernelsClass": mgx.Kernels,
    "PassClass": mgx.Pass,
    "nameless_pass": mgx.Pass(),
    "relu": OpSet.of(Relu),
    "first": OpSet.of(First),
    "second": OpSet.of(Second, Two),
}


def package(**hooks):
    """Creates a plugin module; a hook's value is a function, or the hook's return value."""
    made = ModuleType("broken")
    made.mgx_interface = 1
    for name, value in hooks.items():
        hook = name in {*plugins.WITHOUT_ARGUMENTS, *plugins.WITH_ARGUMENTS, "kernals"}
        if hook and not callable(value):
            setattr(made, name, hookimpl(lambda value=value: value))
        else:
            setattr(made, name, hookimpl(value) if hook else value)
    return made


GOOD = package(targets=[Lazy("host", "broken_objects:Host", rank=1)])


@pytest.fixture
def installed(monkeypatch):
    """Creates a manager of entry points ``name`` or ``(name, distribution)`` and installs it for the process."""
    objects = ModuleType("broken_objects")
    vars(objects).update(OBJECTS)
    monkeypatch.setitem(sys.modules, "broken_objects", objects)

    def install(*entries):
        def entry(name, value, distribution):
            def load():
                if isinstance(value, BaseException):
                    raise value
                return value

            return SimpleNamespace(name=name, value=f"{name}.plugin", distribution=distribution, version="1", load=load)

        found = [entry(n, v, d) for n, v, d in (*entries, ("good", GOOD, "good-dist"))]
        monkeypatch.setattr(plugins, "entries", lambda group: found)
        made = Plugins()
        monkeypatch.setattr(plugins, "_manager", [made])
        return made

    return install


def check(made, error: str):
    """Checks that the broken plugin's record has the message, that the good one's has none, and that programs run."""
    (broken,) = [r for r in made.records if r.name == "broken"]
    assert error in broken.error
    assert broken.state == "failed"
    assert [r.state for r in made.records if r.name == "good"] == ["ok"]
    program = mgx.parse_program(PROGRAM)
    program.compile(mgx.get_target("host"))
    assert program.run({"x": [1, 2]})[0].tolist() == [-1, -2]
    assert mgx.best_target() == "host"
    return program.executable.notes


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("abc", "hook targets must return a list of Lazy records, got 'abc'"),
        (42, "hook targets must return a list of Lazy records, got 42"),
        (None, "hook targets must return a list of Lazy records, got None"),
        (["x"], "hook targets must return a list of Lazy records, got 'x' as number 0"),
        (Lazy("a", "b:c"), "hook targets must return a list of Lazy records, got Lazy("),
        ([Lazy(7, "b:c")], "hook targets: name and path of a Lazy record must be str"),
    ],
)
def test_hooks_that_return_other_things(installed, given, error):
    made = installed(("broken", package(targets=given), "broken-dist"))
    check(made, error)
    result = CliRunner().invoke(main, ["plugins", "--load"])
    assert result.exit_code == 0
    assert "broken-dist" in result.output


@pytest.mark.parametrize(
    ("hook", "path", "error"),
    [
        ("kernels", "number", "'it' of hook kernels (broken_objects:number) must be an instance of Kernels"),
        ("kernels", "KernelsClass", "must be an instance, got the class Kernels; create an instance with Kernels(...)"),
        ("kernels", "gone", "'it' could not be loaded from 'broken_objects:gone': AttributeError"),
        ("passes", "number", "'it' of hook passes (broken_objects:number) must be an instance of Pass"),
        ("passes", "PassClass", "must be an instance, got the class Pass"),
        ("passes", "nameless_pass", "must have a name of type str"),
        ("rules", "number", "must be an instance of Rules"),
    ],
)
def test_objects_of_the_wrong_kind_are_left_out_and_noted(installed, hook, path, error):
    made = installed(
        ("broken", package(**{hook: lambda target: [Lazy("it", f"broken_objects:{path}")]}), "broken-dist")
    )
    mgx.parse_program(PROGRAM).compile(mgx.get_target("host"))  # which calls the hook
    notes = check(made, error)
    assert len(notes) == 1
    assert notes[0].startswith("plugin 'broken' of broken-dist: ")
    assert error in notes[0]


def test_a_failed_extension_is_noted_by_each_executable_and_logged_once(installed, caplog):
    installed(("broken", package(kernels=lambda target: [Lazy("it", "broken_objects:gone")]), "broken-dist"))
    program = mgx.parse_program(PROGRAM)
    notes = []
    with caplog.at_level("WARNING", "mgx"):
        for _ in range(3):
            program.compile(mgx.get_target("host"))
            notes.append(program.executable.notes)
    assert [len(n) for n in notes] == [1, 1, 1]
    assert [r.getMessage() for r in caplog.records] == notes[0]


def test_converters_are_checked_by_the_frontend_that_collects_them(installed):
    made = installed(
        ("broken", package(converters=lambda frontend: [Lazy("it", "broken_objects:number")]), "broken-dist")
    )
    assert made.converters("onnx", dict) == []
    notes = check(made, "'it' of hook converters (broken_objects:number) must be an instance of dict")
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("instance", "'t' of hook targets (broken_objects:instance) must be a class or a factory function"),
        ("needs", "target 't' could not be created: TypeError: "),
        ("Nameless", "target Nameless of plugin 'broken' of broken-dist must have a non-empty str as its name, got ''"),
        ("Duck", "must be an instance of a class derived from mgx_core.Target"),
        ("number", "must be a class or a factory function, got 42"),
        (
            "Host",
            "target 't' of plugin 'broken' of broken-dist must have the name 't' under which it is offered, got 'host'",
        ),
    ],
)
def test_invalid_targets(installed, path, error):
    made = installed(("broken", package(targets=[Lazy("t", f"broken_objects:{path}")]), "broken-dist"))
    with pytest.raises(mgx.PluginError) as caught:
        mgx.get_target("t")
    assert error in str(caught.value)
    assert "plugin 'broken' of broken-dist" in str(caught.value)
    check(made, error)


@pytest.mark.parametrize("given", [Duck(), Host, Duck, 42])
def test_compile_says_what_a_target_must_be(given):
    with pytest.raises(mgx.ParameterError, match=r"must be an instance|derive from mgx_core.Target"):
        mgx.parse_program(PROGRAM).compile(given)


@pytest.mark.parametrize(
    ("interface", "error"),
    [
        (
            7,
            "requires plugin interface 7; this core supports 1 and 0: install matching versions of the package and mgx-core",
        ),
        (-3, "requires plugin interface -3"),
        ("1.0", "mgx_interface must be an int, got '1.0'"),
        (True, "mgx_interface must be an int, got True"),
    ],
)
def test_interfaces_that_are_not_served(installed, interface, error):
    check(installed(("broken", package(mgx_interface=interface), "broken-dist")), error)


def test_a_missing_interface(installed):
    module = package()
    del module.mgx_interface
    check(
        installed(("broken", module, "broken-dist")),
        "declares no interface version; add `mgx_interface = 1` to its module",
    )


def test_a_hook_that_there_is_not(installed):
    made = installed(("broken", package(kernals=lambda target: []), "broken-dist"))
    check(made, "there is no hook 'kernals'; did you mean 'kernels'?")


def test_a_parameter_that_a_hook_does_not_have(installed):
    broken = package(frontends=[Lazy("toy", "broken_objects:Toy")], kernels=lambda tgt: [])
    made = installed(("broken", broken, "broken-dist"))
    check(made, "hook kernels has no parameter 'tgt'; it may declare: target")
    assert "toy" not in made.names("frontends")  # nothing of it remains


def test_a_converter_that_is_missing_since_its_package_failed(installed):
    broken = package(converters=lambda frontend: [Lazy("it", "broken_objects:gone")])
    made = installed(("broken", broken, "broken-dist"))
    made.converters("onnx", dict)
    message = no_converter("my::Op (opset 1)", ", or another way").message
    assert message.startswith("no converter for operator my::Op (opset 1); a package adds one ")
    assert "or another way; plugins that failed: broken (broken-dist: 'it' could not be loaded from" in message


def test_an_op_that_the_core_has(installed):
    made = installed(("broken", package(operations=[Lazy("ops", "broken_objects:relu")]), "broken-dist"))
    assert made.opset().get("relu") is type(mgx.op("relu"))
    assert made.opset().get("relu") is not Relu
    assert "relu" in made.opset().names()  # which loads all plugins' ops
    check(made, "two ops are called 'relu': mgx_core.ops.activation.Relu and ")


def test_two_packages_with_one_op(installed):
    made = installed(
        ("broken", package(operations=[Lazy("ops", "broken_objects:first")]), "first-dist"),
        ("other", package(operations=[Lazy("ops", "broken_objects:second")]), "second-dist"),
    )
    assert mgx.op("acme.two") == Two()
    with pytest.raises(mgx.PluginError, match=r"two ops are called 'acme.one'.*second-dist.*MGX_PLUGINS"):
        mgx.op("acme.one")
    assert "two ops are called 'acme.one'" in made.records[-1].error


def test_two_packages_with_one_target(installed):
    one, other = (package(targets=[Lazy("same", "broken_objects:Host", rank=9)]) for _ in "ab")
    made = installed(("broken", one, "one-dist"), ("other", other, "other-dist"))
    assert list(made.named("targets")) == ["host"]
    with pytest.raises(mgx.PluginError, match=r"two plugins offer target 'same': .*one-dist.*other-dist.*MGX_PLUGINS"):
        mgx.get_target("same")
    check(made, "two plugins offer target 'same'")


def test_two_packages_with_one_entry_point_name(installed):
    hijack = package(operations=[Lazy("ops", "broken_objects:first")])
    made = installed(("good", hijack, "aaa-hijack"))
    assert [(r.name, r.distribution, r.state) for r in made.records] == [
        ("good", "aaa-hijack", "ok"),
        ("good", "good-dist", "ok"),
    ]
    assert mgx.op("acme.one") == First()
    assert mgx.get_target("host").name == "host"


def test_one_module_registered_twice(installed):
    made = installed(("broken", GOOD, "zzz-dist"))
    failed = [r for r in made.records if r.state == "failed"]
    assert len(failed) == 1
    assert "is registered already, by plugin" in failed[0].error


def test_a_target_of_a_plugin_that_failed_under_another_name(installed):
    made = installed(("broken", RuntimeError("cannot find libxpu.so.3"), "mgx-vendorx"))
    with pytest.raises(
        mgx.UnsupportedError,
        match=r"there is no target 'xpu' .*; plugins that failed: broken \(mgx-vendorx: RuntimeError: cannot find libxpu",
    ):
        mgx.get_target("xpu")
    with pytest.raises(
        mgx.UnsupportedError, match=r"the plugin for target 'broken' \(mgx-vendorx\) failed: RuntimeError"
    ):
        mgx.get_target("broken")
    check(made, "RuntimeError: cannot find libxpu.so.3")


def test_all_that_is_broken_in_one_package_is_listed(installed):
    installed(
        (
            "broken",
            package(
                targets=[Lazy("t", "nowhere:T")],
                kernels=lambda target: [Lazy("k", "nowhere:K")],
                passes=lambda target, stage: [Lazy("p", "nowhere:P")],
                operations=[Lazy("o", "nowhere:O")],
            ),
            "broken-dist",
        )
    )
    result = CliRunner().invoke(main, ["plugins", "--load", "--json"])
    for path in ("nowhere:T", "nowhere:K", "nowhere:P", "nowhere:O"):
        assert path in result.output


def test_availability_that_raises(installed):
    target = Lazy("t", "broken_objects:Host", rank=99, available="broken_objects:needs")
    made = installed(("broken", package(targets=[target]), "broken-dist"))
    assert mgx.best_target() == "host"
    check(made, "target 't': broken_objects:needs failed: TypeError")


def test_two_packages_with_one_frontend(installed, tmp_path):
    one, other = (package(frontends=[Lazy("toy", "broken_objects:Host")]) for _ in "ab")
    made = installed(("broken", one, "one-dist"), ("other", other, "other-dist"))
    (tmp_path / "model.toy").write_text("1")
    with pytest.raises(mgx.PluginError, match=r"two plugins offer frontend 'toy': .*one-dist.*other-dist"):
        mgx.parse(tmp_path / "model.toy")
    check(made, "two plugins offer frontend 'toy'")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (
            "Duck",
            "frontend of plugin 'broken' of broken-dist must be an instance of a class derived from mgx_core.Frontend",
        ),
        ("needs", "frontend 'toy' could not be created: TypeError"),
        ("number", "must be a class or a factory function, got 42"),
    ],
)
def test_invalid_frontends(installed, tmp_path, path, error):
    installed(("broken", package(frontends=[Lazy("toy", f"broken_objects:{path}")]), "broken-dist"))
    (tmp_path / "model.toy").write_text("1")
    with pytest.raises(mgx.PluginError) as caught:
        mgx.parse(tmp_path / "model.toy")
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("hooks", "error"),
    [
        ({"targets": [Lazy("t", "broken_objects:Duck")]}, "derived from mgx_core.Target"),
        ({"targets": [Lazy("t", "broken_objects:needs")]}, "target 't' could not be created: TypeError"),
        ({"frontends": [Lazy("toy", "broken_objects:Duck")]}, "derived from mgx_core.Frontend"),
        (
            {"commands": [Lazy("hello", "broken_objects:number")]},
            "'hello' of hook commands .* must be an instance of Command",
        ),
        (
            {
                "frontends": [Lazy("toy", "broken_objects:Toy")],
                "converters": lambda frontend: [Lazy("it", "broken_objects:number")],
            },
            "'it' of hook converters .* must be an instance of dict",
        ),
    ],
)
def test_loading_everything_finds_objects_of_the_wrong_kind(installed, hooks, error):
    made = installed(("broken", package(**hooks), "broken-dist"))
    result = CliRunner().invoke(main, ["plugins", "--load", "--json"])
    assert result.exit_code == 0
    (broken,) = [r for r in made.records if r.name == "broken"]
    assert broken.state == "failed"
    assert re.search(error, broken.error), broken.error


def test_an_op_of_a_plugin_that_failed(installed):
    made = installed(("broken", RuntimeError("cannot find libxpu.so.3"), "mgx-vendorx"))
    with pytest.raises(
        mgx.UnsupportedError,
        match=r"no operation is called 'vendorx.gemm'.*; plugins that failed: broken \(mgx-vendorx: RuntimeError: cannot find",
    ):
        mgx.op("vendorx.gemm")
    with pytest.raises(mgx.UnsupportedError, match="plugins that failed: broken"):
        mgx.parse_program(PROGRAM.replace("neg", "vendorx.neg"))
    for words in (["ops", "--list"], ["ops", "vendorx.gemm"]):
        result = CliRunner().invoke(main, words)
        assert "broken (mgx-vendorx: RuntimeError: cannot find libxpu.so.3)" in result.output
    check(made, "RuntimeError: cannot find libxpu.so.3")


def test_a_failure_unrelated_to_ops_does_not_mention_ops(installed):
    made = installed(("broken", package(kernals=lambda target: []), "broken-dist"))
    with pytest.raises(mgx.UnsupportedError) as caught:
        mgx.op("acme.gemm")
    assert "broken" not in str(caught.value)
    check(made, "there is no hook 'kernals'")


def test_failures_unrelated_to_targets_do_not_mention_targets(installed):
    installed(("broken", package(operations=[Lazy("o", "nowhere:O")]), "broken-dist"))
    with pytest.raises(mgx.UnsupportedError, match="plugins that failed: broken"):
        mgx.op("acme.gemm")
    with pytest.raises(mgx.UnsupportedError) as caught:
        mgx.get_target("xpu")
    assert "broken" not in str(caught.value)


def test_omitted_inputs_are_not_reported_as_missing(installed, monkeypatch):
    monkeypatch.setenv("MGX_PLUGINS", "-cpu,-vendorx")
    installed(("cpu", GOOD, "mgx-cpu-dnnl"), ("vendorx", package(), "mgx-vendorx"))
    with pytest.raises(
        mgx.UnsupportedError, match=r"target 'cpu' \(mgx-cpu-dnnl\) is disabled: left out by MGX_PLUGINS"
    ):
        mgx.get_target("cpu")
    with pytest.raises(mgx.UnsupportedError, match=r"no target 'xpu' .*; left out by MGX_PLUGINS: cpu .*, vendorx"):
        mgx.get_target("xpu")


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("HOST", "did you mean 'host'?"),
        (" host", "did you mean 'host'?"),
        ("hosst", "did you mean 'host'?"),
        ("cpu", "pip install mgx-cpu-dnnl"),
        (None, "install the package that provides it"),
        ("quantum", "install the package that provides it"),
    ],
)
def test_names_of_targets_that_are_meant(installed, name, end):
    installed()
    with pytest.raises(mgx.UnsupportedError) as caught:
        mgx.get_target(name)
    assert str(caught.value) == f"there is no target {name!r} (installed: 'host'); {end}"


def test_foreign_names_of_a_target(installed):
    installed(("more", package(targets=[Lazy("gpu", "broken_objects:Host")]), "more-dist"))
    with pytest.raises(mgx.UnsupportedError, match=r"no target 'CUDA' .*; did you mean 'gpu'\?"):
        mgx.get_target("CUDA")
