// Fingerprints of the source files that the module was built from, computed by sources.cmake: SHA-256 (hexadecimal) over lines of
// names and sizes, and over lines of names and content hashes.
#pragma once

namespace mgx {

extern const char *const source_sizes;
extern const char *const source_hashes;

} // namespace mgx
