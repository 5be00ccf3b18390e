// Convolutions of bytes of each channel by itself by dot products of four bytes (VNNI): what compiled loops call.
//
// Four taps of a channel are four bytes that lie together, so that one instruction multiplies those of sixteen channels.  They are the
// taps of four lines of the window in one column (`upright`), or of one line in four columns.
#pragma once

#include <cstdint>
#include <string>

#include "byte_pairs.h"

namespace mgx {

// How taps are taken four by four: into `groups` groups of lines of the window, each with `taps` fours in every pass over them.
//
// Weights that one byte does not hold are the sums of those of `passes` passes.  The fours of one line of results serve `shared` lines
// of them, each with weights of its own, where the lines of one window leave a four open.
struct Fours {
    int64_t upright, groups, taps, passes, shared;
};

// sums[p][c] = the sum over taps of the byte at each tap of channel c, less the zero point, times the channel's weight there.
//
// p: results `first` to `first + count`; c: `some` channels from x on, 16 at least, of those that the windows have; weights: [line of
// those that share fours, pass, group, four, channel, 4] from the first of them on, zeros where taps end; totals: the sum of each
// channel's weights; sums: rows of `some`; space: for the fours of a line of results.
using ChannelFours = void (*)(const uint8_t *x, const Windows *windows, const Fours *fours, int64_t first, int64_t count, int64_t some,
        const int8_t *weights, const int32_t *totals, int32_t *sums, uint8_t *space, const uint8_t *zero);

// The address of a function by the name that compiled loops use; null for another name.
void *byte_channel_function(const std::string &name);

} // namespace mgx
