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
