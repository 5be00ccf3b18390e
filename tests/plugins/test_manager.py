"""Plugins are found by entry point, loaded on first use, and fail independently."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pluggy
import pytest

import mgx_core as mgx
from mgx_core.errors import PluginError, UnsupportedError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.opset import OpSet
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl
from mgx_core.types.shape import Shape


@op("plugged")
class Plugged(Operation):
    def infer(self, x: Shape) -> Shape:
        return x


class One(mgx.Target):
    name = "one"


def module(monkeypatch, name: str, **members) -> ModuleType:
    """Creates an importable module with functions as hooks."""
    made = ModuleType(name)
    made.mgx_interface = plugins.INTERFACE
    for key, value in members.items():
        setattr(made, key, hookimpl(value) if callable(value) and not isinstance(value, type) else value)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def nothing() -> list[Lazy]:
    return []


def installed(monkeypatch, **entries) -> Plugins:
    """Creates a manager that finds these entry points; an exception represents a module that fails to import."""

    def entry(name: str, value):
        def load():
            if isinstance(value, BaseException):
                raise value
            return value

        return SimpleNamespace(
            name=name, value=f"package_{name}", distribution=f"dist-{name}", version="1.2", load=load
        )

    found = [entry(n, v) for n, v in entries.items()]
    monkeypatch.setattr(plugins, "entries", lambda group: found if group == "mgx" else [])
    return Plugins()


@pytest.fixture
def good(monkeypatch):
    return module(
        monkeypatch,
        "good_plugin",
        One=One,
        OPS=OpSet.of(Plugged),
        targets=lambda: [Lazy("one", "good_plugin:One", "the first", rank=3)],
        operations=lambda: [Lazy("ops", "good_plugin:OPS")],
    )


def test_installed_plugins_are_listed_without_loading(monkeypatch):
    lazy = module(monkeypatch, "lazy_plugin", targets=lambda: [Lazy("far", "not_there.at_all:Target")])
    manager = installed(monkeypatch, lazy=lazy)
    (record,) = manager.records
    assert (record.name, record.module, record.distribution, record.version) == (
        "lazy",
        "package_lazy",
        "dist-lazy",
        "1.2",
    )
    assert (record.state, record.offers) == ("ok", {"targets": ["far"]})
    assert list(manager.named("targets")) == ["far"]
    with pytest.raises(
        PluginError, match=r"'far' could not be loaded from 'not_there.at_all:Target': ModuleNotFoundError"
    ):
        manager.target("far")


def test_objects_are_loaded_once(monkeypatch, good):
    manager = installed(monkeypatch, good=good)
    assert isinstance(manager.target("one"), One)
    assert manager.target("one") is manager.target("one")
    assert manager.load("targets", "one") is One
    assert "plugged" in manager.opset()
    assert "add" in manager.opset()
    assert manager.opset() is manager.opset()


def test_a_broken_plugin_is_kept_with_its_exception_and_the_others_go_on(monkeypatch, good):
    error = ImportError("libmissing.so: cannot open shared object file")
    manager = installed(monkeypatch, bad=error, good=good)
    assert [(r.name, r.state) for r in manager.records] == [("bad", "failed"), ("good", "ok")]
    assert manager.records[0].exception is error
    assert manager.records[0].error == "ImportError: libmissing.so: cannot open shared object file"
    assert list(manager.named("targets")) == ["one"]
    with pytest.raises(
        UnsupportedError, match=r"the plugin for target 'bad' \(dist-bad\) failed: ImportError: libmissing"
    ):
        manager.target("bad")


def test_a_plugin_that_exits_while_it_is_imported(monkeypatch, good):
    manager = installed(monkeypatch, bad=SystemExit("needs another Python"), good=good)
    assert [(r.name, r.state) for r in manager.records] == [("bad", "failed"), ("good", "ok")]
    assert manager.records[0].error == "SystemExit: needs another Python"


def test_hooks_that_raise_are_failures_of_their_plugin(monkeypatch, good):
    def targets():
        raise RuntimeError("no such thing")

    manager = installed(monkeypatch, bad=module(monkeypatch, "bad_hook", targets=targets), good=good)
    assert [r.state for r in manager.records] == ["failed", "ok"]
    assert list(manager.named("targets")) == ["one"]
    assert "RuntimeError: no such thing" in manager.records[0].error


def test_hooks_that_raise_when_called(monkeypatch, good):
    def kernels(target):
        raise RuntimeError(f"nothing for {target}")

    bad = module(monkeypatch, "bad_kernels", kernels=kernels)
    manager = installed(monkeypatch, bad=bad, good=good)
    assert manager.records[0].state == "ok"
    assert list(manager.kernels("one").ops()) == []
    assert manager.records[0].state == "failed"
    assert manager.records[0].error == "hook kernels: RuntimeError: nothing for one"


def test_hooks_with_unknown_arguments_are_refused(monkeypatch, good):
    bad = module(monkeypatch, "bad_arguments", targets=lambda what: [])
    manager = installed(monkeypatch, bad=bad, good=good)
    assert [r.state for r in manager.records] == ["failed", "ok"]


def test_operations_that_do_not_load_are_left_out(monkeypatch, good):
    bad = module(monkeypatch, "bad_ops", operations=lambda: [Lazy("ops", "bad_ops:NOTHING")])
    manager = installed(monkeypatch, bad=bad, good=good)
    assert "plugged" in manager.opset()
    assert manager.records[0].state == "failed"
    assert "'ops' could not be loaded from 'bad_ops:NOTHING': AttributeError" in manager.records[0].error


def test_a_standard_op_is_found_without_those_of_plugins(monkeypatch, good):
    """Loading a compiled program mostly needs standard ops only."""
    bad = module(monkeypatch, "bad_ops", operations=lambda: [Lazy("ops", "bad_ops:NOTHING")])
    manager = installed(monkeypatch, bad=bad, good=good)
    assert manager.opset().get("add") is type(mgx.op("add"))
    assert manager.records[0].state == "ok"
    assert manager.opset().get("none of all") is None
    assert manager.records[0].state == "failed"


def test_two_plugins_with_one_name(monkeypatch, good):
    other = module(monkeypatch, "other_plugin", targets=lambda: [Lazy("one", "other_plugin:Two")])
    manager = installed(monkeypatch, good=good, other=other)
    with pytest.raises(PluginError, match="two plugins offer target 'one'") as caught:
        manager.target("one")
    for word in ("'good'", "good_plugin:One", "'other'", "other_plugin:Two", "MGX_PLUGINS"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("chosen", "states"),
    [
        ("", ["ok", "ok", "ok"]),
        ("good", ["disabled", "ok", "disabled"]),
        ("good, a", ["ok", "ok", "disabled"]),
        ("-good", ["ok", "disabled", "ok"]),
        ("-a,-z", ["disabled", "ok", "disabled"]),
        ("good,-good", ["disabled", "disabled", "disabled"]),
    ],
)
def test_plugins_are_chosen_by_the_environment(monkeypatch, good, chosen, states):
    monkeypatch.setenv("MGX_PLUGINS", chosen)
    a, z = (module(monkeypatch, f"{n}_plugin", targets=nothing) for n in "az")
    manager = installed(monkeypatch, z=z, good=good, a=a)
    assert [r.name for r in manager.records] == ["a", "good", "z"]
    assert [r.state for r in manager.records] == states
    if states[1] == "disabled":
        with pytest.raises(UnsupportedError, match="there is no target 'one'"):
            manager.target("one")


def test_chosen_plugins_that_are_not_installed_are_named(monkeypatch, good):
    monkeypatch.setenv("MGX_PLUGINS", "godo,-gone")
    manager = installed(monkeypatch, good=good)
    assert [(r.name, r.state) for r in manager.records] == [("good", "disabled"), ("godo", "failed")]
    with pytest.raises(
        UnsupportedError, match=r"godo \(-: MGX_PLUGINS names it, but no plugin of that name is installed\)"
    ):
        manager.target("one")


def test_hooks_that_a_plugin_leaves_out_are_not_read(monkeypatch, good):
    """pluggy 1.5 and 1.6 read the requested attribute whether or not the plugin has it."""
    parsed = pluggy.PluginManager.parse_hookimpl_opts

    def strict(self, plugin, name):
        getattr(plugin, name)
        return parsed(self, plugin, name)

    monkeypatch.setattr(pluggy.PluginManager, "parse_hookimpl_opts", strict)
    (record,) = installed(monkeypatch, good=good).records
    assert (record.state, record.error) == ("ok", "")


def test_disabled_plugins_are_not_even_imported(monkeypatch):
    monkeypatch.setenv("MGX_PLUGINS", "-bad")
    manager = installed(monkeypatch, bad=AssertionError("imported"))
    assert manager.records[0].error == "left out by MGX_PLUGINS"


@pytest.mark.parametrize(
    ("interface", "state"),
    [(plugins.INTERFACE, "ok"), (plugins.INTERFACE - 1, "ok"), (plugins.INTERFACE + 1, "failed")],
)
def test_the_interface_that_a_plugin_was_made_for(monkeypatch, interface, state):
    plugin = module(monkeypatch, "old_plugin", mgx_interface=interface, targets=nothing)
    (record,) = installed(monkeypatch, old=plugin).records
    assert record.state == state
    assert ("requires plugin interface" in record.error) == (state == "failed")


def test_missing_things_say_what_to_install(monkeypatch, good):
    manager = installed(monkeypatch, good=good)
    with pytest.raises(
        UnsupportedError, match=r"there is no target 'cpu' .installed: 'one'.; pip install mgx-cpu-dnnl"
    ):
        manager.target("cpu")
    with pytest.raises(
        UnsupportedError, match=r"there is no frontend 'zzz' .installed: none.; install the package that provides it"
    ):
        manager.load("frontends", "zzz")


def test_the_best_target(monkeypatch, good):
    members = {
        "targets": lambda: [
            Lazy("slow", "x:y", rank=1),
            Lazy("fast", "x:y", rank=9, available="ranks:no"),
            Lazy("faster", "x:y", rank=10, available="ranks:broken"),
            Lazy("quick", "x:y", rank=5, available="ranks:yes"),
        ]
    }
    plugin = module(monkeypatch, "ranks", **members)
    plugin.yes, plugin.no = (lambda: True), (lambda: False)
    assert installed(monkeypatch, ranks=plugin, good=good).best_target() == "quick"
    assert installed(monkeypatch, good=good).best_target() == "one"
    with pytest.raises(UnsupportedError, match=r".installed: none.; pip install mgx-cpu-dnnl or mgx-gpu-hip if it"):
        installed(monkeypatch).best_target()


class Borrowed(mgx.Context):
    """A context whose device memory begins at a known address."""

    def __init__(self, target, begin):
        self.target, self.begin = target, begin

    def holds(self, address):
        return self.begin <= address < self.begin + 64

    def borrow(self, shape, address):
        return np.full(shape.lens(), address - self.begin, shape.dtype.numpy)


def on_a_device(called, begin):
    class Device(mgx.Target):
        name = called

        def get_context(self):
            return Borrowed(self, begin)

    return Device


def test_memory_of_devices_is_that_of_the_target_that_has_it(monkeypatch):
    """Pointers belong to the device that contains them, whatever its target's name, otherwise to the host."""
    targets = [
        Lazy("host", "boards:none", rank=9),
        Lazy("small", "boards:Small", rank=1, own_memory=True),
        Lazy("large", "boards:Large", rank=2, own_memory=True),
        Lazy("broken", "boards:missing", rank=3, own_memory=True),
    ]
    plugin = module(monkeypatch, "boards", targets=lambda: targets)
    plugin.Small, plugin.Large = on_a_device("small", 1 << 60), on_a_device("large", 1 << 61)
    manager = installed(monkeypatch, boards=plugin)
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [manager])
    assert manager.memory_targets() == ["broken", "large", "small"]
    shape = mgx.Shape("int64", [1])
    assert [mgx.argument_from_pointer(shape, (1 << n) + n).tolist() for n in (60, 61)] == [[60], [61]]
    kept = np.array([5])
    assert mgx.argument_from_pointer(shape, kept.ctypes.data).tolist() == [5]
    targets.pop()
    assert mgx.get_gpu_context().begin == 1 << 61
    with pytest.raises(UnsupportedError, match=r"device memory is required: .* pip install"):
        installed(monkeypatch).memory_target()


