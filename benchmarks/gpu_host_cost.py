"""Host time of a `run_async` call, excluding device time.

python benchmarks/gpu_host_cost.py MODELS [--only a,b] [--torch]

For each model in fp16 on device arrays: microseconds of a call (median over bursts of 20 calls after a synchronization), of
replaying the device graph, and of a call with new arguments (which are validated, and a graph is recorded).  `--torch` passes
torch tensors on torch's stream instead of our own arrays.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx


def cost(call: Callable[[], Any], wait: Callable[[], Any], count: int = 20, bursts: int = 30) -> float:
    times = []
    for _ in range(bursts):
        wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    wait()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", default="resnet50,bert_base,mobilenet_v2")
    parser.add_argument("--torch", action="store_true")
    given = parser.parse_args()
    for name in given.only.split(","):
        program = mgx.parse_onnx(given.models / f"{name}.onnx")
        mgx.quantize_fp16(program)
        program.compile(mgx.get_target("gpu"), offload_copy=False)
        device = program.executable.context.device
        feed = dict(np.load(given.models / f"{name}.in.npz"))
        shapes = program.get_parameter_shapes()
        feed = {k: np.ascontiguousarray(v.astype(shapes[k].numpy_dtype)) for k, v in feed.items() if k in shapes}
        stream: Any = device.stream()
        handle = stream.handle
        if given.torch:
            import torch

            held: Any = {k: torch.from_numpy(v).cuda() for k, v in feed.items()}
            handle = torch.cuda.current_stream().cuda_stream
            stream = device.stream(handle)
        else:
            from mgx_gpu_hip.runtime import DeviceArray

            held = {k: DeviceArray(device.upload(v), shapes[k].dtype, v.shape) for k, v in feed.items()}
        start = time.perf_counter()
        program.run_async(held, handle, "ihipStream_t")
        first = (time.perf_counter() - start) * 1e6
        runner = program.executable.instances()[0].runner
        graph = runner.graphs.last()
        whole = cost(partial(program.run_async, held, handle, "ihipStream_t"), stream.wait)
        bare = cost(partial(graph.launch, handle), stream.wait)
        print(
            f"{name:16} {len(held)} arguments: run_async {whole:.1f} us, bare graph launch {bare:.1f} us, ours "
            f"{whole - bare:.1f} us; first call {first:.0f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
