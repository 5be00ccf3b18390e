"""The kernel for cpu: C source, one row per work item."""

from mgx_core import Kernels
from mgx_core.types.dtype import float32
from mgx_cpu_dnnl.c_kernels import c_kernel, float_bits

from .op import ClipRows

PLANS = Kernels("cpu")
TEXT = """
#include <math.h>
#include <stdint.h>
#include <string.h>

void clip_rows(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
  double limit; memcpy(&limit, args + 1, sizeof limit);
  for (int64_t row = begin, n = args[0]; row < end; ++row) {
    const float *x = (const float *)buffers[0] + row * n;
    float *y = (float *)buffers[1] + row * n;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += (double)x[i] * x[i];
    const double length = sqrt(sum), factor = length > limit ? limit / length : 1;
    for (int64_t i = 0; i < n; ++i) y[i] = (float)(x[i] * factor);
  }
}
"""


@PLANS.plan(ClipRows, dtypes=[float32])
def in_c(op, inputs, context):
    n = inputs[0].lens()[-1]
    rows = inputs[0].elements() // max(1, n)
    return c_kernel("clip_rows in C", op, TEXT, lambda s: rows, lambda s: [n, float_bits(op.limit)], grain=16)
