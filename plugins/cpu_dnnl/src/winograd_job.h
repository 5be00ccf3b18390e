// Convolutions by Winograd's minimal filtering: what the loops for each instruction set have in common.
//
// Included by sources that are compiled once per instruction set, so there are no inline functions here.
#pragma once

#include <cstdint>
#include <cstring>

#include "links.h"

namespace mgx {

using WinogradLoop = void (*)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch);

// A tile of outputs and the filter, down and across; the stride is that of both axes.
struct WinogradKind {
    int m_h, r_h, m_w, r_w, stride;
};

struct WinogradLoops {
    WinogradLoop transform; // inputs to points, (groups, tiles) as work
    WinogradLoop multiply; // products and outputs of what `transform` left, (groups, spans, blocks) as work
    WinogradLoop both; // one after the other in scratch memory, (groups, blocks) as work
    // weights [o, c, r_h, r_w] by strides -> [point, panel, c, width]; (panels) as work
    void (*pack)(const float *from, const int64_t *strides, float *to, int64_t o, int64_t c, int64_t begin, int64_t end);
};

// null where absent
WinogradLoops winograd_avx2(WinogradKind kind);
WinogradLoops winograd_avx512(WinogradKind kind);

struct Job {
    int64_t images, groups, height, width, channels, out_height, out_width, out_channels, pad_top, pad_left; // channels of a group
    int64_t x_image, x_row, x_column, y_image, y_row, y_column; // strides in floats
    int64_t tile_rows, tile_columns; // in one image
    int64_t block; // tiles that are done together
    int64_t span; // output channels that are done together, whole panels
    int64_t links; // number of links that follow in the arguments
};

constexpr int64_t line = 16; // floats in a cache line: keeps points from sharing cache sets

} // namespace mgx
