"""Hook specifications of plugins, and the records that hooks return."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import pluggy

from ..errors import PluginError
from ..records import dataclass

if TYPE_CHECKING:
    from ..options import CompileOptions

__all__ = ["GROUP", "INTERFACE", "Hooks", "Lazy", "hookimpl", "hookspec", "resolve"]

GROUP: Final = "mgx"
INTERFACE: Final = 1  # plugins declare it as `mgx_interface`; this version and the previous one are supported

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True)
class Lazy:
    """A lazily loaded object of a plugin: its name and ``package.module:attribute``, imported on first use.

    files: for frontends, additional file extensions, and names of files (``model.bin``) that identify a folder of this format.
    rank: for targets, the priority as default target (the highest wins); available: optional ``module:function`` that checks
    cheaply whether the target works on this machine; own_memory: True if its devices have their own memory
    (`Target.own_memory`), in which callers may allocate arguments.
    """

    name: str
    path: str
    about: str = ""
    rank: int = 0
    available: str = ""
    files: tuple[str, ...] = ()
    own_memory: bool = False

    def load(self) -> Any:
        """Imports and returns the object.  Errors: PluginError with the original exception as its cause."""
        return resolve(self.path, f"{self.name!r}")


def resolve(path: str, what: str) -> Any:
    """Imports and returns the object at ``module:attribute``.  Errors: PluginError."""
    module, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except (Exception, SystemExit) as error:
        raise PluginError(f"{what} could not be loaded from {path!r}: {type(error).__name__}: {error}") from error


class Hooks:
    """Specifications of the hooks that a plugin may implement; all are optional."""

    @hookspec
    def targets(self) -> list[Lazy]:
        """Returns targets by name; the object is a class or function without required arguments."""
        return []

    @hookspec
    def frontends(self) -> list[Lazy]:
        """Returns frontends by format name; the object has `parse`, `parse_buffer` and `operators`."""
        return []

    @hookspec
    def operations(self) -> list[Lazy]:
        """Returns op sets; the object is an `OpSet`."""
        return []

    @hookspec
    def kernels(self, target: str) -> list[Lazy]:
        """Returns kernel plans for the named target; the object is a `Kernels`."""
        return []

    @hookspec
    def passes(self, target: str, stage: str, options: CompileOptions) -> list[Lazy]:
        """Returns passes for a stage; the object is a pass.

        An implementation declares only the parameters that it needs.  target: empty for target-independent optimization.
        """
        return []

    @hookspec
    def rules(self, target: str) -> list[Lazy]:
        """Returns rewrite rules for the stage simplify; the object is a `Rules`.  target: as for `passes`."""
        return []

    @hookspec
    def converters(self, frontend: str) -> list[Lazy]:
        """Returns converters for the named frontend, which defines the object's type."""
        return []

    @hookspec
    def commands(self) -> list[Lazy]:
        """Returns commands of the driver; the object is a click command."""
        return []
