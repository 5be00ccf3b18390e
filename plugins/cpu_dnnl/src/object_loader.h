// In-memory loader for compiled loops: maps and relocates ELF objects, so that running them needs neither LLVM nor a linker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <pybind11/pybind11.h>

namespace mgx {

// A read-only, executable mapping of relocatable x86-64 ELF objects, loaded together.  Owns the mapping: the addresses of its
// functions are valid until it is destroyed.
class CodeImage {
public:
    // Throws Failure (device) for objects that are malformed or use features that this loader does not support.
    explicit CodeImage(const std::vector<std::string_view> &objects);
    ~CodeImage();
    CodeImage(const CodeImage &) = delete;
    CodeImage &operator=(const CodeImage &) = delete;

    size_t address(const std::string &symbol) const; // address of a global function
    size_t bytes() const { return bytes_; }

private:
    char *memory_ = nullptr;
    size_t bytes_ = 0;
    std::map<std::string, size_t> symbols_;
};

void bind_image(pybind11::module_ &module);

} // namespace mgx
