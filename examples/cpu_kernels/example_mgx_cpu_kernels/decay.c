#include <stdint.h>
#include <string.h>

/* Rows [begin, end) of a leaky sum; buffers: x, y, float [rows, n]; args: n, and the rate as the bits of a double. */
void decay(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    int64_t n = args[0];
    double rate;
    memcpy(&rate, args + 1, sizeof rate);
    (void)scratch;
    for (int64_t row = begin; row < end; ++row) {
        const float *x = (const float *)buffers[0] + row * n;
        float *y = (float *)buffers[1] + row * n;
        double state = 0;
        for (int64_t t = 0; t < n; ++t)
            y[t] = (float)(state = rate * state + x[t]);
    }
}
