// The bound on scales of block-quantized weights below which products need no check for non-finite values.
#pragma once

#include <limits>

namespace mgx {

// The largest scale for which every weight is finite: a code minus its zero point is at most 255.  Beyond it, scaling integer
// sums at the end would hide the NaN of 0 times an infinite scale.
constexpr float max_scale = std::numeric_limits<float>::max() / 255;

} // namespace mgx
