// Copies of weights to panels: some columns of a matrix side by side, row after row.
#pragma once

#include "memory_desc.h"

namespace mgx {

// Copies float32 [panels, depth, width] from one layout to the row-major one; false, and nothing done, for other layouts, which
// are left to oneDNN's reorders: these generate code for all extents that they first meet, which takes longer than most copies.
bool copy_panels(const float *from, const MemoryDesc &source, float *to, const MemoryDesc &target);

} // namespace mgx
