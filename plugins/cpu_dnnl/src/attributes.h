// Primitive attributes from Python: post-ops, scales, zero points, arithmetic mode.
#pragma once

#include <map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#include <pybind11/pybind11.h>

namespace mgx {

struct Attributes {
    dnnl::primitive_attr attr;
    std::vector<int> post_op_args; // per post-op the index of its run-time argument, 0 if it has none
    std::map<int, int> masks; // of scales and zero points, by the number of their run-time argument
    bool deferred = false; // nothing is asked of oneDNN before `Primitive::describe`
};

// Keywords: post_ops, scales, zero_points, fpmath, deferred.
Attributes attributes_from(const pybind11::kwargs &given);

dnnl_alg_kind_t eltwise_kind(const std::string &name);

} // namespace mgx
