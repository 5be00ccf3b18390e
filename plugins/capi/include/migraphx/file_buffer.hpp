/* Reads and writes files as strings and buffers.  Failures throw std::runtime_error with the file's name. */
#ifndef MIGRAPHX_GUARD_FILE_BUFFER_HPP
#define MIGRAPHX_GUARD_FILE_BUFFER_HPP

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#if __cplusplus >= 201703L
#include <filesystem>
#endif

namespace migraphx {

#if __cplusplus >= 201703L
namespace fs = std::filesystem;
using file_name = fs::path;
inline std::string text_of(const file_name& name) { return name.string(); }
#else
using file_name = std::string;
inline std::string text_of(const file_name& name) { return name; }
#endif

template <class Bytes>
inline Bytes read_file(const file_name& name)
{
    std::ifstream file(text_of(name), std::ios::binary | std::ios::ate);
    if (!file) throw std::runtime_error("cannot open file " + text_of(name));
    const std::streamoff size = file.tellg();
    file.seekg(0);
    file.peek(); /* fails for a directory, which can be opened and has a size */
    if (size < 0 || file.bad()) throw std::runtime_error("cannot read file " + text_of(name));
    Bytes read;
    read.resize(static_cast<size_t>(size));
    if (!read.empty() && !file.read(&read[0], static_cast<std::streamsize>(read.size())))
        throw std::runtime_error("cannot read file " + text_of(name));
    return read;
}

inline std::vector<char> read_buffer(const file_name& name) { return read_file<std::vector<char>>(name); }
inline std::string read_string(const file_name& name) { return read_file<std::string>(name); }

inline void write_buffer(const file_name& name, const char* buffer, std::size_t size)
{
    std::ofstream file(text_of(name), std::ios::binary);
    if (!file.write(buffer, static_cast<std::streamsize>(size)).flush())
        throw std::runtime_error("cannot write file " + text_of(name));
}
inline void write_buffer(const file_name& name, const std::vector<char>& buffer) { write_buffer(name, buffer.data(), buffer.size()); }

} // namespace migraphx
#endif
