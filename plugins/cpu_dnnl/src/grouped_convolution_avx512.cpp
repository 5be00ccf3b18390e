// Grouped convolutions with 24 channels per group, channels last, for AVX-512.
//
// Two groups fill three vectors.  The second holds results of both, and each of its halves is multiplied by an input of its
// own group.
#define MGX_LANES 16
#include "grouped_convolution_loop.h"

namespace mgx {

namespace {

constexpr int vectors_of_two = 3;           // vectors per two groups
constexpr int channels = vectors_of_two * lanes / 2;

// Micro-kernel for two groups; alone: for the first of them only.
template <bool alone> struct Taps {
    static constexpr int vectors = alone ? 2 : vectors_of_two, max_pixels = 8, part = alone ? channels % lanes : 0;

    // Adds all taps of P pixels to `sums`; `from`: the first tap of the first pixel; `weights`: those of two groups.
    template <int P>
    static MGX_INLINE void add(
            const GroupedJob &job, const float *from, PaddedInputs padded, const float *weights, Floats (&sums)[P][vectors]) {
        constexpr int bases = (P + 2) / 3, trip = 4, size = sizeof(float);
        const int64_t apart = job.step_across * padded.pixel * size;
        for (int64_t i = 0; i < job.down; ++i)
            for (int64_t j = 0; j < job.across; ++j) {
                const auto *begin = reinterpret_cast<const char *>(from + i * job.gap_down * padded.row + j * job.gap_across * padded.pixel);
                const char *left[bases];
                MGX_UNROLLED
                for (int b = 0; b < bases; ++b)
                    left[b] = begin + 3 * b * apart;
                for (int64_t c = 0; c < channels; c += trip) {
                    each<trip>([&](auto u) __attribute__((always_inline)) {
                        Floats w[vectors];
                        MGX_UNROLLED
                        for (int v = 0; v < vectors; ++v)
                            w[v] = load(weights + (u * vectors_of_two + v) * lanes);
                        each<P>([&](auto p) __attribute__((always_inline)) {
                            add_products<p % 3, u * size>(left[p / 3], apart, w, sums[p]);
                        });
                    });
                    MGX_UNROLLED
                    for (int b = 0; b < bases; ++b) {
                        left[b] += trip * size;
                        opaque(left[b]);
                    }
                    weights += trip * vectors_of_two * lanes;
                }
            }
    }

    // Adds the products of one input of each group and its weights.
    template <int apart, int offset>
    static MGX_INLINE void add_products(const char *base, int64_t step, Floats (&w)[vectors], Floats (&sums)[vectors]) {
        const Floats one = broadcast<apart, offset>(base, step);
        add_product(sums[0], one, w[0]);
        if constexpr (alone) {
            add_product(sums[1], one, w[1]);
        } else {
            const Floats other = broadcast<apart, offset + channels * int(sizeof(float))>(base, step);
            add_product(sums[1], (Floats)_mm512_mask_blend_ps(0xff00, (__m512)one, (__m512)other), w[1]);
            add_product(sums[2], other, w[2]);
        }
    }
};

void grouped_convolution(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    auto sum_rows = [](const Context &context, PaddedInputs padded, const float *weights, Place place, int64_t rows, bool lone) {
        if (lone)
            rows_of_units<Taps<true>>(context, padded, weights, place, rows);
        else
            rows_of_units<Taps<false>>(context, padded, weights, place, rows);
    };
    convolve_groups(buffers, args, begin, end, scratch, sum_rows);
}

} // namespace

void add_grouped_convolutions_avx512(NamedLoops &loops) { loops["grouped_convolution_avx512"] = grouped_convolution; }

} // namespace mgx
