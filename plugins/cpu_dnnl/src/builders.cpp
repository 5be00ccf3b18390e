// Builders of feed-forward primitives.
#include <map>

#include <pybind11/stl.h>

#include "primitive.h"

namespace py = pybind11;

namespace mgx {

namespace {

using Made = std::shared_ptr<Primitive>;
using Descs = std::vector<MemoryDesc>;

constexpr auto inference = dnnl_forward_inference;

MemoryDesc value_or_absent(const std::optional<MemoryDesc> &desc) { return desc ? *desc : MemoryDesc(); }

void need(const MemoryDesc &desc, size_t spatial, std::initializer_list<const Dims *> attributes) {
    for (auto *a : attributes)
        if (a->size() != spatial)
            throw Failure(Fault::parameter, std::to_string(spatial) + " values are needed for spatial axes of "
                    + std::to_string(desc.desc.get_ndims()) + "-d data, got " + std::to_string(a->size()));
}

template <typename Create>
Made windowed(const char *kind, Create create, dnnl_alg_kind_t algorithm, const MemoryDesc &src,
        const MemoryDesc &weights, const std::optional<MemoryDesc> &bias, const MemoryDesc &dst, const Dims &strides,
        const Dims &dilations, const Dims &begin, const Dims &end, const py::kwargs &attributes) {
    need(src, static_cast<size_t>(src.desc.get_ndims()) - 2, {&strides, &dilations, &begin, &end});
    Dims holes = dilations; // oneDNN counts the skipped elements
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

dnnl_alg_kind_t chosen(const std::map<std::string, dnnl_alg_kind_t> &kinds, const std::string &name) {
    auto found = kinds.find(name);
    if (found == kinds.end()) throw Failure(Fault::unsupported, "oneDNN has no algorithm " + name);
    return found->second;
}

Made pooling(const MemoryDesc &src, const MemoryDesc &dst, const std::string &mode, const Dims &kernel,
        const Dims &strides, const Dims &dilations, const Dims &begin, const Dims &end, const py::kwargs &attributes) {
    need(src, static_cast<size_t>(src.desc.get_ndims()) - 2, {&kernel, &strides, &dilations, &begin, &end});
    auto algorithm = chosen({{"max", dnnl_pooling_max}, {"average", dnnl_pooling_avg_exclude_padding},
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

Made product(const char *kind, bool matmul, const MemoryDesc &src, const MemoryDesc &weights, const MemoryDesc &dst,
        const std::optional<MemoryDesc> &bias, const py::kwargs &attributes) {
    auto make = [matmul](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        if (matmul)
            return dnnl_matmul_primitive_desc_create(
                    pd, cpu_engine().get(), d[0].get(), d[1].get(), or_null(d[2]), d[3].get(), attr);
        return dnnl_inner_product_forward_primitive_desc_create(
                pd, cpu_engine().get(), inference, d[0].get(), d[1].get(), or_null(d[2]), d[3].get(), attr);
    };
    return std::make_shared<Primitive>(kind,
            std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
            Descs {src, weights, value_or_absent(bias), dst}, attributes_from(attributes), make);
}

Made softmax(const MemoryDesc &src, const MemoryDesc &dst, int axis, bool log, const py::kwargs &attributes) {
    auto algorithm = log ? dnnl_softmax_log : dnnl_softmax_accurate;
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_softmax_forward_primitive_desc_create(
                pd, cpu_engine().get(), inference, algorithm, d[0].get(), d[1].get(), axis, attr);
    };
    return std::make_shared<Primitive>("softmax", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
            attributes_from(attributes), make);
}

Made layer_normalization(const MemoryDesc &src, const MemoryDesc &dst, float epsilon, bool scale, bool shift,
        const py::kwargs &attributes) {
    unsigned flags = (scale ? unsigned {dnnl_use_scale} : 0u) | (shift ? unsigned {dnnl_use_shift} : 0u);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_layer_normalization_forward_primitive_desc_create(
                pd, cpu_engine().get(), inference, d[0].get(), d[1].get(), nullptr, epsilon, flags, attr);
    };
    return std::make_shared<Primitive>("layer_normalization", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST},
            Descs {src, dst}, attributes_from(attributes), make);
}

Made binary(const std::string &function, const MemoryDesc &a, const MemoryDesc &b, const MemoryDesc &dst,
        const py::kwargs &attributes) {
    auto algorithm = binary_kind(function);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_binary_primitive_desc_create(
                pd, cpu_engine().get(), algorithm, d[0].get(), d[1].get(), d[2].get(), attr);
    };
    return std::make_shared<Primitive>("binary", std::vector<int> {DNNL_ARG_SRC_0, DNNL_ARG_SRC_1, DNNL_ARG_DST},
            Descs {a, b, dst}, attributes_from(attributes), make);
}

Made eltwise(const std::string &function, const MemoryDesc &src, const MemoryDesc &dst, float alpha, float beta,
        const py::kwargs &attributes) {
    auto algorithm = eltwise_kind(function);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_eltwise_forward_primitive_desc_create(
                pd, cpu_engine().get(), inference, algorithm, d[0].get(), d[1].get(), alpha, beta, attr);
    };
    return std::make_shared<Primitive>("eltwise", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
            attributes_from(attributes), make);
}

Made reduction(const std::string &function, const MemoryDesc &src, const MemoryDesc &dst, float p, float epsilon,
        const py::kwargs &attributes) {
    auto algorithm = chosen({{"max", dnnl_reduction_max}, {"min", dnnl_reduction_min}, {"sum", dnnl_reduction_sum},
                                    {"mul", dnnl_reduction_mul}, {"mean", dnnl_reduction_mean},
                                    {"norm_lp_max", dnnl_reduction_norm_lp_max},
                                    {"norm_lp_sum", dnnl_reduction_norm_lp_sum}},
            function);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_reduction_primitive_desc_create(
                pd, cpu_engine().get(), algorithm, d[0].get(), d[1].get(), p, epsilon, attr);
    };
    return std::make_shared<Primitive>("reduction", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
            attributes_from(attributes), make);
}

