"""The client side of a model's replicas, for any process connected to the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException

from ..channels.sender import Lost, is_plain
from ..deployment import within
from ..errors import Busy, DeadlinePassed, Internal, Unavailable
from ..inference import Call
from ..metrics import Recorder
from ..model import Signature
from ..tensors import Array
from .links import Links
from .replica import Reply

__all__ = ["Replicas"]

TRIES = 3  # maximum attempts per request if replicas die
log = logging.getLogger("mgx_serve")


class Replicas:
    """One model version, called through a Ray Serve handle or, if available, direct links.

    inside: pending requests of this process.
    """

    def __init__(self, handle: Any, signature: Signature, recorder: Recorder, links: Links | None = None) -> None:
        self.signature, self.inside = signature, 0
        self._ask, self._recorder, self._links = handle.options(method_name="reply"), recorder, links

    async def infer(
        self, feeds: Mapping[str, Array], priority: int, timeout: float, wanted: Sequence[str] = ()
    ) -> tuple[Signature, list[Array]]:
        """Implements `Deployment.infer`."""
        self.signature.check(feeds)
        limit = timeout or self.signature.timeout
        deadline = time.monotonic() + limit
        self.inside += 1
        self._recorder.waiting(self.signature, self.inside)
        try:
            call = Call(self.signature.name, "", dict(feeds), outputs=list(wanted), priority=priority, timeout=timeout)
            return await within(limit, self.signature.name, self._answered(call, deadline))
        except Busy:
            self._recorder.refused(self.signature)
            raise
        except Internal:
            self._recorder.failed(self.signature)
            raise
        finally:
            self.inside -= 1
            self._recorder.waiting(self.signature, self.inside)

    async def _answered(self, call: Call, deadline: float) -> tuple[Signature, list[Array]]:
        """Calls a replica, and another one if it dies: runs are idempotent and can be retried."""
        name = self.signature.name
        for attempt in range(1, TRIES + 1):
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(f"no replica of model {name!r} answered in time")
            link = self._links.choose() if self._links is not None and is_plain(call) else None
            try:
                if link is None:
                    return await self._by_ray(call, left)
                answer = await link.ask(call)
                return link.signature, [array for _, array in answer.outputs]
            except BackPressureError:
                raise Busy(f"too many requests wait for model {name!r}; try again later", 1.0) from None
            except (Lost, RayActorError, ActorUnavailableError, DeploymentUnavailableError) as error:
                log.warning(
                    "a replica of model %s ended under a request (try %s): %s", name, attempt, type(error).__name__
                )
                await asyncio.sleep(0.05 * attempt)
            except (RayError, RayServeException) as error:
                log.error("model %s failed: %s", name, error)
                raise Internal(f"model {name!r} failed; the reason is in the server's log") from error
        self._recorder.failed(self.signature)
        raise Unavailable(f"{TRIES} replicas of model {name!r} ended under this request")

    async def _by_ray(self, call: Call, left: float) -> tuple[Signature, list[Array]]:
        """Calls the replica that Ray chooses.  left: remaining seconds."""
        reply: Reply = await self._ask.remote(call.feeds, call.priority, left, self.signature, call.outputs)
        for run in reply.runs:
            self._recorder.ran(self.signature, run.queued, run.seconds, run.rows)
        if reply.error is not None:
            raise reply.error
        return reply.signature or self.signature, reply.outputs
