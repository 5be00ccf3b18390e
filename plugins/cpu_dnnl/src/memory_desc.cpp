#include "memory_desc.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "errors.h"

namespace py = pybind11;

namespace mgx {

namespace {

const std::map<std::string, dnnl_data_type_t> &data_types() {
    static const std::map<std::string, dnnl_data_type_t> types {{"f32", dnnl_f32}, {"float32", dnnl_f32},
            {"f16", dnnl_f16}, {"float16", dnnl_f16}, {"bf16", dnnl_bf16}, {"bfloat16", dnnl_bf16}, {"s32", dnnl_s32},
            {"int32", dnnl_s32}, {"s8", dnnl_s8}, {"int8", dnnl_s8}, {"u8", dnnl_u8}, {"uint8", dnnl_u8},
            {"f64", dnnl_f64}, {"float64", dnnl_f64}};
    return types;
}

// Translates a named layout to a permutation of axis letters such as "acdb"; other tags are returned unchanged.
std::string axes_of(const std::string &tag, size_t rank) {
    static const std::map<std::string, std::string> words {{"nc", "ab"}, {"ncw", "abc"}, {"nwc", "acb"},
            {"nchw", "abcd"}, {"nhwc", "acdb"}, {"ncdhw", "abcde"}, {"ndhwc", "acdeb"}, {"oihw", "abcd"},
            {"hwio", "cdba"}, {"goihw", "abcde"}, {"hwigo", "decab"}, {"tnc", "abc"}, {"ntc", "bac"}, {"ldigo", "abcde"},
            {"ldgoi", "abdec"}, {"ldnc", "abcd"}, {"ldgo", "abcd"}};
    if (tag == "plain" || tag == "row_major") return std::string("abcdefghijkl").substr(0, rank);
    if (tag == "channels_last") {
        std::string all = std::string("abcdefghijkl").substr(0, rank);
        return rank < 3 ? all : "a" + all.substr(2) + "b";
    }
    auto found = words.find(tag);
    return found == words.end() ? tag : found->second;
}

Dims permuted_strides(const Dims &dims, const std::string &axes) {
    Dims strides(dims.size());
    std::vector<bool> seen(dims.size());
    int64_t step = 1;
    if (axes.size() != dims.size())
        throw Failure(Fault::parameter,
                "layout " + axes + " must name " + std::to_string(dims.size()) + " axes, got " + std::to_string(axes.size()));
    for (size_t i = axes.size(); i-- > 0;) {
        size_t axis = static_cast<size_t>(axes[i] - 'a');
        if (axis >= dims.size() || seen[axis])
            throw Failure(Fault::parameter,
                    "layout " + axes + " must be a permutation of the letters of " + std::to_string(dims.size()) + " axes");
        seen[axis] = true;
        strides[axis] = step;
        step *= std::max<int64_t>(dims[axis], 1);
    }
    return strides;
}

bool is_blocked(const std::string &tag) {
    return std::any_of(tag.begin(), tag.end(), [](char c) { return c >= '0' && c <= '9'; });
}

MemoryDesc wrap(dnnl_memory_desc_t handle, dnnl_status_t status) {
    check(status, "memory descriptor");
    return MemoryDesc(dnnl::memory::desc(handle));
}

// Returns the oneDNN tag of a blocked layout, of those that plans request by name.
dnnl_format_tag_t blocked_tag(const std::string &tag) {
    static const std::map<std::string, dnnl_format_tag_t> tags {{"nCw16c", dnnl_aBc16b}, {"nChw16c", dnnl_aBcd16b},
            {"nCdhw16c", dnnl_aBcde16b}, {"nCw8c", dnnl_aBc8b}, {"nChw8c", dnnl_aBcd8b}, {"nCdhw8c", dnnl_aBcde8b},
            {"aBc16b", dnnl_aBc16b}, {"aBcd16b", dnnl_aBcd16b}, {"aBcde16b", dnnl_aBcde16b}, {"aBc8b", dnnl_aBc8b},
            {"aBcd8b", dnnl_aBcd8b}, {"aBcde8b", dnnl_aBcde8b}, {"BA16a64b", dnnl_BA16a64b}};
    auto found = tags.find(tag);
    if (found == tags.end()) throw Failure(Fault::parameter, "unknown blocked layout " + tag + "; use one such as nChw16c or aBcd16b");
    return found->second;
}

} // namespace

dnnl_data_type_t data_type_of(const std::string &name) {
    auto found = data_types().find(name);
    if (found == data_types().end()) throw Failure(Fault::unsupported, "oneDNN has no element type " + name);
    return found->second;
}

std::string data_type_name(dnnl_data_type_t type) {
    switch (type) {
        case dnnl_f32: return "float32";
        case dnnl_f16: return "float16";
        case dnnl_bf16: return "bfloat16";
        case dnnl_f64: return "float64";
        case dnnl_s32: return "int32";
        case dnnl_s8: return "int8";
        case dnnl_u8: return "uint8";
        default: return "undefined";
    }
}

MemoryDesc MemoryDesc::any(const Dims &dims, const std::string &type) {
    dnnl_memory_desc_t handle = nullptr;
    auto status = dnnl_memory_desc_create_with_tag(
            &handle, static_cast<int>(dims.size()), dims.data(), data_type_of(type), dnnl_format_tag_any);
    return wrap(handle, status);
}

MemoryDesc MemoryDesc::strided(const Dims &dims, const std::string &type, const Dims &strides) {
    if (strides.size() != dims.size())
        throw Failure(Fault::parameter,
                "a stride is needed for each of " + std::to_string(dims.size()) + " axes, got " + std::to_string(strides.size()));
    dnnl_memory_desc_t handle = nullptr;
    Dims steps = strides;
    // oneDNN rejects nonpositive strides, even of axes of extent 1, where they have no effect.
    for (size_t i = 0; i < dims.size(); ++i)
        if (dims[i] <= 1 && steps[i] <= 0) steps[i] = 1;
    auto status = dnnl_memory_desc_create_with_strides(
            &handle, static_cast<int>(dims.size()), dims.data(), data_type_of(type), steps.data());
    return wrap(handle, status);
}

MemoryDesc MemoryDesc::tagged(const Dims &dims, const std::string &type, const std::string &tag) {
    if (tag == "any") return any(dims, type);
    if (!is_blocked(tag)) return strided(dims, type, permuted_strides(dims, axes_of(tag, dims.size())));
    dnnl_memory_desc_t handle = nullptr;
    auto status = dnnl_memory_desc_create_with_tag(
            &handle, static_cast<int>(dims.size()), dims.data(), data_type_of(type), blocked_tag(tag));
    return wrap(handle, status);
}

MemoryDesc MemoryDesc::numbered(const Dims &dims, const std::string &type, int tag) {
    dnnl_memory_desc_t handle = nullptr;
    auto status = dnnl_memory_desc_create_with_tag(&handle, static_cast<int>(dims.size()), dims.data(), data_type_of(type),
            static_cast<dnnl_format_tag_t>(tag));
    return wrap(handle, status);
}

bool MemoryDesc::is_any() const { return !absent() && desc.get_format_kind() == dnnl::memory::format_kind::any; }

bool MemoryDesc::is_plain() const {
    return !absent() && desc.get_format_kind() == dnnl::memory::format_kind::blocked && desc.get_inner_nblks() == 0;
}

// Returns the axis letters from outermost to innermost, upper case if blocked, then the inner blocks: "aBcd16b".
std::string MemoryDesc::layout() const {
    if (absent()) return "absent";
    if (is_any()) return "any";
    if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return "opaque";
    auto strides = desc.get_strides();
    auto axes = desc.get_inner_idxs();
    auto blocks = desc.get_inner_blks();
    std::vector<size_t> order(strides.size());
    std::iota(order.begin(), order.end(), size_t {0});
    auto dims = desc.get_padded_dims();
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
        return strides[i] != strides[j] ? strides[i] > strides[j] : dims[i] > dims[j];
    });
    std::string text;
    for (size_t axis : order) {
        bool blocked = std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
        text += static_cast<char>((blocked ? 'A' : 'a') + axis);
    }
    for (size_t i = 0; i < axes.size(); ++i)
        text += std::to_string(blocks[i]) + static_cast<char>('a' + axes[i]);
    return text;
}

