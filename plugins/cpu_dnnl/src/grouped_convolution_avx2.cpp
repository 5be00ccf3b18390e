// Grouped convolutions, channels last, for AVX2.
#define MGX_LANES 8
#include "grouped_convolution_loop.h"

namespace mgx {

namespace {

constexpr int max_accumulators = 12; // accumulators: with vectors of weights and one of inputs they fill the registers

// Loads four channels of each of two groups and broadcasts channel `u` within each group's 128-bit lane, from a pixel `apart` (0
// to 2) strides from a base.  Inline assembly as in `broadcast`: the address computation stays in the load.
template <int apart, int u> MGX_INLINE Floats broadcast_in_lanes(const char *base, int64_t step) {
    Floats many;
    if constexpr (apart == 0)
        asm volatile("vpermilps %2, (%1), %0" : "=v"(many) : "r"(base), "i"(0x55 * u));
    else
        asm volatile("vpermilps %3, (%1,%2,%c4), %0" : "=v"(many) : "r"(base), "r"(step), "i"(0x55 * u), "i"(apart));
    return many;
}

// Micro-kernel for a group, or for two groups of four channels (paired).
template <int V, bool paired> struct Taps {
    static constexpr int vectors = V, max_pixels = max_accumulators / V, part = 0;

    // Adds all taps of P pixels to `sums`; `from`: the first tap of the first pixel; `weights`: those of the V vectors.
    template <int P>
    static MGX_INLINE void add(
            const GroupedJob &job, const float *from, PaddedInputs padded, const float *weights, Floats (&sums)[P][V]) {
        constexpr int bases = (P + 2) / 3, trip = 4;
        const int64_t apart = job.step_across * padded.pixel * int64_t(sizeof(float)), inputs = paired ? trip : job.inputs;
        for (int64_t i = 0; i < job.down; ++i)
            for (int64_t j = 0; j < job.across; ++j) {
                const auto *begin = reinterpret_cast<const char *>(from + i * job.gap_down * padded.row + j * job.gap_across * padded.pixel);
                const char *left[bases];
                MGX_UNROLLED
                for (int b = 0; b < bases; ++b)
                    left[b] = begin + 3 * b * apart;
                for (int64_t c = 0; c < inputs; c += trip) {
                    each<trip>([&](auto u) __attribute__((always_inline)) {
                        Floats w[V];
                        MGX_UNROLLED
                        for (int v = 0; v < V; ++v)
                            w[v] = load(weights + (u * V + v) * lanes);
                        each<P>([&](auto p) __attribute__((always_inline)) {
                            Floats many;
                            if constexpr (paired)
                                many = broadcast_in_lanes<p % 3, u>(left[p / 3], apart);
                            else
                                many = broadcast<p % 3, u * int(sizeof(float))>(left[p / 3], apart);
                            MGX_UNROLLED
                            for (int v = 0; v < V; ++v)
                                add_product(sums[p][v], many, w[v]);
                        });
                    });
                    MGX_UNROLLED
                    for (int b = 0; b < bases; ++b) {
                        left[b] += trip * sizeof(float);
                        opaque(left[b]);
                    }
                    weights += trip * V * lanes;
                }
            }
    }
};

void grouped_convolution(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto sum_rows = [](const Context &context, PaddedInputs padded, const float *weights, Place place, int64_t rows, bool) {
        if (context.job.paired)
            rows_of_units<Taps<1, true>>(context, padded, weights, place, rows);
        else if (context.job.vectors == 3)
            rows_of_units<Taps<3, false>>(context, padded, weights, place, rows);
        else if (context.job.vectors == 2)
            rows_of_units<Taps<2, false>>(context, padded, weights, place, rows);
        else
            rows_of_units<Taps<1, false>>(context, padded, weights, place, rows);
    };
    convolve_groups(buffers, args, begin, end, scratch, sum_rows);
}

} // namespace

void add_grouped_convolutions_avx2(NamedLoops &loops) { loops["grouped_convolution_avx2"] = grouped_convolution; }

} // namespace mgx
