// Depthwise int8 convolutions by dot products of four bytes (VNNI); called from compiled loops.
//
// Four taps of a channel are interleaved to adjacent bytes, a "four", so that one instruction multiplies those of sixteen
// channels.  They are the taps of four lines of the window in one column (`upright`), or of one line in four columns.
#pragma once

#include <cstdint>
#include <string>

#include "byte_pairs.h"

namespace mgx {

// Grouping of taps into fours: `groups` groups of lines of the window, each with `taps` fours per pass.
//
// Weights that do not fit into one byte are split into the sum of `passes` bytes.  If the lines of one window do not fill a four,
// the same fours serve `shared` lines of results, each with its own weights.
struct Fours {
    int64_t upright, groups, taps, passes, shared;
};

// Computes sums[p][c] = sum over taps of (x[tap of p][c] - zero point) * weight[tap][c].
//
// p: results [first, first + count); c: `channels` channels starting at x, at least 16; weights: [line that shares fours, pass,
// group, four, channel, 4], starting at the same channel, zero-padded; totals: the sum of each channel's weights; sums: rows of
// `channels`; space: scratch memory for the fours of a line of results.
using ChannelFours = void (*)(const uint8_t *x, const Windows *windows, const Fours *fours, int64_t first, int64_t count,
        int64_t channels, const int8_t *weights, const int32_t *totals, int32_t *sums, uint8_t *space, const uint8_t *zero);

// Returns the address of a function by the symbol that compiled loops use; null if unknown.
void *byte_channel_function(const std::string &name);

} // namespace mgx
