// Loader for compiled loops: maps and relocates ELF objects itself, so that running them needs neither LLVM nor a linker.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <pybind11/pybind11.h>

namespace mgx {

// A read-only executable mapping with the functions of relocatable x86-64 ELF objects.
class CodeImage {
public:
    // Failure: device for objects that are damaged or use what this loader does not know.
    explicit CodeImage(const std::vector<std::string_view> &objects);
    ~CodeImage();
    CodeImage(const CodeImage &) = delete;
    CodeImage &operator=(const CodeImage &) = delete;

    size_t address(const std::string &symbol) const; // of a global function
    size_t bytes() const { return bytes_; }

private:
    char *memory_ = nullptr;
    size_t bytes_ = 0;
    std::map<std::string, size_t> symbols_;
};

void bind_image(pybind11::module_ &module);

} // namespace mgx
