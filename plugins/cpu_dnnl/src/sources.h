// The files that the module was built from, as sources.cmake found them: SHA-256 in hexadecimal digits of lines of names and sizes,
// and of lines of names and the hashes of their contents.
#pragma once

namespace mgx {

extern const char *const source_sizes;
extern const char *const source_hashes;

} // namespace mgx
