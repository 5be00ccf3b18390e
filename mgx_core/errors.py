"""The exception tree; every error that mgx raises on purpose derives from `MgxError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

__all__ = [
    "DeviceError", "MgxError", "No", "ParameterError", "ParseError", "PassError", "PluginError", "Refused",
    "ShapeError", "StoreError", "UnrankedError", "UnsupportedError", "or_refused", "suggestion",
]  # fmt: skip

T = TypeVar("T")

FEW: Final = 16  # names that a message lists in full


class No(NamedTuple):
    """A refusal with its reason; the reason reaches the user."""

    why: str


class MgxError(RuntimeError):
    """Root of all errors raised by mgx; a RuntimeError, which code written for other engines catches.

    A message says where (source node, op text or file), what was required and what was got.  Layers that know more about
    the place add it with `located`, so that the innermost rule needs to know only its own operands.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.places: tuple[str, ...] = ()

    def located(self, place: str) -> MgxError:
        """The same error with one more place (outermost last), e.g. ``node 'conv1' (Conv)``; returns itself for re-raising."""
        if place not in self.places:
            fuller = bool(self.places) and place.startswith(
                f"{self.places[-1]} "
            )  # the same place with more said of it
            self.places = (*(self.places[:-1] if fuller else self.places), place)
        return self

    def at_nodes(self, names: Iterable[str]) -> MgxError:
        """Returns the same error, located at the nodes of the model that an instruction comes from; as it is without any."""
        nodes = ", ".join(map(repr, names))
        return self.located(f"node {nodes}") if nodes else self

    def __str__(self) -> str:
        return ": ".join((*reversed(self.places), self.message))


class ShapeError(MgxError, ValueError):
    """Operands whose dtypes, ranks or extents do not fit an operation."""


class UnrankedError(ShapeError):
    """A rule needed the rank of a value whose rank is known only at run time."""


class ParseError(MgxError, ValueError):
    """A model file or program text that is damaged, malformed or breaks a limit."""


class UnsupportedError(MgxError, NotImplementedError):
    """A well-formed request for something that no installed part of mgx can do."""


class Refused(UnsupportedError):
    """A refusal that leaves nested calls: raised while a kernel is emitted, caught where another way is tried.

    no: the refusal; a function that is called directly returns it instead.
    """

    def __init__(self, no: No | str) -> None:
        self.no = no if isinstance(no, No) else No(no)
        super().__init__(self.no.why)


def or_refused(found: T | No) -> T:
    """Returns what was found.  Errors: Refused for a refusal."""
    if isinstance(found, No):
        raise Refused(found)
    return found


class PassError(MgxError):
    """A pass or rule that broke an invariant of its stage."""


class PluginError(MgxError):
    """A plugin that is missing, failed to load or conflicts with another."""


class ParameterError(MgxError, ValueError):
    """A call with a missing, unknown or ill-typed parameter."""


class DeviceError(MgxError, RuntimeError):
    """A device, driver or allocation failure while compiling or running."""


class StoreError(MgxError, ValueError):
    """A program file that is damaged, too new, or cannot be written."""


def suggestion(name: str, known: Iterable[str], listing: str = "") -> str:
    """Returns the end of a message on an unknown name: near names, all of them where there are few, and what lists them all.

    listing: the command that prints every name.
    """
    import difflib  # only messages need it

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, 3)
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif len(names) <= FEW:
        return f"known are {', '.join(names)}" if names else "there are none"
    else:
        hint = f"none of the {len(names)} known names is near"
    return f"{hint} ({listing} lists them all)" if listing and len(names) > FEW else hint
