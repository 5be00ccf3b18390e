// Winograd convolutions: declarations shared by the loops for all instruction sets (A. Lavin and S. Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2015).
//
// Included by sources that are compiled once per instruction set, so there are no inline functions here.
#pragma once

#include <cstdint>
#include <cstring>

#include "links.h"

namespace mgx {

using WinogradLoop = void (*)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch);

// Output tile m and filter r along h and w: F(m x m, r x r); one stride for both axes; whether inputs, results and operands of the
// links are bfloat16.
struct WinogradKind {
    int m_h, r_h, m_w, r_w, stride;
    bool bfloat16;
};

struct WinogradLoops {
    WinogradLoop transform; // input transform; work items: (groups, tiles)
    WinogradLoop multiply; // products and output transform; work items: (groups, spans, blocks)
    WinogradLoop both; // all stages, with the transformed input in scratch memory; work items: (groups, blocks)
    WinogradLoop filters; // filter transform of weights that are not constant; work items: (groups, panels)
    // filter transform: strided weights [o, c, r_h, r_w] -> [point, panel, c, width]; work items: panels
    void (*pack)(const float *from, const int64_t *strides, float *to, int64_t o, int64_t c, int64_t begin, int64_t end);
};

// Return null functions for kinds that are not supported.
WinogradLoops winograd_avx2(WinogradKind kind);
WinogradLoops winograd_avx512(WinogradKind kind);

struct Job {
    // channels and out_channels are per group
    int64_t images, groups, height, width, channels, out_height, out_width, out_channels, pad_top, pad_left;
    int64_t gap_down, gap_across; // dilation: inputs and outputs of a tile are that many rows and columns apart
    int64_t x_image, x_row, x_column, y_image, y_row, y_column; // strides in elements
    int64_t tile_rows, tile_columns; // tiles of one image
    int64_t block; // tiles processed together
    int64_t span; // output channels processed together, a multiple of the panel width
    int64_t links; // number of links that follow in the arguments
};

constexpr int64_t line = 16; // floats in a cache line: keeps points from sharing cache sets

} // namespace mgx
