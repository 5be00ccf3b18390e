// oneDNN memory descriptors: dims, element type and layout of a tensor.
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
    MemoryDesc() = default; // an absent tensor
    explicit MemoryDesc(dnnl::memory::desc desc) : desc(std::move(desc)) {}

    static MemoryDesc any(const Dims &dims, const std::string &type);
    static MemoryDesc strided(const Dims &dims, const std::string &type, const Dims &strides);
    static MemoryDesc numbered(const Dims &dims, const std::string &type, int tag); // tag: a dnnl_format_tag_t
    static MemoryDesc tagged(const Dims &dims, const std::string &type, const std::string &tag);

    const_dnnl_memory_desc_t get() const { return desc.get(true); }
    bool absent() const { return desc.is_zero(); }
    bool is_any() const;
    bool is_plain() const;
    std::string layout() const;

    dnnl::memory::desc desc;
};

// Returns the descriptor of an optional operand for oneDNN: null if absent.
inline const_dnnl_memory_desc_t or_null(const MemoryDesc &desc) { return desc.absent() ? nullptr : desc.get(); }

void bind_memory_desc(pybind11::module_ &module);

} // namespace mgx
