"""Plugin manager: discovers plugins by entry point and loads their objects on demand.

An entry point of the group ``mgx`` names a module with pluggy hook implementations that return `Lazy` records; listing them
imports nothing else.  A failure is recorded for its plugin and does not affect others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pluggy

from ..errors import MgxError, PluginError, UnsupportedError
from ..settings import setting
from .entry_points import entries
from .hooks import GROUP, INTERFACE, Hooks, Lazy, hookimpl, hookspec, resolve
from .missing import absent, missing, no_target
from .record import WITH_ARGUMENTS, PluginRecord

if TYPE_CHECKING:
    from ..ops.opset import OpSet
    from ..options import CompileOptions
    from ..passes.interface import Pass
    from ..rules.engine import Rule, Rules
    from ..targets.kernel_table import Kernels
    from ..targets.target import Target

__all__ = ["GROUP", "INTERFACE", "Lazy", "PluginRecord", "Plugins", "hookimpl", "hookspec", "manager"]

T = TypeVar("T")

WITHOUT_ARGUMENTS: Final = ("targets", "frontends", "operations", "commands")  # hooks without arguments


class Plugins:
    """Discovers plugins, loads their objects on demand, and records their failures."""

    def __init__(self, discover: bool = True) -> None:
        self._hooks = pluggy.PluginManager(GROUP)
        self._hooks.add_hookspecs(Hooks)
        self.records: list[PluginRecord] = []
        self._registered: dict[str, PluginRecord] = {}  # by their names in pluggy
        self._loaded: dict[str, Any] = {}
        self._reported: set[str] = set()  # failures that a compilation has logged
        if discover:
            self._discover()

    def _discover(self) -> None:
        chosen = setting("MGX_PLUGINS")
        names = {n.strip() for n in chosen.split(",") if n.strip()}
        denied = {n[1:] for n in names if n.startswith("-")}
        allowed = names - {"-" + n for n in denied}
        for entry in sorted(entries(GROUP), key=lambda e: (e.name, e.distribution)):
            record = PluginRecord(entry.name, entry.value, entry.distribution, entry.version, "ok")
            self.records.append(record)
            if entry.name in denied or (allowed and entry.name not in allowed):
                record.state, record.error = "disabled", "left out by MGX_PLUGINS"
                continue
            try:
                self._register(record, entry.load(), required=True)
            except (Exception, SystemExit) as error:
                record.fail(
                    "", error.message if isinstance(error, PluginError) else f"{type(error).__name__}: {error}", error
                )
        for name in sorted(allowed - {r.name for r in self.records}):
            record = PluginRecord(name, "", "-", "-", "failed")
            record.fail("", "MGX_PLUGINS names it, but no plugin of that name is installed")
            self.records.append(record)

    def _register(self, record: PluginRecord, plugin: Any, required: bool) -> None:
        record.check_interface(plugin, required)
        known = self._hooks.get_name(plugin)
        if known is not None:
            raise PluginError(f"{record.module} is registered already, by {self._registered[known].title}")
        if record.key in self._registered:
            raise PluginError(f"another plugin is registered as {record.key}")
        for hook in (*WITHOUT_ARGUMENTS, *WITH_ARGUMENTS):
            if hasattr(plugin, hook) and self._hooks.parse_hookimpl_opts(plugin, hook) is not None:
                record.check_parameters(hook, getattr(plugin, hook), getattr(self._hooks.hook, hook).spec.argnames)
        self._hooks.register(plugin, record.key)
        self._registered[record.key] = record
        record.check_hooks(
            [c.name for c in self._hooks.get_hookcallers(plugin) or ()], (*WITHOUT_ARGUMENTS, *WITH_ARGUMENTS)
        )
        for hook in (*WITHOUT_ARGUMENTS, *WITH_ARGUMENTS):  # hooks with arguments are called on demand
            for asked, implementation in self._implementations(hook):
                if asked is record:
                    lazies = record.call(hook, implementation.function, {}) if hook in WITHOUT_ARGUMENTS else []
                    record.offers[hook] = [lazy.name for lazy in lazies]

    def register(self, plugin: Any, name: str | None = None) -> None:
        """Registers a plugin object (tests, notebooks).  Errors: PluginError for an unsupported interface version."""
        record = PluginRecord(str(name or getattr(plugin, "__name__", repr(plugin))), repr(plugin), "-", "-", "ok")
        self._register(record, plugin, required=False)
        self.records.append(record)
        self._loaded.clear()

    # lookup

    def _implementations(self, hook: str) -> list[tuple[PluginRecord, Any]]:
        caller = getattr(self._hooks.hook, hook)
        return [(self._registered[i.plugin_name], i) for i in caller.get_hookimpls()]

    def _all(self, hook: str, **arguments: Any) -> list[tuple[PluginRecord, Lazy]]:
        found: list[tuple[PluginRecord, Lazy]] = []
        for record, implementation in self._implementations(hook):
            given = {k: arguments[k] for k in implementation.argnames if k in arguments}
            found += [(record, lazy) for lazy in record.call(hook, implementation.function, given)]
        return found

    def offered(self, hook: str) -> list[tuple[str, Lazy]]:
        """Returns the records of a hook without arguments, with the plugins' names."""
        return [(record.name, lazy) for record, lazy in self._all(hook)]

    def offers_to(self, hook: str, **asked: Any) -> list[Lazy]:
        """Returns the records of a hook for its arguments."""
        return [lazy for _, lazy in self._all(hook, **asked)]

    def _offers(self, hook: str) -> tuple[dict[str, tuple[PluginRecord, Lazy]], dict[str, str]]:
        """Returns the offers of a hook by name, and error messages for names with several offers."""
        found: dict[str, tuple[PluginRecord, Lazy]] = {}
        contested: dict[str, str] = {}
        for record, lazy in self._all(hook):
            first, other = found.setdefault(lazy.name, (record, lazy))
            if other is not lazy:
                contested[lazy.name] = (
                    f"two plugins offer {hook[:-1]} {lazy.name!r}: {first.title} ({other.path}) and {record.title} "
                    f"({lazy.path}); uninstall one or set MGX_PLUGINS"
                )
                for one in (first, record):
                    one.fail(hook, contested[lazy.name])
        return {n: o for n, o in found.items() if n not in contested}, contested

    def named(self, hook: str) -> dict[str, Lazy]:
        """Returns the records of a hook by name, without ambiguous names."""
        return {name: lazy for name, (_, lazy) in self._offers(hook)[0].items()}

    def names(self, hook: str) -> list[str]:
        """Returns all names offered through a hook, including ambiguous ones."""
        return list(dict.fromkeys(lazy.name for _, lazy in self._all(hook)))

    def load(self, hook: str, name: str, kind: type | None = None) -> Any:
        """Loads an object by name.

        kind: its required type; None: that of the hook.
        Errors: UnsupportedError for an unknown name, with the package to install; PluginError if loading fails or two plugins
        offer the name.
        """
        return self._cached(f"{hook}:{name}", lambda: self._found(hook, name, kind)[1])

    def _cached(self, key: str, make: Callable[[], T]) -> T:
        """Returns the cached value of a key, or creates it; all threads get the same value.

        No lock is held while it is created: that may import modules, and other threads may hold import locks.
        """
        found: T | None = self._loaded.get(key)
        return self._loaded.setdefault(key, make()) if found is None else found

    def _found(self, hook: str, name: str, kind: type | None = None) -> tuple[PluginRecord, Any]:
        offered, contested = self._offers(hook)
        if name in contested:
            raise PluginError(contested[name])
        if name not in offered:
            raise UnsupportedError(missing(self.records, hook[:-1], name, offered))
        record, lazy = offered[name]
        return record, record.load(hook, lazy, kind)

    def make(self, hook: str, name: str, checked: Callable[[Any, str], T]) -> T:
        """Calls a class or function of a hook and returns the object.

        checked: validates the object; gets the plugin's title for messages.
        Errors: as `load`; PluginError if the call fails or the object is invalid.
        """
        record, function = self._found(hook, name)
        try:
            return checked(function(), record.title)
        except MgxError as error:
            record.fail(hook, str(error), error)
            raise
        except (Exception, SystemExit) as error:
            wrong = f"{record.title}: {hook[:-1]} {name!r} could not be created: {type(error).__name__}: {error}"
            record.fail(hook, wrong, error)
            raise PluginError(wrong) from error

    def target(self, name: str) -> Any:
        """Returns the target of a name, created once.  Errors: as `make`."""
        from ..targets.calls import checked_target

        def checked(given: Any, source: str) -> Target:
            return _check_name(checked_target(given, source), name, source)

        return self._cached(f"target instance:{name}", lambda: self.make("targets", name, checked))

    def context(self, name: str) -> Any:
        """Returns a target's context, created once and shared by the process.  Errors: as `target`."""
        from ..targets.calls import called

        target = self.target(name)
        return self._cached(f"context:{name}", lambda: called(target, "get_context", target.get_context))

    def memory_targets(self) -> list[str]:
        """Returns the names of targets with device memory, highest rank first."""
        offered = (lazy for _, lazy in self._offers("targets")[0].values() if lazy.own_memory)
        return [lazy.name for lazy in sorted(offered, key=lambda lazy: (-lazy.rank, lazy.name))]

    def memory_target(self) -> str:
        """Returns the name of the first target with device memory.  Errors: UnsupportedError if there is none."""
        for name in self.memory_targets():
            return name
        raise UnsupportedError(
            f"device memory is required: {missing(self.records, 'target', 'gpu', self.names('targets'))}"
        )

    def best_target(self) -> str:
        """Returns the name of the default target: the available one of the highest rank.

        Errors: UnsupportedError if no target is available, with the package to install.
        """
        offered = self._offers("targets")[0]
        for record, lazy in sorted(offered.values(), key=lambda o: (-o[1].rank, o[1].name)):
            try:
                if not lazy.available or resolve(lazy.available, lazy.name)():
                    return lazy.name
            except (Exception, SystemExit) as error:
                record.fail(
                    "targets", f"target {lazy.name!r}: {lazy.available} failed: {type(error).__name__}: {error}", error
                )
        raise UnsupportedError(no_target(self.records, offered))

    def opset(self) -> OpSet:
        """Returns the standard ops with those of all plugins; ambiguous names raise an error on lookup.

        Plugins' ops are imported on the first lookup of a nonstandard name, or when all ops are listed.
        """
        from ..ops import STANDARD
        from .merge_opsets import merge_opsets

        def every() -> OpSet:
            ops = merge_opsets(STANDARD, self.tables("operations"))
            return ops.lacking(absent(self.records, "operations"))

        return self._cached("opset", lambda: STANDARD.followed_by(every))

    def kernels(self, target: str) -> Kernels:
        """Returns the plans that plugins add to a target."""
        from ..targets.kernel_table import Kernels

        out = Kernels(target)
        for _, found in self.tables("kernels", target=target):
            out = out + found
        return out

    def passes(self, target: str, stage: str, options: CompileOptions | None = None) -> list[Pass]:
        """Returns the passes that plugins add to a stage.  target: empty: those for every target."""
        from ..options import CompileOptions

        given = options or CompileOptions()
        return [p for _, p in self.tables("passes", target=target, stage=stage, options=given)]

    def rules(self, target: str, taken: Collection[str] = ()) -> Rules:
        """Returns the rewrite rules that plugins add.  target: empty: those for every target.

        taken: names in use; a rule with such a name is renamed ``table.rule``, so that each can be disabled by name.
        """
        from ..rules.engine import Rules

        found: list[Rule] = []
        for _, rules in self.tables("rules", target=target):
            found += rules.apart_from({*taken, *(r.name for r in found)}).rules
        return Rules("plugins", found)

    def converters(self, frontend: str, kind: type | None = None) -> list[Any]:
        """Returns the converters that plugins add to a frontend.

        kind: their required type; others are recorded as failures and omitted.
        """
        return [c for _, c in self.tables("converters", kind, frontend=frontend)]

    def tables(self, hook: str, kind: type | None = None, **arguments: Any) -> list[tuple[PluginRecord, Any]]:
        """Returns the objects of a hook with their plugins' records; objects that fail to load are recorded and omitted.

        kind: their required type; arguments: of the hook.
        """
        out = []
        for record, lazy in self._all(hook, **arguments):
            try:
                out.append((record, record.load(hook, lazy, kind)))
            except PluginError:
                continue
        return out

    def lost(self, *hooks: str) -> list[str]:
        """Returns the messages of all failures of some hooks so far."""
        return [f"{r.title}: {f.message}" for r in self.records for f in r.failures if f.hook in hooks]

    def first_report(self, message: str) -> bool:
        """Returns True the first time that a message of `lost` is passed, so that every later compilation omits the warning."""
        if message in self._reported:
            return False
        self._reported.add(message)
        return True


def _check_name(target: Target, name: str, source: str) -> Target:
    """Checks that a target has the name of its record, which files store.  Errors: PluginError."""
    if target.name != name:
        raise PluginError(
            f"target {name!r} of {source} must have the name {name!r} under which it is offered, got {target.name!r}"
        )
    return target


_lock = threading.Lock()
_manager: list[Plugins] = []


def manager() -> Plugins:
    """Returns the process's plugin manager, created on first use."""
    with _lock:
        if not _manager:
            _manager.append(Plugins())
        return _manager[0]
