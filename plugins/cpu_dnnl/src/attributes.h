// Converts primitive attributes from Python: post-ops, scales, zero points, floating-point math mode.
#pragma once

#include <map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#include <pybind11/pybind11.h>

namespace mgx {

struct Attributes {
    dnnl::primitive_attr attr;
    std::vector<int> post_op_args; // the run-time argument of each post-op, 0 if it has none
    std::map<int, int> masks; // of scales and zero points, by their run-time argument
    bool deferred = false; // creates no primitive descriptor before `Primitive::describe`
};

// Keywords: post_ops, scales, zero_points, fpmath, deferred.
Attributes attributes_from(const pybind11::kwargs &spec);

dnnl_alg_kind_t eltwise_kind(const std::string &name);

} // namespace mgx
