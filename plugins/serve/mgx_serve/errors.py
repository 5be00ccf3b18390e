"""Failures that clients see, each with its status in HTTP and in gRPC."""

from __future__ import annotations

from grpc import StatusCode

__all__ = [
    "BadRequest",
    "Busy",
    "DeadlinePassed",
    "Forbidden",
    "Internal",
    "NotFound",
    "ServeError",
    "TooLarge",
    "TooSlow",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "WrongMethod",
]


class ServeError(Exception):
    """A refusal or failure; its text is what the client reads."""

    http = 500
    grpc = StatusCode.INTERNAL
    retry_after: float | None = None


class BadRequest(ServeError):
    """The request is malformed or does not fit the model."""

    http, grpc = 400, StatusCode.INVALID_ARGUMENT


class Unauthenticated(ServeError):
    """No token, or one that nobody was given."""

    http, grpc = 401, StatusCode.UNAUTHENTICATED


class Forbidden(ServeError):
    """The token's owner may not do this."""

    http, grpc = 403, StatusCode.PERMISSION_DENIED


class NotFound(ServeError):
    """There is no such model, version or place."""

    http, grpc = 404, StatusCode.NOT_FOUND


class WrongMethod(ServeError):
    """The path is there for other methods of HTTP."""

    http, grpc = 405, StatusCode.UNIMPLEMENTED


class TooLarge(ServeError):
    """The request has more bytes than the server takes."""

    http, grpc = 413, StatusCode.RESOURCE_EXHAUSTED


class TooSlow(ServeError):
    """The request did not come within the time that the server waits for it."""

    http, grpc = 408, StatusCode.DEADLINE_EXCEEDED


class Busy(ServeError):
    """The model's queue is full; `retry_after` seconds later there may be room."""

    http, grpc = 429, StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Internal(ServeError):
    """The model failed; the reason is in the server's log."""


class Unsupported(ServeError):
    """A part of the protocol that this server does not have."""

    http, grpc = 501, StatusCode.UNIMPLEMENTED


class Unavailable(ServeError):
    """The model or the server is not ready."""

    http, grpc = 503, StatusCode.UNAVAILABLE


class DeadlinePassed(ServeError):
    """The request's own time limit ended before its run began."""

    http, grpc = 504, StatusCode.DEADLINE_EXCEEDED
