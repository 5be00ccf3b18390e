// Convolutions in groups of some channels each, channels last, for processors with AVX2.
//
// A unit is a group, or two groups of four channels.  An item is some rows of results of some units that lie beside each other, so
// that whole lines of the cache are read and written: often the steps between pixels are such that caches hold few of the others.
// The inputs that the rows need are copied with zeros around them; then some pixels of a row at a time are summed in registers over
// taps and channels.
#define MGX_LANES 8
#include <algorithm>
#include <array>

#include "link_loop.h"
#include "loops.h"
#include "register_tiles.h"

namespace mgx {

namespace {

// What the loop is told, in this order (`plans/grouped_convolution.py` writes it); links follow.  Buffers: the images, the weights
// [unit, block, tap down, tap across, channel, 8 for each vector of a block], the result, operands of the links.
struct GroupedJob {
    int64_t units, beside, inputs, outputs; // units of an image and of an item; channels of a unit
    int64_t paired;                 // 1: a unit is two groups of four channels in and out
    int64_t vectors;                // 1 to 3 of results that are summed together: a block of a unit's outputs
    int64_t height, width, x_image, x_row, x_column;
    int64_t out_height, out_width, y_image, y_row, y_column;
    int64_t down, across, step_down, step_across, gap_down, gap_across, top, left; // the window; zeros before the images
    int64_t rows, parts;            // of results in an item; items of the same units of an image
    int64_t links;
};

struct Given {
    GroupedJob job;
    Link links[most_links];
    void *const *buffers;
};

// The copied inputs of an item.
struct Near {
    const float *at;
    int64_t row, pixel; // steps
};

constexpr int most_sums = 12;                    // with them, vectors of weights and one of inputs, registers are full
constexpr int64_t gap = 8;                       // floats between copied pixels: loads of one step apart would wait for one another

// Four channels of each of two groups, the one of number `u` in all lanes of its group's half: of a pixel that is 0 to 2 steps from a
// base, loaded by the instruction itself as `broadcast` does.
template <int apart, int u> MGX_INLINE Floats spread(const char *base, int64_t step) {
    Floats many;
    if constexpr (apart == 0)
        asm volatile("vpermilps %2, (%1), %0" : "=v"(many) : "r"(base), "i"(0x55 * u));
    else
        asm volatile("vpermilps %3, (%1,%2,%c4), %0" : "=v"(many) : "r"(base), "r"(step), "i"(0x55 * u), "i"(apart));
    return many;
}

// Sums of P pixels and V vectors; `from`: the first tap of the first pixel; `weights`: those of the vectors; paired: of two groups of
// four channels.
template <int P, int V, bool paired> MGX_INLINE void add_taps(const GroupedJob &job, const float *from, Near near, const float *weights, Floats (&sums)[P][V]) {
    constexpr int bases = (P + 2) / 3, trip = 4;
    const int64_t apart = job.step_across * near.pixel * int64_t(sizeof(float)), inputs = paired ? trip : job.inputs;
    for (int64_t i = 0; i < job.down; ++i)
        for (int64_t j = 0; j < job.across; ++j) {
            const auto *begin = reinterpret_cast<const char *>(from + i * job.gap_down * near.row + j * job.gap_across * near.pixel);
            const char *left[bases];
            MGX_UNROLLED
            for (int b = 0; b < bases; ++b)
                left[b] = begin + 3 * b * apart;
            for (int64_t c = 0; c < inputs; c += trip) {
                each<trip>([&](auto u) __attribute__((always_inline)) {
                    Floats some[V];
                    MGX_UNROLLED
                    for (int v = 0; v < V; ++v)
                        some[v] = load(weights + (u * V + v) * lanes);
                    each<P>([&](auto p) __attribute__((always_inline)) {
                        Floats many;
                        if constexpr (paired)
                            many = spread<p % 3, u>(left[p / 3], apart);
                        else
                            many = broadcast<p % 3, u * int(sizeof(float))>(left[p / 3], apart);
                        MGX_UNROLLED
                        for (int v = 0; v < V; ++v)
                            add_product(sums[p][v], many, some[v]);
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

struct Place {
    int64_t image, row, column, channel; // of the first result
};

template <int P, int V, bool paired> void pixels(const Given &given, const float *from, Near near, const float *weights, Place place) {
    const GroupedJob &job = given.job;
    Floats sums[P][V];
    MGX_UNROLLED
    for (int p = 0; p < P; ++p)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            sums[p][v] = Floats {};
    add_taps<P, V, paired>(job, from, near, weights, sums);
    float *to = static_cast<float *>(given.buffers[2]) + place.image * job.y_image + place.row * job.y_row + place.column * job.y_column;
    MGX_UNROLLED
    for (int v = 0; v < V; ++v) {
        const int64_t channel = place.channel + v * lanes;
        Floats out[P];
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            out[p] = sums[p][v];
        for (int64_t n = 0; n < job.links; ++n) {
            const Link &link = given.links[n];
            const float *operand = nullptr;
            if (link.kind <= LinkKind::min)
                operand = static_cast<const float *>(given.buffers[link.buffer]) + place.image * link.image + place.row * link.row
                        + place.column * link.column + channel * link.channel;
            apply<P, P>(link, out, operand, {1, P, lanes});
        }
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            store(to + p * job.y_column + channel, out[p]);
    }
}

using Pixels = void (*)(const Given &, const float *, Near, const float *, Place);

template <int V, bool paired, int... P> constexpr std::array<Pixels, sizeof...(P)> table_of(std::integer_sequence<int, P...>) {
    return {pixels<P + 1, V, paired>...};
}

// All results of an item, some pixels of a row at a time; the parts of a row differ by at most one pixel.
template <int V, bool paired> void rows_of_units(const Given &given, Near near, const float *weights, Place place, int64_t rows) {
    constexpr int most = most_sums / V;
    static constexpr auto table = table_of<V, paired>(std::make_integer_sequence<int, most> {});
    const GroupedJob &job = given.job;
    const int64_t parts = (job.out_width + most - 1) / most, low = job.out_width / parts, over = job.out_width % parts;
    const int64_t blocks = job.outputs / (V * lanes), size = job.down * job.across * (paired ? 4 : job.inputs) * V * lanes;
    const int64_t first_row = place.row, first_channel = place.channel;
    for (int64_t r = 0; r < rows; ++r) {
        place.row = first_row + r;
        const float *line = near.at + r * job.step_down * near.row;
        for (int64_t t = 0, column = 0; t < parts; ++t) {
            const int64_t count = low + (t < over);
            const float *from = line + column * job.step_across * near.pixel;
            place.column = column;
            for (int64_t n = 0; n < job.beside * blocks; ++n) {
                place.channel = first_channel + n * V * lanes;
                table[count - 1](given, from + n / blocks * job.inputs, near, weights + n * size, place);
            }
            column += count;
        }
    }
}

// Rows of some units' inputs with zeros around them.
void copy_near(const GroupedJob &job, const float *x, int64_t first_row, int64_t rows, float *to) {
    const int64_t width = (job.out_width - 1) * job.step_across + (job.across - 1) * job.gap_across + 1;
    const int64_t channels = job.beside * job.inputs, step = channels + gap, size = width * step;
    const int64_t begin = std::min(job.left, width), count = std::max<int64_t>(0, std::min(job.width, width - begin));
    for (int64_t r = 0; r < rows; ++r, to += size) {
        const int64_t row = first_row + r - job.top;
        if (row < 0 || row >= job.height) {
            std::fill_n(to, size, 0.0f);
            continue;
        }
        const float *from = x + row * job.x_row;
        float *at = std::fill_n(to, begin * step, 0.0f);
        for (int64_t n = 0; n < count; ++n, from += job.x_column, at += step)
            for (int64_t c = 0; c < channels; c += 4) // multiples of four
                _mm_storeu_ps(at + c, _mm_loadu_ps(from + c));
        std::fill(at, to + size, 0.0f);
    }
}

void grouped_convolution(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    Given given;
    given.buffers = buffers;
    const GroupedJob &job = given.job;
    std::memcpy(&given.job, args, sizeof given.job);
    read_links(args + sizeof given.job / sizeof *args, job.links, given.links);
    const int64_t width = (job.out_width - 1) * job.step_across + (job.across - 1) * job.gap_across + 1;
    const int64_t size = job.down * job.across * (job.paired ? 4 : job.inputs) * job.outputs; // of a unit's weights
    const int64_t channels = job.beside * job.inputs, blocks = job.units / job.beside;
    const Near near {static_cast<float *>(scratch), width * (channels + gap), channels + gap};
    for (int64_t i = begin; i < end; ++i) { // parts of an image run fastest, so that each thread reads weights of its own
        const int64_t unit = i / job.parts % blocks * job.beside, image = i / job.parts / blocks, row = i % job.parts * job.rows;
        const int64_t rows = std::min(job.rows, job.out_height - row);
        const float *x = static_cast<const float *>(buffers[0]) + image * job.x_image + unit * job.inputs;
        const int64_t needed = (rows - 1) * job.step_down + (job.down - 1) * job.gap_down + 1;
        copy_near(job, x, row * job.step_down, needed, static_cast<float *>(scratch));
        const float *weights = static_cast<const float *>(buffers[1]) + unit * size;
        const Place place {image, row, 0, unit * job.outputs};
        if (job.paired)
            rows_of_units<1, true>(given, near, weights, place, rows);
        else if (job.vectors == 3)
            rows_of_units<3, false>(given, near, weights, place, rows);
        else if (job.vectors == 2)
            rows_of_units<2, false>(given, near, weights, place, rows);
        else
            rows_of_units<1, false>(given, near, weights, place, rows);
    }
}

} // namespace

void add_grouped_convolutions(NamedLoops &loops) { loops["grouped_convolution_avx2"] = grouped_convolution; }

} // namespace mgx
