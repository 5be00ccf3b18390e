"""The exception hierarchy; every error that mgx raises deliberately derives from `MgxError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from .named_tuples import NamedTuple

__all__ = [
    "DeviceError", "MgxError", "No", "ParameterError", "ParseError", "PassError", "PluginError", "Refused",
    "ShapeError", "StoreError", "UnrankedError", "UnsupportedError", "counted", "or_refused", "suggestion", "takes",
]  # fmt: skip

T = TypeVar("T")

FEW: Final = 24  # names that a message lists in full; no frontend has more options


class No(NamedTuple):
    """A refusal with its reason; the reason reaches the user."""

    why: str


class MgxError(RuntimeError):
    """Base class of all errors raised by mgx; a RuntimeError, which code written for other engines catches.

    A message reports the location (source node, op or file), the requirement and the value found.  Callers add locations with
    `located`, so that code that raises only needs to know its operands.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.places: tuple[str, ...] = ()

    def located(self, place: str) -> MgxError:
        """Adds a location (outermost last), e.g. ``node 'conv1' (Conv)``; returns the error for re-raising."""
        if place not in self.places:
            # the same place, described in more detail
            fuller = bool(self.places) and place.startswith(f"{self.places[-1]} ")
            self.places = (*(self.places[:-1] if fuller else self.places), place)
        return self

    def at_nodes(self, names: Iterable[str]) -> MgxError:
        """Adds an instruction's source nodes as location, if there are any; returns the error."""
        nodes = ", ".join(map(repr, names))
        return self.located(f"node {nodes}") if nodes else self

    def __str__(self) -> str:
        return ": ".join((*reversed(self.places), self.message))


class ShapeError(MgxError, ValueError):
    """Operands with dtypes, ranks or extents that an operation does not accept."""


class UnrankedError(ShapeError):
    """A rank is required that is unknown before run time."""


class ParseError(MgxError, ValueError):
    """A model file or program text that is damaged, malformed or breaks a limit."""


class UnsupportedError(MgxError, NotImplementedError):
    """A valid request that no installed part of mgx supports."""


class Refused(UnsupportedError):
    """A refusal as an exception, which unwinds nested calls of a kernel's emission up to the code that tries alternatives.

    no: the refusal.
    """

    def __init__(self, no: No | str) -> None:
        self.no = no if isinstance(no, No) else No(no)
        super().__init__(self.no.why)


def or_refused(found: T | No) -> T:
    """Returns the argument.  Errors: Refused if it is a refusal."""
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


def counted(number: int, noun: str) -> str:
    """Returns a number and its noun, in the plural unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def takes(least: int, most: int | None, names: Iterable[str], got: int) -> str:
    """Returns the end of an error message for a wrong number of inputs; most: None if unlimited."""
    if most is None:
        required = f"{least} or more inputs"
    else:
        required = counted(least, "input") if least == most else f"{least} to {most} inputs"
    return f"takes {required} ({', '.join(names)}), got {got}"


def suggestion(name: str, known: Iterable[str], listing: str = "") -> str:
    """Returns the end of an error message for an unknown name: similar names, or all if there are few.

    listing: the command that lists all names.
    """
    import difflib  # only needed for messages

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, 3)
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif len(names) <= FEW:
        return f"known are {', '.join(names)}" if names else "there are none"
    else:
        hint = f"none of the {len(names)} known names is similar"
    return f"{hint} ({listing} lists them all)" if listing and len(names) > FEW else hint
