"""The backend that runs models in the server's own process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .batching import Batcher
from .deployment import Backend, Deployment
from .metrics import Recorder
from .model import Model
from .settings import ModelSettings

__all__ = ["OneProcess"]


class OneProcess(Backend):
    """Runs models in this process."""

    def __init__(self, metrics: Recorder) -> None:
        self.metrics = metrics

    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        model = await asyncio.to_thread(Model.read, name, version, path, settings)
        await asyncio.to_thread(model.warm)
        return Batcher(model, self.metrics)

    async def close(self) -> None:
        """Does nothing: every model closes its own threads."""
