"""A peer: onnxruntime inside MLServer.  Needs an environment with mlserver and onnxruntime.

python mlserver_onnx.py MODEL.onnx HTTP_PORT GRPC_PORT
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):
    async def load(self) -> bool:
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(None, self.session.run, None, feeds)
        outputs = [NumpyCodec.encode_output(n, np.asarray(r)) for n, r in zip(self.names, results, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def main(path: str, http_port: str, grpc_port: str) -> None:
    ports = {"http_port": int(http_port), "grpc_port": int(grpc_port), "metrics_port": 0, "metrics_endpoint": None}
    server = MLServer(Settings(host="127.0.0.1", parallel_workers=0, debug=False, **ports))
    model = {"name": "model", "implementation": Onnx, "parameters": {"uri": path}}
    await server.start([ModelSettings(**model)])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
