// int8 products by int16 pair sums (vpmaddwd), for processors without VNNI; called from compiled loops.
//
// Bytes are widened to int16 minus their zero point; one instruction multiplies two adjacent elements along the depth and adds
// the products in int32.  This is exact for all bytes: unlike vpmaddubsw, whose pair sums are int16, it does not saturate.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// Geometry of a convolution's windows, encoded by `byte_pairs.py` in this order; axes are depth, height, width.
struct Windows {
    int64_t channels; // of a group
    int64_t images, across, step[3]; // strides in bytes: between images, between pixels along the width, along each axis
    int64_t in[3], out[3], taps[3], stride[3], dilation[3], begin[3];
    int64_t is_signed;
};

// Computes sums[r][c] = (add ? sums[r][c] : 0) + sum over i < depth of left[r][i] * panel[i / 2][c][i % 2], modulo 2^32.
//
// left: rows with a stride of `left_step` elements; depth: a multiple of 4; panel: rows of 16 columns; sums: rows with a stride
// of `sums_step` elements; rows: at most 6; vectors: of 8 columns each, 1 or 2.
using PairTile = void (*)(const int16_t *left, int64_t left_step, const int16_t *panel, int64_t depth, int32_t *sums,
        int64_t sums_step, int64_t rows, int64_t vectors, int64_t add);

// Widens `count` rows of `depth` bytes (stride `left_step`) minus a zero point to rows of `pitch` elements, zero-padded.
using PairRows = void (*)(const uint8_t *left, int64_t left_step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch,
        const uint8_t *zero, int64_t is_signed);

// As PairRows, for windows of results [first, first + count): the taps of `lines` window lines from `line` on, channels last.
// Elements of a row past them have any values, as the weights there are 0.
using PairWindows = void (*)(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t line, int64_t lines,
        int16_t *rows, int64_t pitch, const uint8_t *zero);

// Computes sums[p][c] = sum over taps of (x[tap of p][c] - zero point) * weight[tap][c].
//
// p: results [first, first + count); c: `channels` channels starting at x.  Inputs are interleaved to pairs: of two lines of the
// window in one column or, for a window of one line, of two columns; those of `tile` results of a line at once.  weights: [2, pairs
// of lines, pairs in a line, all channels, 2], starting at the same channel, zero-padded, for windows that begin with a pair, and
// for those that begin with the second line of one.  totals: the sum of each channel's weights.  The channels of weights and totals
// are padded to a multiple of 8, and the first channel is a multiple of 8.  sums: rows of `channels`, and 8 more elements.  space:
// scratch memory for the pairs: [channels / 8, pairs of the lines of `count` results, columns, 8, 2].
using PairChannels = void (*)(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t channels, int64_t tile,
        const int16_t *weights, const int32_t *totals, int32_t *sums, int16_t *space, const uint8_t *zero);

// A block of Winograd tiles, each of 2 x 2 results of a 3 x 3 filter: `lines` by `across` tiles from tile (y, x) of an image on.
struct Tiles {
    int64_t image, y, x, lines, across;
};

// Winograd's input transform F(2x2, 3x3): for each of 16 points and each tile, `channels` int16 values.
//
// Inputs minus the zero point are in [-255, 255], and a point is a sum of four of them.  points: [16, tiles, pitch]; filler:
// scratch memory of `channels` bytes.
using PairPoints = void (*)(const uint8_t *x, const Windows *windows, const Tiles *tiles, int16_t *points, int64_t pitch,
        uint8_t *filler, const uint8_t *zero);

// Multiplies points by a panel of transformed filters [16, pitch / 2, 16, 2] and applies the output transform.  The transformed
// filters are scaled by 4 to be integers: sums are exact modulo 2^32, and shifted back.
//
// products: scratch memory [16, tiles, 16]; sums: [2 lines, 2 across, 16].
using PairFilters = void (*)(const int16_t *points, int64_t pitch, const int16_t *panel, const Tiles *tiles, int32_t *products,
        int32_t *sums, int64_t vectors);

// Returns the address of a function by the symbol that compiled loops use; null if unknown.
void *byte_pair_function(const std::string &name);

} // namespace mgx
