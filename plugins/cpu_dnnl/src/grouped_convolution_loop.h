// Grouped convolutions, channels last.
//
// A unit is one or two groups.  A work item is some rows of results of some adjacent units, so that whole cache lines are read
// and written: common pixel strides map to few cache sets, so a line shared by two items would often be evicted in between.  The
// inputs of these rows are copied to a padded buffer; then a few pixels of a row at a time are accumulated in registers over taps
// and channels.
//
// Included with MGX_LANES.
#pragma once

#include <algorithm>
#include <array>

#include "link_loop.h"
#include "loops.h"
#include "register_tiles.h"

namespace mgx {

namespace {

// The loop's arguments, in this order, encoded by `plans/grouped_convolution.py`; the epilogue's links follow.  Buffers: images,
// weights [unit, block, tap down, tap across, channel, lanes of the vectors of a block], result, operands of the links.
struct GroupedJob {
    int64_t units, adjacent, inputs, outputs; // units per image and per item; channels of a unit
    int64_t paired;                 // 1: a unit is two groups with as many outputs as inputs
    int64_t lone;                   // 1: the last unit has only one group and is a work item of its own
    int64_t vectors;                // vectors of a block: outputs of a unit that are accumulated together
    int64_t height, width, x_image, x_row, x_column;
    int64_t out_height, out_width, y_image, y_row, y_column;
    int64_t down, across, step_down, step_across, gap_down, gap_across, top, left; // window extents, strides, dilations; padding
    int64_t rows, parts;            // rows of results per item; items per block of units of an image
    int64_t links;
};

struct Context {
    GroupedJob job;
    Link links[most_links];
    void *const *buffers;
};

// The padded copy of a work item's inputs.
struct PaddedInputs {
    const float *at;
    int64_t row, pixel; // strides
};

constexpr int64_t pixel_padding = 8; // padding of copied pixels, in floats: loads one stride apart would conflict

// Input channels per result and tap.
inline int64_t channels_of(const GroupedJob &job) { return job.paired ? job.inputs / 2 : job.inputs; }

// Computes P pixels of a row.  Taps: the micro-kernel, for blocks of `Taps::vectors` vectors and up to `Taps::max_pixels` pixels.
template <class Taps, int P> void pixels(const Context &context, const float *from, PaddedInputs padded, const float *weights, Place place) {
    constexpr int V = Taps::vectors;
    const GroupedJob &job = context.job;
    Floats sums[P][V];
    MGX_UNROLLED
    for (int p = 0; p < P; ++p)
        MGX_UNROLLED
        for (int v = 0; v < V; ++v)
            sums[p][v] = Floats {};
    Taps::template add<P>(job, from, padded, weights, sums);
    float *to = static_cast<float *>(context.buffers[2]) + place.image * job.y_image + place.row * job.y_row + place.column * job.y_column;
    MGX_UNROLLED
    for (int v = 0; v < V; ++v) {
        const int64_t channel = place.channel + v * lanes;
        const int64_t count = Taps::part && v + 1 == V ? Taps::part : lanes;
        Floats out[P];
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            out[p] = sums[p][v];
        for (int64_t n = 0; n < job.links; ++n) {
            const Link &link = context.links[n];
            const Place first {place.image, place.row, place.column, channel};
            apply(link, RowOfResults<P> {out}, operand_of<float>(link, context.buffers, first), {1, P, count});
        }
        MGX_UNROLLED
        for (int p = 0; p < P; ++p)
            if (count == lanes)
                store(to + p * job.y_column + channel, out[p]);
            else
                store_some(to + p * job.y_column + channel, out[p], count);
    }
}

using Pixels = void (*)(const Context &, const float *, PaddedInputs, const float *, Place);

template <class Taps, int... P> constexpr std::array<Pixels, sizeof...(P)> table_of(std::integer_sequence<int, P...>) {
    return {pixels<Taps, P + 1>...};
}

// Computes all results of a work item, in parts of a row of almost equal length.
template <class Taps> void rows_of_units(const Context &context, PaddedInputs padded, const float *weights, Place place, int64_t rows) {
    constexpr int max_pixels = Taps::max_pixels;
    static constexpr auto table = table_of<Taps>(std::make_integer_sequence<int, max_pixels> {});
    const GroupedJob &job = context.job;
    const int64_t parts = (job.out_width + max_pixels - 1) / max_pixels, low = job.out_width / parts, over = job.out_width % parts;
    const int64_t wide = job.vectors * lanes, blocks = job.outputs / wide, size = job.down * job.across * channels_of(job) * wide;
    const int64_t first_row = place.row, first_channel = place.channel;
    for (int64_t r = 0; r < rows; ++r) {
        place.row = first_row + r;
        const float *line = padded.at + r * job.step_down * padded.row;
        for (int64_t t = 0, column = 0; t < parts; ++t) {
            const int64_t count = low + (t < over);
            const float *from = line + column * job.step_across * padded.pixel;
            place.column = column;
            for (int64_t n = 0; n < job.adjacent * blocks; ++n) {
                place.channel = first_channel + n * wide;
                table[count - 1](context, from + n / blocks * job.inputs, padded, weights + n * size, place);
            }
            column += count;
        }
    }
}

// Copies rows of some units' inputs, `channels` of each pixel, with zero padding.
inline void copy_padded(const GroupedJob &job, const float *x, int64_t channels, int64_t first_row, int64_t rows, float *to) {
    const int64_t width = (job.out_width - 1) * job.step_across + (job.across - 1) * job.gap_across + 1;
    const int64_t step = job.adjacent * job.inputs + pixel_padding, size = width * step;
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
            for (int64_t c = 0; c < channels; c += 4) // channels: a multiple of four
                _mm_storeu_ps(at + c, _mm_loadu_ps(from + c));
        std::fill(at, to + size, 0.0f);
    }
}

// Runs work items [begin, end); sum_rows(context, padded, weights, place, rows, lone) computes one whose inputs are copied.
template <class SumRows>
inline void convolve_groups(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch, SumRows sum_rows) {
    Context context;
    context.buffers = buffers;
    const GroupedJob &job = context.job;
    std::memcpy(&context.job, args, sizeof context.job);
    read_links(args + sizeof context.job / sizeof *args, job.links, context.links);
    const int64_t width = (job.out_width - 1) * job.step_across + (job.across - 1) * job.gap_across + 1;
    const int64_t size = job.down * job.across * channels_of(job) * job.outputs; // elements of a unit's weights
    const int64_t channels = job.adjacent * job.inputs, blocks = job.units / job.adjacent;
    const PaddedInputs padded {static_cast<float *>(scratch), width * (channels + pixel_padding), channels + pixel_padding};
    for (int64_t i = begin; i < end; ++i) { // parts of an image are innermost, so that threads read different weights
        const int64_t unit = i / job.parts % blocks * job.adjacent, image = i / job.parts / blocks, row = i % job.parts * job.rows;
        const int64_t rows = std::min(job.rows, job.out_height - row);
        const bool lone = job.lone && unit == job.units - 1;
        const float *x = static_cast<const float *>(buffers[0]) + image * job.x_image + unit * job.inputs;
        const int64_t needed = (rows - 1) * job.step_down + (job.down - 1) * job.gap_down + 1;
        copy_padded(job, x, lone ? channels / 2 : channels, row * job.step_down, needed, static_cast<float *>(scratch));
        sum_rows(context, padded, static_cast<const float *>(buffers[1]) + unit * size, Place {image, row, 0, unit * job.outputs}, rows, lone);
    }
}

} // namespace

} // namespace mgx