namespace {

// Returns the constructor arguments of an equal descriptor, for serialization: dims, element type, layout; None for an absent
// tensor.  Throws Failure (unsupported) for layouts without a oneDNN tag.
py::object plain_form(const MemoryDesc &d) {
    if (d.absent()) return py::none();
    auto dims = d.desc.get_dims();
    auto type = data_type_name(static_cast<dnnl_data_type_t>(d.desc.get_data_type()));
    auto form = [&](const py::object &layout) { return py::make_tuple(py::tuple(py::cast(dims)), type, layout); };
    if (d.is_any()) return form(py::str("any"));
    if (d.is_plain()) {
        auto strides = d.desc.get_strides();
        if (MemoryDesc::strided(dims, type, strides).desc == d.desc) return form(py::tuple(py::cast(strides)));
    }
    if (d.desc.get_format_kind() == dnnl::memory::format_kind::blocked)
        for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; ++tag) {
            dnnl_memory_desc_t handle = nullptr;
            if (dnnl_memory_desc_create_with_tag(&handle, static_cast<int>(dims.size()), dims.data(),
                        static_cast<dnnl_data_type_t>(d.desc.get_data_type()), static_cast<dnnl_format_tag_t>(tag))
                    != dnnl_success)
                continue;
            if (dnnl::memory::desc(handle) == d.desc) return form(py::int_(tag));
        }
    throw Failure(Fault::unsupported, "oneDNN has no name for the layout " + d.layout() + ", so the descriptor cannot be saved");
}

} // namespace

