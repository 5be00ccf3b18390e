"""A peer: onnxruntime inside Ray Serve, with the HTTP part of the protocol.  Needs an environment with ray[serve] and
onnxruntime.

python ray_onnx.py MODEL.onnx HTTP_PORT
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import onnxruntime
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

LENGTH = "inference-header-content-length"


@serve.deployment(max_ongoing_requests=64)
class Onnx:
    def __init__(self, path: str) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            return Response()
        body = await request.body()
        size = int(request.headers[LENGTH])
        given = json.loads(body[:size])["inputs"][0]
        x = np.frombuffer(body, np.float32, offset=size).reshape(given["shape"])
        results = self.session.run(None, {given["name"]: x})
        outputs, tail = [], b""
        for name, r in zip(self.names, results, strict=True):
            parameters = {"binary_data_size": r.nbytes}
            outputs.append({"name": name, "datatype": "FP32", "shape": list(r.shape), "parameters": parameters})
            tail += r.tobytes()
        head = json.dumps({"model_name": "model", "outputs": outputs}).encode()
        return Response(head + tail, headers={LENGTH: str(len(head))}, media_type="application/octet-stream")


def main(path: str, http_port: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(http_port)})
    serve.run(Onnx.bind(path), route_prefix="/")
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
