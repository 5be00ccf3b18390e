"""The replicas of a model, asked from any process that is connected to the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException

from ..deployment import within
from ..errors import Busy, DeadlinePassed, Internal, Unavailable
from ..metrics import Recorder
from ..model import Signature
from ..tensors import Array
from .replica import Reply

__all__ = ["Replicas"]

TRIES = 3  # replicas that one request may be given to, should they die under it
log = logging.getLogger("mgx_serve")


class Replicas:
    """One version of a model behind a handle of Ray Serve.

    inside: requests of this process that are under way.
    """

    def __init__(self, handle: Any, signature: Signature, recorder: Recorder) -> None:
        self.signature, self.inside = signature, 0
        self._ask, self._recorder = handle.options(method_name="reply"), recorder

    async def infer(
        self, feeds: Mapping[str, Array], priority: int, timeout: float, wanted: Sequence[str] = ()
    ) -> tuple[Signature, list[Array]]:
        """Returns what `Deployment.infer` does."""
        self.signature.check(feeds)
        limit = timeout or self.signature.timeout
        deadline = time.monotonic() + limit
        self.inside += 1
        self._recorder.waiting(self.signature, self.inside)
        try:
            reply = await within(limit, self.signature.name, self._reply(feeds, priority, deadline, list(wanted)))
        finally:
            self.inside -= 1
            self._recorder.waiting(self.signature, self.inside)
        for run in reply.runs:
            self._recorder.ran(self.signature, run.queued, run.seconds, run.rows)
        if reply.error is not None:
            if isinstance(reply.error, Busy):
                self._recorder.refused(self.signature)
            elif isinstance(reply.error, Internal):
                self._recorder.failed(self.signature)
            raise reply.error
        return reply.signature or self.signature, reply.outputs

    async def _reply(self, feeds: Mapping[str, Array], priority: int, deadline: float, wanted: Sequence[str]) -> Reply:
        """Asks a replica, and another one if it dies: a run changes nothing, so that it may be run again."""
        name = self.signature.name
        for attempt in range(1, TRIES + 1):
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(f"no replica of model {name!r} answered in time")
            try:
                reply: Reply = await self._ask.remote(dict(feeds), priority, left, self.signature, wanted)
                return reply
            except BackPressureError:
                self._recorder.refused(self.signature)
                raise Busy(f"too many requests wait for model {name!r}; try again later", 1.0) from None
            except (RayActorError, ActorUnavailableError, DeploymentUnavailableError) as error:
                log.warning(
                    "a replica of model %s ended under a request (try %s): %s", name, attempt, type(error).__name__
                )
                await asyncio.sleep(0.05 * attempt)
            except (RayError, RayServeException) as error:
                self._recorder.failed(self.signature)
                log.error("model %s failed: %s", name, error)
                raise Internal(f"model {name!r} failed; the reason is in the server's log") from error
        self._recorder.failed(self.signature)
        raise Unavailable(f"{TRIES} replicas of model {name!r} ended under this request")
