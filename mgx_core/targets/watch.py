"""Change detection for caller-owned memory that a program was specialized for."""

from __future__ import annotations

__all__ = ["Watch"]


class Watch:
    """Detects writes to memory since its creation (`Context.watch`).

    Required: `changed`.
    """

    @property
    def changed(self) -> bool:
        """True once a run has found other contents; does not wait for runs in progress."""
        raise NotImplementedError(f"{type(self).__name__} derives from Watch and defines no changed")
