// What products with coded weights take for granted of scales.
#pragma once

#include <limits>

namespace mgx {

// The scale up to which a code less its point, at most 255, stands for a finite weight.  Sums of integers that are scaled at the end
// hide the NaN of 0 times an infinite scale.
constexpr float most_scale = std::numeric_limits<float>::max() / 255;

} // namespace mgx
