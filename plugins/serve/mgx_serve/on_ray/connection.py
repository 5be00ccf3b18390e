"""Connects a process to a running Ray cluster."""

from __future__ import annotations

from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from ..errors import Unavailable

__all__ = ["Connection"]


class Connection:
    """A connection of this process to the cluster at an address."""

    def __init__(self, address: str) -> None:
        ray.init(address=address, namespace="mgx", log_to_driver=False)
        self._handles: dict[str, Any] = {}

    def handle(self, application: str) -> Any:
        """Returns the handle of an application; blocks.  Errors: Unavailable if there is no such application."""
        if application not in self._handles:
            try:
                self._handles[application] = serve.get_app_handle(application)
            except RayServeException as error:
                raise Unavailable(f"the model was unloaded: {error}") from error
        return self._handles[application]
