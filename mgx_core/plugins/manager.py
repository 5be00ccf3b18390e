"""Plugins: what installed packages bring, found by entry point, loaded when asked for, each on its own.

An entry point of the group ``mgx`` names a module with pluggy hook implementations that return `Lazy` records; nothing else is
imported to list what there is.  A plugin that fails to load is kept with its exception and the others go on.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pluggy

from ..errors import PluginError, UnsupportedError
from ..settings import setting
from .entry_points import entries

if TYPE_CHECKING:
    from ..ops.operation import OpSet
    from ..options import CompileOptions
    from ..passes.interface import Pass
    from ..rules.engine import Rules
    from ..targets.kernel import Kernels

__all__ = ["GROUP", "INTERFACE", "Lazy", "PluginRecord", "Plugins", "hookimpl", "hookspec", "manager"]

GROUP: Final = "mgx"
INTERFACE: Final = (
    1  # plugins state the version they were made for as `mgx_interface`; this and the one before are served
)

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

# what to install for the names that people ask for first
KNOWN: Final = {
    "ref": "mgx-ref",
    "cpu": "mgx-cpu-dnnl",
    "gpu": "mgx-gpu-hip",
    "onnx": "mgx-onnx",
}


@dataclass(frozen=True)
class Lazy:
    """Something that a plugin offers under a name: ``package.module:attribute``, loaded when first used.

    rank: among targets, which one is the default where several are installed (higher wins); available: an optional
    ``module:function`` that says cheaply whether it can work on this machine.
    """

    name: str
    path: str
    about: str = ""
    rank: int = 0
    available: str = ""

    def load(self) -> Any:
        """The object itself.  Errors: PluginError with the original exception as its cause."""
        return resolve(self.path, f"{self.name!r}")


def resolve(path: str, what: str) -> Any:
    """The object at ``module:attribute``.  Errors: PluginError."""
    module, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except Exception as error:
        raise PluginError(f"{what} could not be loaded from {path!r}: {type(error).__name__}: {error}") from error


class Hooks:
    """The hooks that a plugin may implement, each of them optional."""

    @hookspec
    def targets(self) -> list[Lazy]:
        """Targets by name; the object is a class or function without required arguments."""
        return []

    @hookspec
    def frontends(self) -> list[Lazy]:
        """Frontends by format name; the object has `parse`, `parse_buffer` and `operators`."""
        return []

    @hookspec
    def operations(self) -> list[Lazy]:
        """Op sets; the object is an `OpSet`."""
        return []

    @hookspec
    def kernels(self, target: str) -> list[Lazy]:
        """Plans for ops on a target by its name; the object is a `Kernels`."""
        return []

    @hookspec
    def passes(self, target: str, stage: str, options: CompileOptions) -> list[Lazy]:
        """Passes for a stage; the object is a pass.

        A hook declares the parameters that it wants.  target: empty where programs are optimised for none yet.
        """
        return []

    @hookspec
    def rules(self, target: str) -> list[Lazy]:
        """Rewriting rules of the stage simplify; the object is a `Rules`.  target: as for `passes`."""
        return []

    @hookspec
    def converters(self, frontend: str) -> list[Lazy]:
        """Converters for a frontend by its name; the object is whatever that frontend collects."""
        return []

    @hookspec
    def commands(self) -> list[Lazy]:
        """Commands of the driver; the object is a click command."""
        return []


@dataclass
class PluginRecord:
    """One installed plugin: its entry point, its distribution, whether it loaded, and if not why."""

    name: str
    module: str
    distribution: str
    version: str
    state: str  # "ok", "failed", "disabled"
    error: str = ""
    exception: BaseException | None = field(default=None, repr=False)
    offers: dict[str, list[str]] = field(default_factory=dict)


class Plugins:
    """The manager: discovers, guards and asks plugins."""

    def __init__(self, discover: bool = True) -> None:
        self._hooks = pluggy.PluginManager(GROUP)
        self._hooks.add_hookspecs(Hooks)
        self.records: list[PluginRecord] = []
        self._loaded: dict[str, Any] = {}
        if discover:
            self._discover()

    def _discover(self) -> None:
        chosen = setting("MGX_PLUGINS")
        names = {n.strip() for n in chosen.split(",") if n.strip()}
        denied = {n[1:] for n in names if n.startswith("-")}
        allowed = names - {"-" + n for n in denied}
        for entry in sorted(entries(GROUP), key=lambda e: e.name):
            record = PluginRecord(entry.name, entry.value, entry.distribution, entry.version, "ok")
            self.records.append(record)
            if entry.name in denied or (allowed and entry.name not in allowed):
                record.state, record.error = "disabled", "left out by MGX_PLUGINS"
                continue
            try:
                self._register(record, entry.load())
            except Exception as error:
                record.state = "failed"
                record.exception = error
                record.error = f"{type(error).__name__}: {error}"

    def _register(self, record: PluginRecord, plugin: Any) -> None:
        made_for = getattr(plugin, "mgx_interface", INTERFACE)
        if made_for not in (INTERFACE, INTERFACE - 1):
            raise PluginError(f"made for plugin interface {made_for}; this core serves {INTERFACE} and {INTERFACE - 1}")
        self._hooks.register(plugin, record.name)
        for hook in ("targets", "frontends", "operations", "commands"):
            if hasattr(plugin, hook):
                record.offers[hook] = [lazy.name for lazy in getattr(plugin, hook)()]
        for hook in ("kernels", "passes", "rules", "converters"):  # what they give depends on whom they are asked for
            if hasattr(plugin, hook):
                record.offers[hook] = []

    def register(self, plugin: Any, name: str | None = None) -> None:
        """Add a plugin object by hand (tests, notebooks)."""
        record = PluginRecord(str(name or getattr(plugin, "__name__", repr(plugin))), repr(plugin), "-", "-", "ok")
        self._register(record, plugin)
        self.records.append(record)
        self._loaded.clear()

    # asking

    def _all(self, hook: str, **arguments: Any) -> list[tuple[str, Lazy]]:
        found: list[tuple[str, Lazy]] = []
        for implementation in getattr(self._hooks.hook, hook).get_hookimpls():
            try:
                given = {k: arguments[k] for k in implementation.argnames if k in arguments}
                found += [(implementation.plugin_name, lazy) for lazy in implementation.function(**given)]
            except Exception as error:
                for record in self.records:
                    if record.name == implementation.plugin_name:
                        record.state, record.exception = "failed", error
                        record.error = f"hook {hook}: {type(error).__name__}: {error}"
        return found

    def offered(self, hook: str) -> list[tuple[str, Lazy]]:
        """Everything that plugins offer through a hook without arguments, with the plugin's name, unloaded."""
        return self._all(hook)

    def named(self, hook: str) -> dict[str, Lazy]:
        """What plugins offer through a hook, by name.  Errors: PluginError if two offer one name."""
        found: dict[str, tuple[str, Lazy]] = {}
        for plugin, lazy in self._all(hook):
            known = found.setdefault(lazy.name, (plugin, lazy))
            if known[0] != plugin:
                raise PluginError(
                    f"two plugins offer {hook[:-1]} {lazy.name!r}: {known[0]!r} ({known[1].path}) and {plugin!r} ({lazy.path}); "
                    "uninstall one or set MGX_PLUGINS"
                )
        return {name: lazy for name, (_, lazy) in found.items()}

    def load(self, hook: str, name: str) -> Any:
        """One object by name.  Errors: UnsupportedError for an unknown name, saying what to install; PluginError if it fails."""
        key = f"{hook}:{name}"
        if key not in self._loaded:
            offered = self.named(hook)
            if name not in offered:
                raise UnsupportedError(self._missing(hook[:-1], name, offered))
            self._loaded[key] = offered[name].load()
        return self._loaded[key]

    def _missing(self, what: str, name: str, offered: Iterable[str]) -> str:
        broken = [
            r
            for r in self.records
            if r.state != "ok" and (name == r.name or any(name in names for names in r.offers.values()))
        ]
        if broken:
            return f"the plugin for {what} {name!r} ({broken[0].distribution}) is {broken[0].state}: {broken[0].error}"
        have = ", ".join(map(repr, offered)) or "none"
        hint = f"pip install {KNOWN[name]}" if name in KNOWN else "install the package that brings it"
        return f"there is no {what} {name!r} (installed: {have}); {hint}"

    def target(self, name: str) -> Any:
        """A target by name."""
        key = f"target instance:{name}"
        if key not in self._loaded:
            self._loaded[key] = self.load("targets", name)()
        return self._loaded[key]

    def best_target(self) -> str:
        """The name of the target to use where nobody says: the highest rank among those that can work here.

        Errors: UnsupportedError if no target is installed, saying what to install.
        """
        offered = self.named("targets")
        for lazy in sorted(offered.values(), key=lambda t: (-t.rank, t.name)):
            try:
                if not lazy.available or resolve(lazy.available, lazy.name)():
                    return lazy.name
            except PluginError:
                continue
        raise UnsupportedError(self._missing("target", "ref", ()))

    def opset(self) -> OpSet:
        """The standard ops joined with those of all plugins."""
        if "opset" not in self._loaded:
            from ..ops import STANDARD

            ops = STANDARD
            for plugin, lazy in self._all("operations"):
                try:
                    ops = ops | lazy.load()
                except PluginError as error:
                    self._note(plugin, error)
            self._loaded["opset"] = ops
        found: OpSet = self._loaded["opset"]
        return found

    def kernels(self, target: str) -> Kernels:
        """Plans that plugins add to a target."""
        from ..targets.kernel import Kernels

        out = Kernels(target)
        for plugin, lazy in self._all("kernels", target=target):
            try:
                out = out + lazy.load()
            except PluginError as error:
                self._note(plugin, error)
        return out

    def passes(self, target: str, stage: str, options: CompileOptions | None = None) -> list[Pass]:
        """Passes that plugins add to a stage.  target: empty for those that hold for every target."""
        from ..options import CompileOptions

        return self._load_all("passes", target=target, stage=stage, options=options or CompileOptions())

    def rules(self, target: str, taken: Collection[str] = ()) -> Rules:
        """Rewriting rules that plugins add.  target: empty for those that hold for every target.

        taken: names that others have; a rule of such a name is called ``set.rule`` after its set, so that each can be switched.
        """
        from ..rules.engine import Rules

        names = set(taken)
        found = []
        for rules in self._load_all("rules", target=target):
            for rule in rules.rules:
                kept = rule._replace(name=f"{rules.name}.{rule.name}") if rule.name in names else rule
                names.add(kept.name)
                found.append(kept)
        return Rules("plugins", found)

    def converters(self, frontend: str) -> list[Any]:
        """Converters that plugins add to a frontend."""
        return self._load_all("converters", frontend=frontend)

    def _load_all(self, hook: str, **arguments: Any) -> list[Any]:
        out = []
        for plugin, lazy in self._all(hook, **arguments):
            try:
                out.append(lazy.load())
            except PluginError as error:
                self._note(plugin, error)
        return out

    def _note(self, plugin: str, error: PluginError) -> None:
        for record in self.records:
            if record.name == plugin:
                record.state, record.error, record.exception = "failed", str(error), error


_lock = threading.Lock()
_manager: list[Plugins] = []


def manager() -> Plugins:
    """The process's plugin manager, made when first asked for."""
    with _lock:
        if not _manager:
            _manager.append(Plugins())
        return _manager[0]
