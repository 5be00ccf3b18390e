"""The kernel for gpu: HIP source, one thread per row."""

from mgx_core import Kernels
from mgx_core.types.dtype import float32
from mgx_gpu_hip.hip_kernels import hip_kernel

from .op import ClipRows

PLANS = Kernels("gpu")
TEXT = """
extern "C" __global__ void clip_rows(const float* x, float* y, int rows, int n, float limit) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[row * n + i] * x[row * n + i];
  float length = m::sqrt(sum), factor = length > limit ? limit / length : 1.0f;
  for (int i = 0; i < n; ++i) y[row * n + i] = x[row * n + i] * factor;
}
"""


@PLANS.plan(ClipRows, dtypes=[float32])
def in_hip(op, inputs, context):
    n = inputs[0].lens()[-1]
    rows = inputs[0].elements() // max(1, n)
    return hip_kernel("clip_rows in HIP", op, TEXT, grid=lambda s: -(-rows // 256), args=lambda s: [rows, n, op.limit])
