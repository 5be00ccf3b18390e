"""An MLServer runtime: ``"implementation": "mgx_serve.mlserver.MgxRuntime"`` in a model's `model-settings.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlserver import MLModel
from mlserver.errors import MLServerError
from mlserver.types import Datatype, InferenceRequest, InferenceResponse, MetadataTensor, ResponseOutput, TensorData
from mlserver.utils import get_model_uri

from mgx_core import MgxError
from mgx_core.types.strings import encoded

from .deployment import Deployment
from .error_text import error_text
from .errors import BadRequest, ServeError
from .inference import priority, seconds
from .metrics import Metrics
from .one_process import OneProcess
from .settings import ModelSettings, changed_settings
from .tensors import Array, Tensor, from_list, of_items
from .tracing import NoTraces

__all__ = ["MgxRuntime"]


class MgxRuntime(MLModel):  # type: ignore[misc]  # MLServer is not in every environment
    """Serves one model of any format that an installed frontend reads.

    ``parameters.uri`` names its file, ``parameters.extra`` has the settings of `config.toml`: target, precision, max_batch...
    """

    _deployment: Deployment | None = None

    async def load(self) -> bool:
        """Errors: MLServerError if the model cannot be read or compiled."""
        path = Path(await get_model_uri(self.settings))
        try:
            settings = changed_settings(path, ModelSettings(), self.settings.parameters.extra or {})
            backend = OneProcess(Metrics(NoTraces()))
            deployed = await backend.deploy(self.name, self.version or "1", path, settings)
        except (MgxError, OSError) as error:
            raise MLServerError(f"model {self.name!r} cannot be loaded: {error_text(error)}", 500) from error
        try:
            self.inputs = list(map(_described, deployed.signature.inputs))
            self.outputs = list(map(_described, deployed.signature.outputs))
        except MLServerError:
            await deployed.close()  # and closes its threads
            raise
        self._deployment = deployed
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Errors: MLServerError with the status of the `ServeError`."""
        assert self._deployment is not None, "the model is loaded before it is asked"
        stated = payload.parameters.model_dump() if payload.parameters else {}
        try:
            feeds: dict[str, Array] = {}
            for given in payload.inputs:
                if given.name in feeds:
                    raise BadRequest(f"input {given.name!r} is given twice")
                feeds[given.name] = _tensor(given)
            names = [o.name for o in payload.outputs or []]
            signature, results = await self._deployment.infer(feeds, priority(stated), seconds(stated), names)
        except ServeError as error:
            raise MLServerError(str(error), error.http) from error
        wanted = signature.chosen(names)
        outputs = [_output(signature.outputs[n], made) for n, made in zip(wanted, results, strict=True)]
        return InferenceResponse(model_name=self.name, model_version=signature.version, id=payload.id, outputs=outputs)

    async def unload(self) -> bool:
        """Runs all queued requests, then unloads."""
        if self._deployment is not None:
            await self._deployment.close()
        return True


def _described(tensor: Tensor) -> MetadataTensor:
    """Errors: MLServerError for an element type that MLServer does not support."""
    if tensor.datatype not in Datatype.__members__:
        raise MLServerError(f"MLServer has no datatype {tensor.datatype}, which {tensor.name!r} needs", 500)
    return MetadataTensor(name=tensor.name, datatype=tensor.datatype, shape=list(tensor.shape))


def _tensor(given: Any) -> Array:
    """Returns an input.  Errors: BadRequest."""
    datatype = Datatype(given.datatype).value
    data = given.data.root if isinstance(given.data, TensorData) else given.data  # bytes over gRPC, strings over HTTP
    if datatype != "BYTES":
        return from_list(given.name, datatype, given.shape, data)
    if not isinstance(data, list) or any(not isinstance(v, (str, bytes)) for v in data):
        raise BadRequest(f"input {given.name!r}: a flat list of strings is required")
    return of_items(given.name, given.shape, [encoded(v) if isinstance(v, str) else v for v in data])


def _output(tensor: Tensor, array: Array) -> ResponseOutput:
    items = array.ravel().tolist()
    if tensor.datatype == "BYTES":
        items = list(map(encoded, items))
    return ResponseOutput(name=tensor.name, datatype=tensor.datatype, shape=list(array.shape), data=items)
