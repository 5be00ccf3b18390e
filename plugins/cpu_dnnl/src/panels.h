// Packing of weights into panels: a few adjacent columns of a matrix, stored row by row.
#pragma once

#include "memory_desc.h"

namespace mgx {

// Copies float32 [panels, depth, width] to row-major order.  Returns false and copies nothing if the layouts are not supported;
// callers then use a oneDNN reorder, which generates code for each new set of extents: that takes longer than most copies.
bool copy_panels(const float *from, const MemoryDesc &source, float *to, const MemoryDesc &target);

} // namespace mgx
