// Python bindings that build oneDNN primitives: convolution and its weights' gradient, deconvolution, pooling, matmul and reorder.
#include <map>

#include <pybind11/stl.h>

#include "primitive.h"

namespace py = pybind11;

namespace mgx {

namespace {

using PrimitivePtr = std::shared_ptr<Primitive>;
using Descs = std::vector<MemoryDesc>;

constexpr auto inference = dnnl_forward_inference;

MemoryDesc value_or_absent(const std::optional<MemoryDesc> &desc) { return desc ? *desc : MemoryDesc(); }

void check_lengths(const MemoryDesc &desc, size_t spatial, std::initializer_list<const Dims *> attributes) {
    for (auto *a : attributes)
        if (a->size() != spatial)
            throw Failure(Fault::parameter,
                    std::to_string(spatial) + " values are needed, one for each spatial axis of "
                            + std::to_string(desc.desc.get_ndims()) + "-d data, got " + std::to_string(a->size()));
}

template <typename Create>
PrimitivePtr windowed(const char *kind, Create create, dnnl_alg_kind_t algorithm, const MemoryDesc &src,
        const MemoryDesc &weights, const std::optional<MemoryDesc> &bias, const MemoryDesc &dst, const Dims &strides,
        const Dims &dilations, const Dims &begin, const Dims &end, const py::kwargs &attributes) {
    check_lengths(src, static_cast<size_t>(src.desc.get_ndims()) - 2, {&strides, &dilations, &begin, &end});
    Dims holes = dilations; // oneDNN's dilation counts the skipped elements
    for (auto &d : holes)
        --d;
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return create(pd, cpu_engine().get(), inference, algorithm, d[0].get(), d[1].get(), or_null(d[2]), d[3].get(),
                strides.data(), holes.data(), begin.data(), end.data(), attr);
    };
    return std::make_shared<Primitive>(kind,
            std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
            Descs {src, weights, value_or_absent(bias), dst}, attributes_from(attributes), make);
}

// The gradient of a convolution's weights; src and dst: the convolution's operand and the gradient of its result.
PrimitivePtr convolution_weights(const MemoryDesc &src, const MemoryDesc &weights, const MemoryDesc &dst,
        const Dims &strides, const Dims &dilations, const Dims &begin, const Dims &end, const py::kwargs &attributes) {
    check_lengths(src, static_cast<size_t>(src.desc.get_ndims()) - 2, {&strides, &dilations, &begin, &end});
    Dims holes = dilations;
    for (auto &d : holes)
        --d;
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        dnnl::primitive_desc_base forward; // oneDNN requires it as a hint
        dnnl_primitive_desc_t hint = nullptr;
        auto engine = cpu_engine().get();
        const dnnl_status_t made = dnnl_convolution_forward_primitive_desc_create(&hint, engine, dnnl_forward_training,
                dnnl_convolution_direct, d[0].get(), d[1].get(), nullptr, d[2].get(), strides.data(), holes.data(),
                begin.data(), end.data(), attr);
        if (made != dnnl_success) return made;
        forward.reset(hint);
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, d[0].get(),
                d[1].get(), nullptr, d[2].get(), strides.data(), holes.data(), begin.data(), end.data(), hint, attr);
    };
    return std::make_shared<Primitive>("convolution_weights",
            std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}, Descs {src, weights, dst},
            attributes_from(attributes), make);
}

dnnl_alg_kind_t find_algorithm(const std::map<std::string, dnnl_alg_kind_t> &kinds, const std::string &name) {
    auto found = kinds.find(name);
    if (found == kinds.end()) throw Failure(Fault::unsupported, "oneDNN has no algorithm " + name);
    return found->second;
}

