"""Mixes a program with calls of hip-python, AMD's Python bindings of HIP: its memory, stream and events; all copies are
explicit.

Needs an AMD GPU, ROCm and ``pip install mgx-gpu-hip[hip]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hip import hip

import mgx_core as mgx
from mgx_gpu_hip import hip_python

ROWS, COLUMNS = 32, 64


def checked(answer: tuple[Any, ...]) -> Any:
    """Returns the result of a hip-python call, whose return value starts with an error code."""
    error, *results = answer
    if error != hip.hipError_t.hipSuccess:
        raise RuntimeError(error.name)
    return results[0] if results else None


def compiled() -> mgx.Program:
    """relu(x * w) for x [ROWS, COLUMNS] and w [COLUMNS, COLUMNS], on arguments in device memory."""
    program = mgx.Program()
    module = program.get_main_module()
    x = module.add_parameter("x", mgx.Shape("float32", [ROWS, COLUMNS]))
    w = module.add_parameter("w", mgx.Shape("float32", [COLUMNS, COLUMNS]))
    module.add_return([module.add(mgx.op("relu"), module.add(mgx.op("dot"), x, w))])
    program.compile(mgx.get_gpu_context(), offload_copy=False)
    return program


def main() -> None:
    program, random = compiled(), np.random.default_rng(0)
    x = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    w = mgx.to_gpu(random.standard_normal((COLUMNS, COLUMNS)).astype(np.float32))

    stream = checked(hip.hipStreamCreateWithFlags(1))
    begin, end = (checked(hip.hipEventCreateWithFlags(0)) for _ in range(2))
    given = checked(hip.hipMalloc(x.nbytes)).configure(typestr="float32", shape=x.shape)
    checked(hip.hipMemcpyHtoDAsync(given, x, x.nbytes, stream))
    checked(hip.hipEventRecord(begin, stream))
    (result,) = program.run_async({"x": given, "w": w}, stream, "ihipStream_t")
    checked(hip.hipEventRecord(end, stream))

    found = np.empty((ROWS, COLUMNS), np.float32)
    checked(hip.hipMemcpyDtoHAsync(found, hip_python.array(result), found.nbytes, stream))
    checked(hip.hipStreamSynchronize(stream))
    taken = checked(hip.hipEventElapsedTime(begin, end))
    difference = np.abs(found - np.maximum(x @ np.asarray(w), 0)).max()
    print(f"the largest difference from numpy is {'small' if difference < 1e-4 else difference}; {taken:.3f} ms")

    for event in (begin, end):
        checked(hip.hipEventDestroy(event))
    checked(hip.hipFree(given))
    checked(hip.hipStreamDestroy(stream))


if __name__ == "__main__":
    main()
