"""Errors that clients see, each with its HTTP and gRPC status."""

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
    """Base class of client-visible errors; the text is sent to the client."""

    http = 500
    grpc = StatusCode.INTERNAL
    retry_after: float | None = None


class BadRequest(ServeError):
    """The request is malformed or does not fit the model."""

    http, grpc = 400, StatusCode.INVALID_ARGUMENT


class Unauthenticated(ServeError):
    """The request has no token or an unknown one."""

    http, grpc = 401, StatusCode.UNAUTHENTICATED


class Forbidden(ServeError):
    """The token does not grant this operation."""

    http, grpc = 403, StatusCode.PERMISSION_DENIED


class NotFound(ServeError):
    """There is no such model, version or path."""

    http, grpc = 404, StatusCode.NOT_FOUND


class WrongMethod(ServeError):
    """The path exists but does not support this HTTP method."""

    http, grpc = 405, StatusCode.UNIMPLEMENTED


class TooLarge(ServeError):
    """The request exceeds the size limit."""

    http, grpc = 413, StatusCode.RESOURCE_EXHAUSTED


class TooSlow(ServeError):
    """The request was not received within the server's timeout."""

    http, grpc = 408, StatusCode.DEADLINE_EXCEEDED


class Busy(ServeError):
    """The model's queue is full; clients may retry after `retry_after` seconds."""

    http, grpc = 429, StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, text: str, retry_after: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Internal(ServeError):
    """The run failed; the cause is in the server's log."""


class Unsupported(ServeError):
    """A part of the protocol that this server does not implement."""

    http, grpc = 501, StatusCode.UNIMPLEMENTED


class Unavailable(ServeError):
    """The model or the server is not ready."""

    http, grpc = 503, StatusCode.UNAVAILABLE


class DeadlinePassed(ServeError):
    """The request timed out before its run started."""

    http, grpc = 504, StatusCode.DEADLINE_EXCEEDED
