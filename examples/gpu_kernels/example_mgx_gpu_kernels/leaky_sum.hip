// y[t] = rate * y[t - 1] + x[t] in each row of n elements: one thread a row.
extern "C" __global__ void leaky_sum(const float* x, float* y, int rows, int n, float rate) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int t = 0; t < n; ++t) {
      sum = rate * sum + x[row * n + t];
      y[row * n + t] = sum;
    }
  }
}
