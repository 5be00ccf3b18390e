// Memory descriptors: dims, element type and layout of a tensor as oneDNN sees it.
#pragma once

#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#include <pybind11/pybind11.h>

namespace mgx {

using Dims = std::vector<int64_t>;

dnnl_data_type_t data_type_of(const std::string &name);
std::string data_type_name(dnnl_data_type_t type);

class MemoryDesc {
public:
    MemoryDesc() = default; // the absent tensor
    explicit MemoryDesc(dnnl::memory::desc desc) : desc(std::move(desc)) {}

    static MemoryDesc any(const Dims &dims, const std::string &type);
    static MemoryDesc strided(const Dims &dims, const std::string &type, const Dims &strides);
    static MemoryDesc numbered(const Dims &dims, const std::string &type, int tag); // by oneDNN's number of a layout
    static MemoryDesc tagged(const Dims &dims, const std::string &type, const std::string &tag);

    const_dnnl_memory_desc_t get() const { return desc.get(true); }
    bool absent() const { return desc.is_zero(); }
    bool is_any() const;
    bool is_plain() const;
    std::string layout() const;

    dnnl::memory::desc desc;
};

// What oneDNN takes for an operand that may be absent.
inline const_dnnl_memory_desc_t or_null(const MemoryDesc &desc) { return desc.absent() ? nullptr : desc.get(); }

void bind_memory_desc(pybind11::module_ &module);

} // namespace mgx