Made resampling(const MemoryDesc &src, const MemoryDesc &dst, const std::string &mode, std::vector<float> factors,
        const py::kwargs &attributes) {
    auto algorithm = chosen({{"nearest", dnnl_resampling_nearest}, {"linear", dnnl_resampling_linear}}, mode);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_resampling_forward_primitive_desc_create(pd, cpu_engine().get(), inference, algorithm,
                factors.empty() ? nullptr : factors.data(), d[0].get(), d[1].get(), attr);
    };
    return std::make_shared<Primitive>("resampling", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
            attributes_from(attributes), make);
}

Made reorder(const MemoryDesc &src, const MemoryDesc &dst, const py::kwargs &attributes) {
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        auto engine = cpu_engine().get();
        return dnnl_reorder_primitive_desc_create(pd, d[0].get(), engine, d[1].get(), engine, attr);
    };
    return std::make_shared<Primitive>("reorder", std::vector<int> {DNNL_ARG_FROM, DNNL_ARG_TO}, Descs {src, dst},
            attributes_from(attributes), make);
}

Made concat(const std::vector<MemoryDesc> &sources, int axis, const std::optional<MemoryDesc> &dst,
        const py::kwargs &attributes) {
    std::vector<int> slots {DNNL_ARG_DST};
    Descs descs {value_or_absent(dst)};
    for (size_t i = 0; i < sources.size(); ++i) {
        slots.push_back(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i));
        descs.push_back(sources[i]);
    }
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        std::vector<const_dnnl_memory_desc_t> list;
        for (size_t i = 1; i < d.size(); ++i)
            list.push_back(d[i].get());
        return dnnl_concat_primitive_desc_create(pd, cpu_engine().get(), or_null(d[0]), static_cast<int>(list.size()),
                axis, list.data(), attr);
    };
    return std::make_shared<Primitive>("concat", slots, descs, attributes_from(attributes), make);
}

Made lrn(const MemoryDesc &src, const MemoryDesc &dst, int64_t size, float alpha, float beta, float k,
        bool across_channels, const py::kwargs &attributes) {
    auto algorithm = across_channels ? dnnl_lrn_across_channels : dnnl_lrn_within_channel;
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_lrn_forward_primitive_desc_create(
                pd, cpu_engine().get(), inference, algorithm, d[0].get(), d[1].get(), size, alpha, beta, k, attr);
    };
    return std::make_shared<Primitive>("lrn", std::vector<int> {DNNL_ARG_SRC, DNNL_ARG_DST}, Descs {src, dst},
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
    module.def("pooling", &pooling, src, dst, py::kw_only(), py::arg("mode"), py::arg("kernel"), py::arg("strides"),
            py::arg("dilations"), py::arg("padding_begin"), py::arg("padding_end"));
    module.def("matmul",
            [](const MemoryDesc &src, const MemoryDesc &weights, const MemoryDesc &dst,
                    const std::optional<MemoryDesc> &bias, const py::kwargs &attributes) {
                return product("matmul", true, src, weights, dst, bias, attributes);
            },
            src, py::arg("weights"), dst, py::arg("bias") = py::none());
    module.def("inner_product",
            [](const MemoryDesc &src, const MemoryDesc &weights, const MemoryDesc &dst,
                    const std::optional<MemoryDesc> &bias, const py::kwargs &attributes) {
                return product("inner_product", false, src, weights, dst, bias, attributes);
            },
            src, py::arg("weights"), dst, py::arg("bias") = py::none());
    module.def("softmax", &softmax, src, dst, py::arg("axis"), py::arg("log") = false);
    module.def("layer_normalization", &layer_normalization, src, dst, py::arg("epsilon"), py::arg("scale") = true,
            py::arg("shift") = true);
    module.def("binary", &binary, py::arg("function"), py::arg("a"), py::arg("b"), dst);
    module.def("eltwise", &eltwise, py::arg("function"), src, dst, py::arg("alpha") = 0.0f, py::arg("beta") = 0.0f);
    module.def("reduction", &reduction, py::arg("function"), src, dst, py::arg("p") = 0.0f, py::arg("epsilon") = 0.0f);
    module.def("resampling", &resampling, src, dst, py::arg("mode"), py::arg("factors") = std::vector<float> {});
    module.def("reorder", &reorder, src, dst);
    module.def("concat", &concat, py::arg("sources"), py::arg("axis"), py::arg("dst") = py::none());
    module.def("lrn", &lrn, src, dst, py::arg("size"), py::arg("alpha"), py::arg("beta"), py::arg("k"),
            py::arg("across_channels") = true);
}

} // namespace mgx