PrimitivePtr pooling(const MemoryDesc &src, const MemoryDesc &dst, const std::string &mode, const Dims &kernel,
        const Dims &strides, const Dims &dilations, const Dims &begin, const Dims &end, const py::kwargs &attributes) {
    check_lengths(src, static_cast<size_t>(src.desc.get_ndims()) - 2, {&kernel, &strides, &dilations, &begin, &end});
    auto algorithm = find_algorithm({{"max", dnnl_pooling_max}, {"average", dnnl_pooling_avg_exclude_padding},
                                    {"average_with_padding", dnnl_pooling_avg_include_padding}},
            mode);
    Dims holes = dilations;
    for (auto &d : holes)
        --d;
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_pooling_forward_primitive_desc_create(pd, cpu_engine().get(), inference, algorithm, d[0].get(),
                d[1].get(), strides.data(), kernel.data(), holes.data(), begin.data(), end.data(), attr);
    };
    return std::make_shared<Primitive>("pooling", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
            attributes_from(attributes), make);
}

PrimitivePtr matmul(const MemoryDesc &src, const MemoryDesc &weights, const MemoryDesc &dst,
        const std::optional<MemoryDesc> &bias, const py::kwargs &attributes) {
    auto make = [](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_matmul_primitive_desc_create(
                pd, cpu_engine().get(), d[0].get(), d[1].get(), or_null(d[2]), d[3].get(), attr);
    };
    return std::make_shared<Primitive>("matmul",
            std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
            Descs {src, weights, value_or_absent(bias), dst}, attributes_from(attributes), make);
}

PrimitivePtr reorder(const MemoryDesc &src, const MemoryDesc &dst, const py::kwargs &attributes) {
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        auto engine = cpu_engine().get();
        return dnnl_reorder_primitive_desc_create(pd, d[0].get(), engine, d[1].get(), engine, attr);
    };
    return std::make_shared<Primitive>("reorder", std::vector<int> {DNNL_ARG_FROM, DNNL_ARG_TO}, Descs {src, dst},
            attributes_from(attributes), make);
}

} // namespace

void bind_builders(py::module_ &module) {
    auto src = py::arg("src");
    auto dst = py::arg("dst");
    module.def("convolution",
            [](const MemoryDesc &src, const MemoryDesc &weights, const std::optional<MemoryDesc> &bias,
                    const MemoryDesc &dst, const Dims &strides, const Dims &dilations, const Dims &begin,
                    const Dims &end, bool winograd, const py::kwargs &attributes) {
                return windowed("convolution", dnnl_convolution_forward_primitive_desc_create,
                        winograd ? dnnl_convolution_winograd : dnnl_convolution_direct, src, weights, bias, dst,
                        strides, dilations, begin, end, attributes);
            },
            src, py::arg("weights"), py::arg("bias"), dst, py::kw_only(), py::arg("strides"), py::arg("dilations"),
            py::arg("padding_begin"), py::arg("padding_end"), py::arg("winograd") = false);
    module.def("deconvolution",
            [](const MemoryDesc &src, const MemoryDesc &weights, const std::optional<MemoryDesc> &bias,
                    const MemoryDesc &dst, const Dims &strides, const Dims &dilations, const Dims &begin,
                    const Dims &end, const py::kwargs &attributes) {
                return windowed("deconvolution", dnnl_deconvolution_forward_primitive_desc_create,
                        dnnl_deconvolution_direct, src, weights, bias, dst, strides, dilations, begin, end, attributes);
            },
            src, py::arg("weights"), py::arg("bias"), dst, py::kw_only(), py::arg("strides"), py::arg("dilations"),
            py::arg("padding_begin"), py::arg("padding_end"));
    module.def("convolution_weights", &convolution_weights, src, py::arg("weights"), dst, py::kw_only(),
            py::arg("strides"), py::arg("dilations"), py::arg("padding_begin"), py::arg("padding_end"));
    module.def("pooling", &pooling, src, dst, py::kw_only(), py::arg("mode"), py::arg("kernel"), py::arg("strides"),
            py::arg("dilations"), py::arg("padding_begin"), py::arg("padding_end"));
    module.def("matmul", &matmul, src, py::arg("weights"), dst, py::arg("bias") = py::none());
    module.def("reorder", &reorder, src, dst);
}

} // namespace mgx
