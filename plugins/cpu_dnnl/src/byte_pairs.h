// Products of bytes by sums of pairs in int32 (vpmaddwd), for processors without dot products of bytes: what compiled loops call.
//
// Bytes become numbers of 16 bits less their zero point, of which two neighbours of the depth are multiplied and added at once.
// That is exact for all bytes: unlike sums of two products in 16 bits, it does not saturate.
#pragma once

#include <cstdint>
#include <string>

namespace mgx {

// The bytes that windows of a convolution cover: what `byte_pairs.py` gives, in this order; axes are depth, height, width.
struct Windows {
    int64_t channels; // of a group
    int64_t images, across, step[3]; // bytes from one image to the next, from pixel to pixel along the width, along each axis
    int64_t in[3], out[3], taps[3], stride[3], dilation[3], begin[3];
    int64_t is_signed;
};

// sums[r][c] = (add ? sums[r][c] : 0) + the sum over i < depth of left[r][i] * panel[i / 2][c][i % 2], modulo 2^32.
//
// left: rows, `left_step` elements apart; depth: a multiple of 4; panel: rows of 16 columns; sums: rows `sums_step` elements apart;
// rows: at most 6; vectors: of 8 columns each, 1 or 2.
using PairTile = void (*)(const int16_t *left, int64_t left_step, const int16_t *panel, int64_t depth, int32_t *sums,
        int64_t sums_step, int64_t rows, int64_t vectors, int64_t add);

// `count` rows of `depth` bytes, `left_step` apart, less a zero point, as rows of `pitch` numbers; zeros behind the depth.
using PairRows = void (*)(const uint8_t *left, int64_t left_step, int64_t count, int64_t depth, int16_t *rows, int64_t pitch,
        const uint8_t *zero, int64_t is_signed);

// The same for the windows of results `first` to `first + count`: the taps of `lines` lines from `line` on, channels innermost.
using PairWindows = void (*)(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, int64_t line, int64_t lines,
        int16_t *rows, int64_t pitch, const uint8_t *zero);

// sums[p][c] = the sum over taps of the byte at each tap of channel c, less the zero point, times the channel's weight there.
//
// p: results `first` to `first + count`; weights: [pairs of lines of the window, columns, channels, 2], zeros behind the last line,
// where a window of one line has as many lines of one column; totals: the sum of each channel's weights; sums: rows `pitch` elements
// apart, with room for a line of channels and the addresses of all taps and of one more line of them.
using PairChannels = void (*)(const uint8_t *x, const Windows *windows, int64_t first, int64_t count, const int16_t *weights,
        const int32_t *totals, int32_t *sums, int64_t pitch, const uint8_t *zero);

// Some tiles of 2 x 2 results of windows of 3 x 3: `lines` by `across` of them from tile (y, x) of an image on.
struct Tiles {
    int64_t image, y, x, lines, across;
};

// The points of tiles by Winograd's minimal filtering: for each of 16 points and each tile, `channels` numbers of 16 bits.
//
// Every input is less the zero point and between -255 and 255; points are sums of four of them.  points: [16, tiles, pitch]; filler:
// `channels` bytes that are written.
using PairPoints = void (*)(const uint8_t *x, const Windows *windows, const Tiles *tiles, int16_t *points, int64_t pitch,
        uint8_t *filler, const uint8_t *zero);

// The sums of tiles and one panel of filters at 16 points, [16, pitch / 2, 16, 2], four times as large as the windows': they are
// exact modulo 2^32, and shifted back.  products: [16, tiles, 16], which is written; sums: [2 lines, 2 across, 16].
using PairFilters = void (*)(const int16_t *points, int64_t pitch, const int16_t *panel, const Tiles *tiles, int32_t *products,
        int32_t *sums, int64_t vectors);

// The address of a function by the name that compiled loops use; null for another name.
void *byte_pair_function(const std::string &name);

} // namespace mgx
