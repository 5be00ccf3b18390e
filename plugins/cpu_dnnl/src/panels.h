// Packing of weights into panels: a few adjacent columns of a matrix, stored row by row.
#pragma once

#include "memory_desc.h"

namespace mgx {

// Copies float32 [panels, depth, width] from one layout to row-major; returns false and copies nothing for other layouts, which are
// left to oneDNN's reorders: these generate code for every new set of extents, which takes longer than most copies.
bool copy_panels(const float *from, const MemoryDesc &source, float *to, const MemoryDesc &target);

} // namespace mgx
