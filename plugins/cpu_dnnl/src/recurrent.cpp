// Python bindings that create recurrent oneDNN primitives, and the addresses of the recurrent loops.
#include <optional>

#include <pybind11/stl.h>

#include "primitive.h"

namespace py = pybind11;

namespace mgx {

using RecurrentLoop = void(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch);
RecurrentLoop lstm_loop_avx2, lstm_loop_avx512, gru_loop_avx2, gru_loop_avx512, rnn_loop_avx2, rnn_loop_avx512;

namespace {

using Descs = std::vector<MemoryDesc>;
using Maybe = std::optional<MemoryDesc>;

dnnl_rnn_direction_t direction_of(const std::string &name) {
    if (name == "forward") return dnnl_unidirectional_left2right;
    if (name == "reverse") return dnnl_unidirectional_right2left;
    if (name == "bidirectional") return dnnl_bidirectional_concat;
    if (name == "bidirectional_sum") return dnnl_bidirectional_sum;
    throw Failure(Fault::parameter, "direction must be forward, reverse, bidirectional or bidirectional_sum, got " + name);
}

MemoryDesc of(const Maybe &desc) { return desc ? *desc : MemoryDesc(); }

std::shared_ptr<Primitive> lstm(const MemoryDesc &src, const MemoryDesc &weights_layer, const MemoryDesc &weights_iter,
        const MemoryDesc &dst, const Maybe &bias, const Maybe &src_iter, const Maybe &src_iter_c, const Maybe &dst_iter,
        const Maybe &dst_iter_c, const Maybe &peephole, const std::string &direction, const py::kwargs &attributes) {
    auto way = direction_of(direction);
    auto make = [way](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        return dnnl_lstm_forward_primitive_desc_create(pd, cpu_engine().get(), dnnl_forward_inference, way, d[0].get(),
                or_null(d[1]), or_null(d[2]), d[3].get(), d[4].get(), or_null(d[5]), nullptr, or_null(d[6]),
                d[7].get(), or_null(d[8]), or_null(d[9]), dnnl_rnn_flags_undef, attr);
    };
    return std::make_shared<Primitive>("lstm",
            std::vector<int> {DNNL_ARG_SRC_LAYER, DNNL_ARG_SRC_ITER, DNNL_ARG_SRC_ITER_C, DNNL_ARG_WEIGHTS_LAYER,
                    DNNL_ARG_WEIGHTS_ITER, DNNL_ARG_WEIGHTS_PEEPHOLE, DNNL_ARG_BIAS, DNNL_ARG_DST_LAYER,
                    DNNL_ARG_DST_ITER, DNNL_ARG_DST_ITER_C},
            Descs {src, of(src_iter), of(src_iter_c), weights_layer, weights_iter, of(peephole), of(bias), dst,
                    of(dst_iter), of(dst_iter_c)},
            attributes_from(attributes), make);
}

// Creates a GRU, a GRU with linear-before-reset (lbr_gru) or a vanilla RNN, which have the same arguments.
std::shared_ptr<Primitive> simple(const std::string &kind, const MemoryDesc &src, const MemoryDesc &weights_layer,
        const MemoryDesc &weights_iter, const MemoryDesc &dst, const Maybe &bias, const Maybe &src_iter,
        const Maybe &dst_iter, const std::string &direction, dnnl_alg_kind_t activation, float alpha,
        const py::kwargs &attributes) {
    auto way = direction_of(direction);
    auto make = [=](dnnl_primitive_desc_t *pd, const Descs &d, const_dnnl_primitive_attr_t attr) {
        auto engine = cpu_engine().get();
        if (kind == "vanilla_rnn")
            return dnnl_vanilla_rnn_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, activation, way,
                    d[0].get(), or_null(d[1]), d[2].get(), d[3].get(), or_null(d[4]), d[5].get(), or_null(d[6]),
                    dnnl_rnn_flags_undef, alpha, 0.0f, attr);
        auto create = kind == "gru" ? dnnl_gru_forward_primitive_desc_create : dnnl_lbr_gru_forward_primitive_desc_create;
        return create(pd, engine, dnnl_forward_inference, way, d[0].get(), or_null(d[1]), d[2].get(), d[3].get(),
                or_null(d[4]), d[5].get(), or_null(d[6]), dnnl_rnn_flags_undef, attr);
    };
    return std::make_shared<Primitive>(kind,
            std::vector<int> {DNNL_ARG_SRC_LAYER, DNNL_ARG_SRC_ITER, DNNL_ARG_WEIGHTS_LAYER, DNNL_ARG_WEIGHTS_ITER,
                    DNNL_ARG_BIAS, DNNL_ARG_DST_LAYER, DNNL_ARG_DST_ITER},
            Descs {src, of(src_iter), weights_layer, weights_iter, of(bias), dst, of(dst_iter)},
            attributes_from(attributes), make);
}

} // namespace

void bind_recurrent(py::module_ &module) {
    auto none = py::none();
    // returns the address of a loop for this processor, and the units per block
    module.def("recurrent_loop", [](const std::string &kind) {
        const bool wide = __builtin_cpu_supports("avx512f");
        RecurrentLoop *loop = kind == "lstm" ? (wide ? lstm_loop_avx512 : lstm_loop_avx2)
                : kind == "gru"              ? (wide ? gru_loop_avx512 : gru_loop_avx2)
                                             : (wide ? rnn_loop_avx512 : rnn_loop_avx2);
        return std::make_pair(reinterpret_cast<size_t>(loop), wide ? 32 : 16);
    });
    module.def("lstm", &lstm, py::arg("src"), py::arg("weights_layer"), py::arg("weights_iter"), py::arg("dst"),
            py::kw_only(), py::arg("bias") = none, py::arg("src_iter") = none, py::arg("src_iter_c") = none,
            py::arg("dst_iter") = none, py::arg("dst_iter_c") = none, py::arg("peephole") = none,
            py::arg("direction") = "forward");
    for (const char *kind : {"gru", "lbr_gru"})
        module.def(kind,
                [kind](const MemoryDesc &src, const MemoryDesc &weights_layer, const MemoryDesc &weights_iter,
                        const MemoryDesc &dst, const Maybe &bias, const Maybe &src_iter, const Maybe &dst_iter,
                        const std::string &direction, const py::kwargs &attributes) {
                    return simple(kind, src, weights_layer, weights_iter, dst, bias, src_iter, dst_iter, direction,
                            dnnl_alg_kind_undef, 0.0f, attributes);
                },
                py::arg("src"), py::arg("weights_layer"), py::arg("weights_iter"), py::arg("dst"), py::kw_only(),
                py::arg("bias") = none, py::arg("src_iter") = none, py::arg("dst_iter") = none,
                py::arg("direction") = "forward");
    module.def("vanilla_rnn",
            [](const MemoryDesc &src, const MemoryDesc &weights_layer, const MemoryDesc &weights_iter,
                    const MemoryDesc &dst, const Maybe &bias, const Maybe &src_iter, const Maybe &dst_iter,
                    const std::string &direction, const std::string &activation, float alpha,
                    const py::kwargs &attributes) {
                return simple("vanilla_rnn", src, weights_layer, weights_iter, dst, bias, src_iter, dst_iter, direction,
                        eltwise_kind(activation), alpha, attributes);
            },
            py::arg("src"), py::arg("weights_layer"), py::arg("weights_iter"), py::arg("dst"), py::kw_only(),
            py::arg("bias") = none, py::arg("src_iter") = none, py::arg("dst_iter") = none,
            py::arg("direction") = "forward", py::arg("activation") = "tanh", py::arg("alpha") = 0.0f);
}

} // namespace mgx
