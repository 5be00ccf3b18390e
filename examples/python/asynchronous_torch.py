"""Runs a program on torch's stream with torch's tensors: nothing is copied, and the host waits only at the end.

Needs torch.  Without a GPU that both torch and mgx support it runs on the CPU, where a run has ended when it returns.
"""

from __future__ import annotations

import torch

import mgx_core as mgx


def program(rows: int) -> mgx.Program:
    """relu(x * w) for x [rows, 64] and w [64, 64]."""
    made = mgx.Program()
    module = made.get_main_module()
    x = module.add_parameter("x", mgx.Shape("float32", [rows, 64]))
    w = module.add_parameter("w", mgx.Shape("float32", [64, 64]))
    module.add_return([module.add(mgx.op("relu"), module.add(mgx.op("dot"), x, w))])
    return made


def main() -> None:
    gpu = torch.cuda.is_available()
    made = program(32)
    made.compile(mgx.get_target("gpu" if gpu else "cpu"), offload_copy=not gpu)
    place = torch.device("cuda" if gpu else "cpu")
    x, w = torch.randn(32, 64, device=place), torch.randn(64, 64, device=place)
    stream = torch.cuda.Stream() if gpu else None
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream())
    (result,) = made.run_async({"x": x, "w": w}, stream.cuda_stream if stream is not None else 0, "ihipStream_t")
    if stream is not None:
        stream.synchronize()
    found = torch.from_dlpack(result) if gpu else torch.from_numpy(result.to_numpy())
    difference = (found - torch.relu(x @ w)).abs().max().item()
    print(f"the largest difference from torch is {'small' if difference < 1e-2 else difference} on {place.type}")


if __name__ == "__main__":
    main()
