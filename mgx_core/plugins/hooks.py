"""The hooks that plugins implement, and the records that they return."""

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
INTERFACE: Final = (
    1  # plugins state the version they were made for as `mgx_interface`; this and the one before are served
)

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@dataclass(frozen=True)
class Lazy:
    """Something that a plugin offers under a name: ``package.module:attribute``, loaded when first used.

    files: among frontends, more endings of the names of files that it reads, and whole names (``model.bin``) of files by which
    folders are known.
    rank: among targets, which one is the default where several are installed (higher wins); available: an optional
    ``module:function`` that says cheaply whether it can work on this machine; own_memory: True for one whose devices have memory
    that is not the host's (`Target.own_memory`), where callers may put arguments.
    """

    name: str
    path: str
    about: str = ""
    rank: int = 0
    available: str = ""
    files: tuple[str, ...] = ()
    own_memory: bool = False

    def load(self) -> Any:
        """Returns the object itself.  Errors: PluginError with the original exception as its cause."""
        return resolve(self.path, f"{self.name!r}")


def resolve(path: str, what: str) -> Any:
    """Returns the object at ``module:attribute``.  Errors: PluginError."""
    module, _, attribute = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except (Exception, SystemExit) as error:
        raise PluginError(f"{what} could not be loaded from {path!r}: {type(error).__name__}: {error}") from error


class Hooks:
    """The hooks that a plugin may implement, each of them optional."""

    @hookspec
    def targets(self) -> list[Lazy]:
        """Returns targets by name; the object is a class or function without required arguments."""
        return []

    @hookspec
    def frontends(self) -> list[Lazy]:
        """Frontends by format name; the object has `parse`, `parse_buffer` and `operators`."""
        return []

    @hookspec
    def operations(self) -> list[Lazy]:
        """Returns op sets; the object is an `OpSet`."""
        return []

    @hookspec
    def kernels(self, target: str) -> list[Lazy]:
        """Plans for ops on a target by its name; the object is a `Kernels`."""
        return []

    @hookspec
    def passes(self, target: str, stage: str, options: CompileOptions) -> list[Lazy]:
        """Passes for a stage; the object is a pass.

        A hook declares the parameters that it needs.  target: empty where programs are optimised for none yet.
        """
        return []

    @hookspec
    def rules(self, target: str) -> list[Lazy]:
        """Rewriting rules of the stage simplify; the object is a `Rules`.  target: as for `passes`."""
        return []

    @hookspec
    def converters(self, frontend: str) -> list[Lazy]:
        """Returns converters for a frontend by its name; that frontend defines the object's type."""
        return []

    @hookspec
    def commands(self) -> list[Lazy]:
        """Commands of the driver; the object is a click command."""
        return []
