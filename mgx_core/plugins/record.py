"""Records of plugins: their state, offers and failures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from typing import Any, Final

from ..errors import PluginError, suggestion
from ..named_tuples import NamedTuple
from ..records import dataclass
from .hooks import INTERFACE, Lazy

__all__ = ["Failure", "PluginRecord", "kind_of"]

WITH_ARGUMENTS: Final = ("kernels", "passes", "rules", "converters")  # hooks with arguments


class Failure(NamedTuple):
    """A failure of a plugin; hook: empty for the plugin itself."""

    hook: str
    message: str


@dataclass
class PluginRecord:
    """One installed plugin: its entry point, distribution, state and failures."""

    name: str
    module: str
    distribution: str
    version: str
    state: str  # "ok", "failed", "disabled"
    error: str = ""
    exception: BaseException | None = field(default=None, repr=False)
    offers: dict[str, list[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The name in pluggy; includes the distribution, since entry points of different distributions may have equal names."""
        return f"{self.distribution}/{self.name}"

    @property
    def title(self) -> str:
        """The plugin's name for messages."""
        return f"plugin {self.name!r}" + (f" of {self.distribution}" if self.distribution != "-" else "")

    def fail(self, hook: str, message: str, exception: BaseException | None = None) -> None:
        """Records a failure; keeps each message once, and the first exception."""
        self.state = "failed"
        if all(message != f.message for f in self.failures):
            self.failures.append(Failure(hook, message))
        self.error = "; ".join(f.message for f in self.failures)
        self.exception = self.exception or exception

    def check_interface(self, plugin: Any, required: bool) -> None:
        """Checks the plugin's interface version.  Errors: PluginError.

        required: False for plugins registered through the API, which may omit it.
        """
        served = f"this core supports {INTERFACE} and {INTERFACE - 1}"
        if not hasattr(plugin, "mgx_interface"):
            if required:
                raise PluginError(
                    f"declares no interface version; add `mgx_interface = {INTERFACE}` to its module ({served})"
                )
            return
        made_for = plugin.mgx_interface
        if isinstance(made_for, bool) or not isinstance(made_for, int):
            raise PluginError(f"mgx_interface must be an int, got {made_for!r}; {served}")
        if made_for not in (INTERFACE, INTERFACE - 1):
            raise PluginError(
                f"requires plugin interface {made_for}; {served}: install matching versions of the package and mgx-core"
            )

    def check_hooks(self, implemented: Iterable[str], known: Collection[str]) -> None:
        """Records a failure for each implemented hook that does not exist."""
        for hook in implemented:
            if hook not in known:
                self.fail(hook, f"there is no hook {hook!r}; {suggestion(hook, sorted(known))}")

    def check_parameters(self, hook: str, function: Callable[..., Any], known: Collection[str]) -> None:
        """Checks that a hook requires only known parameters.  Errors: PluginError."""
        for p in inspect.signature(function).parameters.values():
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in known:
                have = ", ".join(known) or "none"
                raise PluginError(f"hook {hook} has no parameter {p.name!r}; it may declare: {have}")

    def call(self, hook: str, function: Callable[..., Any], arguments: dict[str, Any]) -> list[Lazy]:
        """Calls a hook; returns its valid records, and records invalid ones as failures."""
        try:
            given = function(**arguments)
            if given is None and hook in WITH_ARGUMENTS:  # nothing for these arguments
                return []
            if isinstance(given, (str, bytes, dict)):
                raise PluginError(f"must return a list of Lazy records, got {given!r}")
            items = list(given)
        except (Exception, SystemExit) as error:
            if isinstance(error, PluginError):
                self.fail(hook, f"hook {hook} {error.message}", error)
            elif "given" in locals():
                self.fail(hook, f"hook {hook} must return a list of Lazy records, got {given!r}", error)
            else:
                self.fail(hook, f"hook {hook}: {type(error).__name__}: {error}", error)
            return []
        return [item for n, item in enumerate(items) if self._is_lazy(hook, n, item)]

    def _is_lazy(self, hook: str, n: int, item: Any) -> bool:
        if not isinstance(item, Lazy):
            self.fail(hook, f"hook {hook} must return a list of Lazy records, got {item!r} as number {n}")
            return False
        if not (isinstance(item.name, str) and item.name and isinstance(item.path, str)):
            self.fail(hook, f"hook {hook}: name and path of a Lazy record must be str, got {item!r}")
            return False
        return True

    def load(self, hook: str, lazy: Lazy, kind: type | None = None) -> Any:
        """Loads and validates the object of a Lazy record.

        kind: its required type; None: that of the hook.
        Errors: PluginError, which is also recorded.
        """
        try:
            found = lazy.load()
            wanted = kind or kind_of(hook)
            wrong = "" if wanted is None else _type_error(found, wanted)
            if hook in ("targets", "frontends") and not callable(found):
                wrong = f"must be a class or a factory function, got {found!r}"
            elif hook == "passes" and not wrong and not isinstance(getattr(found, "name", None), str):
                wrong = f"must have a name of type str, got {found!r}"
            if wrong:
                raise PluginError(f"{lazy.name!r} of hook {hook} ({lazy.path}) {wrong}")
        except PluginError as error:
            self.fail(hook, error.message, error)
            raise error.located(self.title) from error.__cause__
        return found


def kind_of(hook: str) -> type | None:
    """Returns the type of a hook's objects; None if the core does not define it."""
    if hook == "operations":
        from ..ops.opset import OpSet

        return OpSet
    if hook == "kernels":
        from ..targets.kernel_table import Kernels

        return Kernels
    if hook == "passes":
        from ..passes.interface import Pass

        return Pass
    if hook == "rules":
        from ..rules.engine import Rules

        return Rules
    return None


def _type_error(found: Any, wanted: type) -> str:
    """Returns an error message if an object is not an instance of a type; else an empty string."""
    if isinstance(found, wanted):
        return ""
    if isinstance(found, type) and issubclass(found, wanted):
        return f"must be an instance, got the class {found.__qualname__}; create an instance with {found.__qualname__}(...)"
    return f"must be an instance of {wanted.__name__} ({wanted.__module__}), got {found!r}"
