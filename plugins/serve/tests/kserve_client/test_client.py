"""The protocol, used by KServe's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def request(binary: bool) -> InferRequest:
    given = InferInput("x", [2, 4], "FP32")
    given.set_data_from_numpy(X, binary_data=binary)
    return InferRequest("double", [given])


@pytest.mark.parametrize("binary", [True, False])
def test_rest(server: Any, binary: bool) -> None:
    async def talk() -> None:
        client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
        address = f"http://{server.http}"
        assert await client.is_server_live(address) and await client.is_model_ready(address, "double")
        answer = await client.infer(address, request(binary), model_name="double")
        outputs = {o.name: o.as_numpy() for o in answer.outputs}
        np.testing.assert_array_equal(np.reshape(outputs["y"], (2, 4)), 2 * X)
        await client.close()

    asyncio.run(talk())


def test_grpc(server: Any) -> None:
    async def talk() -> None:
        client = InferenceGRPCClient(server.grpc)
        assert await client.is_server_live() and await client.is_model_ready("double")
        answer = await client.infer(request(True))
        outputs = {o.name: o.as_numpy() for o in answer.outputs}
        np.testing.assert_array_equal(outputs["y"], 2 * X)
        await client.close()

    asyncio.run(talk())
