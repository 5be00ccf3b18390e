// Products of bytes by dot products of four bytes (VNNI): what compiled loops call for some rows and one panel of columns.
//
// A panel holds up to 64 columns of weights in vectors of 16: [depth / 4, vectors, 16, 4], zeros where depth or columns end.
#pragma once

#include <string>

namespace mgx {

// The address of a function by the name that compiled loops use, of type ByteTile (`byte_tiles.h`); null for another name.
//
// Sums of `rows` rows alone are made; depth: in steps of 4; tiles: the panel's vectors; signed rows count as 128 larger.
void *byte_dot_function(const std::string &name);

} // namespace mgx
