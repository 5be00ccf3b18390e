"""Caller-owned memory whose contents a program holds as constants."""

from __future__ import annotations

__all__ = ["Watch"]


class Watch:
    """A mark of what memory held when it was taken (`Context.watch`), by which runners notice that it was written to since.

    Required: `changed`.
    """

    @property
    def changed(self) -> bool:
        """True once a run has found other contents.  It is asked without waiting for runs that are under way."""
        raise NotImplementedError(f"{type(self).__name__} derives from Watch and defines no changed")
