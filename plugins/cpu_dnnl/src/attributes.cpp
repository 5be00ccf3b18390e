#include "attributes.h"

#include <map>
#include <string>

#include <pybind11/stl.h>

#include "errors.h"
#include "memory_desc.h"

namespace py = pybind11;

namespace mgx {

namespace {

template <typename T>
T item(const py::sequence &tuple, size_t index, T fallback) {
    return index < tuple.size() && !tuple[index].is_none() ? tuple[index].cast<T>() : fallback;
}

dnnl_alg_kind_t find_kind(const std::map<std::string, dnnl_alg_kind_t> &kinds, const std::string &name, const char *what) {
    auto found = kinds.find(name);
    if (found == kinds.end()) throw Failure(Fault::unsupported, std::string("oneDNN has no ") + what + " " + name);
    return found->second;
}

dnnl_alg_kind_t binary_kind(const std::string &name) {
    static const std::map<std::string, dnnl_alg_kind_t> kinds {{"add", dnnl_binary_add}, {"mul", dnnl_binary_mul},
            {"max", dnnl_binary_max}, {"min", dnnl_binary_min}, {"div", dnnl_binary_div}, {"sub", dnnl_binary_sub},
            {"ge", dnnl_binary_ge}, {"gt", dnnl_binary_gt}, {"le", dnnl_binary_le}, {"lt", dnnl_binary_lt},
            {"eq", dnnl_binary_eq}, {"ne", dnnl_binary_ne}};
    return find_kind(kinds, name, "binary function");
}

void append(dnnl::post_ops &ops, std::vector<int> &args, const py::sequence &spec) {
    auto kind = spec[0].cast<std::string>();
    int index = ops.len();
    int arg = 0;
    if (kind == "eltwise") {
        check(dnnl_post_ops_append_eltwise(ops.get(), eltwise_kind(spec[1].cast<std::string>()),
                      item(spec, 2, 0.0f), item(spec, 3, 0.0f)),
                "eltwise post-op");
    } else if (kind == "sum") {
        auto type = item<std::string>(spec, 3, "");
        check(dnnl_post_ops_append_sum(ops.get(), item(spec, 1, 1.0f), item<int32_t>(spec, 2, 0),
                      type.empty() ? dnnl_data_type_undef : data_type_of(type)),
                "sum post-op");
    } else if (kind == "binary") {
        auto desc = spec[2].cast<MemoryDesc>();
        check(dnnl_post_ops_append_binary(ops.get(), binary_kind(spec[1].cast<std::string>()), desc.get()),
                "binary post-op");
        arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1;
    } else if (kind == "prelu") {
        check(dnnl_post_ops_append_prelu(ops.get(), item(spec, 1, 0)), "prelu post-op");
        arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_WEIGHTS;
    } else {
        throw Failure(Fault::unsupported, "oneDNN has no post-op " + kind);
    }
    args.push_back(arg);
}

} // namespace

dnnl_alg_kind_t eltwise_kind(const std::string &name) {
    static const std::map<std::string, dnnl_alg_kind_t> kinds {{"relu", dnnl_eltwise_relu}, {"tanh", dnnl_eltwise_tanh},
            {"elu", dnnl_eltwise_elu}, {"square", dnnl_eltwise_square}, {"abs", dnnl_eltwise_abs},
            {"sqrt", dnnl_eltwise_sqrt}, {"linear", dnnl_eltwise_linear}, {"soft_relu", dnnl_eltwise_soft_relu},
            {"hardsigmoid", dnnl_eltwise_hardsigmoid}, {"logistic", dnnl_eltwise_logistic}, {"exp", dnnl_eltwise_exp},
            {"gelu_tanh", dnnl_eltwise_gelu_tanh}, {"swish", dnnl_eltwise_swish}, {"log", dnnl_eltwise_log},
            {"clip", dnnl_eltwise_clip}, {"clip_v2", dnnl_eltwise_clip_v2}, {"pow", dnnl_eltwise_pow},
            {"gelu_erf", dnnl_eltwise_gelu_erf}, {"round", dnnl_eltwise_round}, {"mish", dnnl_eltwise_mish},
            {"hardswish", dnnl_eltwise_hardswish}};
    return find_kind(kinds, name, "elementwise function");
}

Attributes attributes_from(const py::kwargs &spec) {
    Attributes result;
    result.attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    for (auto [key, value] : spec) {
        auto name = key.cast<std::string>();
        if (name == "post_ops") {
            dnnl::post_ops ops;
            for (auto op : value)
                append(ops, result.post_op_args, py::reinterpret_borrow<py::sequence>(op));
            check(dnnl_primitive_attr_set_post_ops(result.attr.get(), ops.get()), "post-ops");
        } else if (name == "scales") {
            for (auto [arg, mask] : py::reinterpret_borrow<py::dict>(value)) {
                check(dnnl_primitive_attr_set_scales_mask(result.attr.get(), arg.cast<int>(), mask.cast<int>()), "scales");
                result.masks[DNNL_ARG_ATTR_SCALES | arg.cast<int>()] = mask.cast<int>();
            }
        } else if (name == "zero_points") {
            for (auto [arg, mask] : py::reinterpret_borrow<py::dict>(value)) {
                check(dnnl_primitive_attr_set_zero_points_mask(result.attr.get(), arg.cast<int>(), mask.cast<int>()),
                        "zero points");
                result.masks[DNNL_ARG_ATTR_ZERO_POINTS | arg.cast<int>()] = mask.cast<int>();
            }
        } else if (name == "fpmath") {
            static const std::map<std::string, dnnl_fpmath_mode_t> modes {{"strict", dnnl_fpmath_mode_strict},
                    {"bf16", dnnl_fpmath_mode_bf16}, {"f16", dnnl_fpmath_mode_f16}, {"tf32", dnnl_fpmath_mode_tf32},
                    {"any", dnnl_fpmath_mode_any}};
            auto found = modes.find(value.cast<std::string>());
            if (found == modes.end())
                throw Failure(Fault::parameter,
                        "fpmath must be strict, bf16, f16, tf32 or any, got " + value.cast<std::string>());
            check(dnnl_primitive_attr_set_fpmath_mode(result.attr.get(), found->second), "fpmath mode");
        } else if (name == "deferred") {
            result.deferred = value.cast<bool>();
        } else {
            throw Failure(Fault::parameter,
                    "a primitive has no attribute " + name + "; it has post_ops, scales, zero_points, fpmath and deferred");
        }
    }
    return result;
}

} // namespace mgx
