"""Guarded calls into target code: results are validated, and errors name the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import MgxError, ParameterError, PluginError
from .target import Context, Target

__all__ = ["called", "checked_target", "failure", "target_and_context"]

T = TypeVar("T")


def called(target: Target, member: str, call: Callable[[], T]) -> T:
    """Calls a target's member and returns the result.

    member: its name, for messages.  Errors: PluginError for exceptions other than MgxError and MemoryError.
    """
    try:
        return call()
    except (MgxError, MemoryError):
        raise
    except Exception as error:
        raise failure(target, member, error) from error


def failure(target: Target, member: str, error: Exception) -> PluginError:
    """Returns the PluginError for an unexpected exception in a target's member."""
    kind = type(target)
    return PluginError(
        f"{member} of target {target.name!r} ({kind.__module__}.{kind.__qualname__}) failed: {type(error).__name__}: {error}"
    )


def checked_target(given: Any, source: str = "") -> Target:
    """Returns `given` if it is a usable target.

    source: the plugin that gave it, for the message.
    Errors: ParameterError that names the missing member; PluginError if it is from a plugin.
    """
    of = f" of {source}" if source else ""
    error: type[MgxError] = PluginError if source else ParameterError
    if isinstance(given, type) and issubclass(given, Target):
        raise error(f"a target{of} must be an instance, got the class {given.__qualname__}; create an instance with ()")
    if not isinstance(given, Target):
        raise error(f"a target{of} must be an instance of a class derived from mgx_core.Target, got {given!r}")
    if not isinstance(given.name, str) or not given.name:
        raise error(f"target {type(given).__qualname__}{of} must have a non-empty str as its name, got {given.name!r}")
    return given


def target_and_context(given: Any) -> tuple[Target, Any]:
    """Returns the target and the context to compile for, given either.  Errors: ParameterError if `given` is neither."""
    if isinstance(given, Context):
        return checked_target(given.target), given
    if not isinstance(given, (Target, type)):
        hint = f"pass get_target({given!r})" if isinstance(given, str) else "see get_target"
        raise ParameterError(
            f"compile takes a target or a context, got {given!r}: {hint} "
            "(targets derive from mgx_core.Target, contexts from mgx_core.Context)"
        )
    target = checked_target(given)
    context = called(target, "get_context", target.get_context)
    if not isinstance(context, Context):
        kind = type(target)
        raise PluginError(
            f"get_context of target {target.name!r} ({kind.__module__}.{kind.__qualname__}) must return "
            f"an instance of a class derived from mgx_core.Context, got {context!r}"
        )
    return target, context
