"""Authentication and per-model authorization by bearer tokens."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from .errors import Forbidden, Unauthenticated

__all__ = ["Access"]

EVERYTHING = "*"


class Access:
    """The configured tokens and the models each may use.  Without tokens, every request is allowed.

    tokens: token -> model names; "*" grants all models, and loading and unloading.
    """

    def __init__(self, tokens: Mapping[str, tuple[str, ...]]) -> None:
        self._tokens = [(token.encode(), frozenset(models)) for token, models in tokens.items()]

    @property
    def required(self) -> bool:
        """True if requests need a token."""
        return bool(self._tokens)

    def check(self, header: str | None, model: str = EVERYTHING) -> None:
        """Checks that a request's token permits access to a model; permits everything if there are no tokens.

        header: the ``Authorization`` header, ``Bearer TOKEN``; model: "*" for operations on the whole server.
        Errors: Unauthenticated, Forbidden.
        """
        if not self._tokens:
            return
        scheme, _, given = (header or "").partition(" ")
        offered = given.strip().encode()
        allowed: frozenset[str] | None = None
        # compares with every token, each in constant time, so that timing reveals neither a token nor its position
        for token, models in self._tokens:
            if hmac.compare_digest(token, offered) and scheme.lower() == "bearer":
                allowed = models
        if allowed is None:
            raise Unauthenticated("a valid token is required: Authorization: Bearer TOKEN")
        if EVERYTHING not in allowed and model not in allowed:
            raise Forbidden("this token does not allow that")
