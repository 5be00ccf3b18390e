// int8 GEMM micro-kernel on dot products of four bytes (VNNI); called from compiled loops for some rows and one panel of columns.
//
// A panel holds up to 64 columns of weights in vectors of 16: [depth / 4, vectors, 16, 4], zero-padded.
#pragma once

#include <string>

namespace mgx {

// Returns the address of a function of type ByteTile (`byte_tiles.h`) by the symbol that compiled loops use; null if unknown.
//
// Writes exactly `rows` rows; depth: in units of 4; tiles: the panel's vectors; signed rows are offset by 128, for which `start`
// must compensate.
void *byte_dot_function(const std::string &name);

} // namespace mgx