def test_plugins_add_kernels_passes_and_converters(monkeypatch):
    kernels = mgx.Kernels("one")
    kernels.plan(Plugged)(lambda op, shapes, context: mgx.No("never"))
    tidy = mgx.Pass()
    tidy.name = "tidy"
    plugin = module(
        monkeypatch,
        "adds",
        kernels=lambda target: [Lazy("more", "adds:KERNELS")] if target == "one" else [],
        passes=lambda target, stage: [Lazy("tidy", "adds:TIDY")] if stage == "fuse" else [],
        converters=lambda frontend: [Lazy("c", "adds:CONVERTERS"), Lazy("d", "adds:NOTHING")],
    )
    plugin.KERNELS, plugin.TIDY, plugin.CONVERTERS = kernels, tidy, {"a": 1}
    manager = installed(monkeypatch, adds=plugin)
    assert list(manager.kernels("one").ops()) == [Plugged]
    assert list(manager.kernels("two").ops()) == []
    assert manager.passes("one", "fuse") == [tidy]
    assert manager.passes("one", "lower") == []
    assert manager.converters("any") == [{"a": 1}]
    assert manager.records[0].state == "failed"  # one of its converters fails to load, which is reported


def test_plugins_by_hand(good):
    manager = Plugins(discover=False)
    assert manager.records == []
    manager.register(good, "mine")
    assert isinstance(manager.target("one"), One)
    assert manager.records[0].distribution == "-"
    with pytest.raises(PluginError, match="requires plugin interface 99"):
        manager.register(SimpleNamespace(mgx_interface=99))


def test_concurrent_requests_get_the_same_object(monkeypatch):
    all_make, all_open = threading.Barrier(4), threading.Barrier(4)

    class Slow(One):
        def __init__(self):
            all_make.wait(10)

        def get_context(self):
            all_open.wait(10)
            return super().get_context()

    plugin = module(monkeypatch, "slow_plugin", Slow=Slow, targets=lambda: [Lazy("one", "slow_plugin:Slow")])
    manager = installed(monkeypatch, slow=plugin)
    with ThreadPoolExecutor(4) as threads:
        contexts = list(threads.map(lambda _: manager.context("one"), range(4)))
    assert {id(c) for c in contexts} == {id(contexts[0])}
    assert all(c.target is manager.target("one") for c in contexts)


def test_the_process_has_one_manager(monkeypatch):
    monkeypatch.setattr(plugins, "_manager", [])
    assert mgx.plugin_manager() is mgx.plugin_manager()