void bind_memory_desc(py::module_ &module) {
    py::class_<MemoryDesc>(module, "MemoryDesc")
            .def(py::init([](const Dims &dims, const std::string &dtype, const py::object &layout) {
                if (py::isinstance<py::str>(layout)) return MemoryDesc::tagged(dims, dtype, layout.cast<std::string>());
                if (layout.is_none()) return MemoryDesc::tagged(dims, dtype, "plain");
                if (py::isinstance<py::int_>(layout)) return MemoryDesc::numbered(dims, dtype, layout.cast<int>());
                return MemoryDesc::strided(dims, dtype, layout.cast<Dims>());
            }),
                    py::arg("dims"), py::arg("dtype"), py::arg("layout") = py::none())
            .def_static("absent", [] { return MemoryDesc(); })
            .def_property_readonly("is_absent", &MemoryDesc::absent)
            .def_property_readonly("is_any", &MemoryDesc::is_any)
            .def_property_readonly("is_plain", &MemoryDesc::is_plain)
            .def_property_readonly("layout", &MemoryDesc::layout)
            .def_property_readonly("plain_form", &plain_form)
            .def_property_readonly("dims", [](const MemoryDesc &d) { return py::tuple(py::cast(d.desc.get_dims())); })
            .def_property_readonly(
                    "padded_dims", [](const MemoryDesc &d) { return py::tuple(py::cast(d.desc.get_padded_dims())); })
            .def_property_readonly("dtype",
                    [](const MemoryDesc &d) {
                        return data_type_name(static_cast<dnnl_data_type_t>(d.desc.get_data_type()));
                    })
            .def_property_readonly("strides",
                    [](const MemoryDesc &d) -> py::object {
                        if (!d.is_plain()) return py::none();
                        return py::tuple(py::cast(d.desc.get_strides()));
                    })
            .def_property_readonly("offset", [](const MemoryDesc &d) { return d.desc.get_submemory_offset(); })
            .def_property_readonly("nbytes", [](const MemoryDesc &d) { return d.desc.get_size(); })
            .def("part",
                    [](const MemoryDesc &d, const Dims &dims, const Dims &offsets) {
                        dnnl_memory_desc_t handle = nullptr;
                        auto status = dnnl_memory_desc_create_submemory(&handle, d.get(), dims.data(), offsets.data());
                        return wrap(handle, status);
                    },
                    py::arg("dims"), py::arg("offsets"))
            .def("reshaped",
                    [](const MemoryDesc &d, const Dims &dims) {
                        dnnl_memory_desc_t handle = nullptr;
                        auto status = dnnl_memory_desc_reshape(
                                &handle, d.get(), static_cast<int>(dims.size()), dims.data());
                        return wrap(handle, status);
                    },
                    py::arg("dims"))
            .def("permuted",
                    [](const MemoryDesc &d, const std::vector<int> &axes) {
                        dnnl_memory_desc_t handle = nullptr;
                        auto status = dnnl_memory_desc_permute_axes(&handle, d.get(), axes.data());
                        return wrap(handle, status);
                    },
                    py::arg("axes"))
            .def("__eq__",
                    [](const MemoryDesc &a, const py::object &b) {
                        return py::isinstance<MemoryDesc>(b) && a.desc == b.cast<const MemoryDesc &>().desc;
                    })
            .def("__hash__",
                    [](const MemoryDesc &d) {
                        size_t hash = std::hash<std::string>()(d.layout());
                        if (!d.absent())
                            for (auto n : d.desc.get_dims())
                                hash = hash * 31 + static_cast<size_t>(n);
                        return hash;
                    })
            .def("__repr__", [](const MemoryDesc &d) {
                if (d.absent()) return std::string("MemoryDesc.absent()");
                std::string text = "MemoryDesc([";
                auto dims = d.desc.get_dims();
                for (size_t i = 0; i < dims.size(); ++i)
                    text += (i ? ", " : "") + std::to_string(dims[i]);
                return text + "], '" + data_type_name(static_cast<dnnl_data_type_t>(d.desc.get_data_type())) + "', '"
                        + d.layout() + "')";
            });
}

} // namespace mgx
