// The recurrent half of an LSTM layer, one sequence and direction per work item: no thread waits for another between steps.
//
// Included by one source per instruction set, which defines MGX_LANES (floats in a vector) and MGX_LSTM_LOOP (the name).
#include <cstdint>
#include <cstring>

namespace {

typedef float Floats __attribute__((vector_size(MGX_LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(MGX_LANES * 4)));

constexpr int64_t lanes = MGX_LANES, wide = 2 * lanes, row = 4 * wide;

inline Floats load(const float *from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float *to, Floats v) { std::memcpy(to, &v, sizeof v); }

// e^x, a few ulp; x is held where neither the result nor its inverse overflows.
inline Floats exponential(Floats x) {
    x = x > 87.0f ? 87.0f + (x - x) : x;
    x = x < -87.0f ? -87.0f + (x - x) : x;
    const float magic = 12582912.0f; // adding it rounds to an integer, which then sits in the low bits
    Floats shifted = x * 1.44269504f + magic;
    Floats n = shifted - magic;
    Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
    Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    Ints bits = (((Ints)shifted - 0x4b400000) << 23) + 0x3f800000;
    return p * (Floats)bits;
}

inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

inline Floats hyperbolic(Floats x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

} // namespace

namespace mgx {

// buffers: gates from the input, float [steps, batch, ways, blocks, 4, wide]; recurrent weights [ways, blocks, hidden, 4, wide];
// first state and cell [ways, batch, hidden]; states out [steps, batch, ways, hidden]; last cell [ways, batch, hidden].
// args: steps, batch, ways, hidden, whether the first way runs backwards.  Gates in the order i, o, f, c.
void MGX_LSTM_LOOP(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const auto *gates = static_cast<const float *>(buffers[0]);
    const auto *weights = static_cast<const float *>(buffers[1]);
    const auto *first = static_cast<const float *>(buffers[2]);
    const auto *first_cell = static_cast<const float *>(buffers[3]);
    auto *out = static_cast<float *>(buffers[4]);
    auto *last_cell = static_cast<float *>(buffers[5]);
    const int64_t steps = args[0], batch = args[1], ways = args[2], hidden = args[3];
    const int64_t blocks = (hidden + wide - 1) / wide, padded = blocks * wide;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t way = item / batch, sequence = item % batch;
        const bool backwards = way == 1 || args[4];
        auto *now = static_cast<float *>(scratch), *next = now + padded, *cell = next + padded;
        std::memset(scratch, 0, 3 * padded * sizeof(float));
        std::memcpy(now, first + item * hidden, hidden * sizeof(float));
        std::memcpy(cell, first_cell + item * hidden, hidden * sizeof(float));
        for (int64_t step = 0; step < steps; ++step) {
            const int64_t t = backwards ? steps - 1 - step : step;
            const int64_t place = (t * batch + sequence) * ways + way;
            const float *given = gates + place * blocks * row;
            const float *w = weights + way * blocks * hidden * row;
            for (int64_t block = 0; block < blocks; ++block, given += row, w += hidden * row) {
                Floats sum[8];
                for (int j = 0; j < 8; ++j)
                    sum[j] = load(given + j * lanes);
                for (int64_t k = 0; k < hidden; ++k) {
                    const float h = now[k];
                    const float *at = w + k * row;
                    for (int j = 0; j < 8; ++j)
                        sum[j] += h * load(at + j * lanes);
                }
                for (int half = 0; half < 2; ++half) {
                    const int64_t unit = block * wide + half * lanes;
                    Floats c = sigmoid(sum[4 + half]) * load(cell + unit) + sigmoid(sum[half]) * hyperbolic(sum[6 + half]);
                    store(cell + unit, c);
                    store(next + unit, sigmoid(sum[2 + half]) * hyperbolic(c));
                }
            }
            std::memcpy(out + place * hidden, next, hidden * sizeof(float));
            auto *swapped = now;
            now = next;
            next = swapped;
        }
        std::memcpy(last_cell + item * hidden, cell, hidden * sizeof(float));
    }
}

} // namespace mgx
