// What is done with the sums of a convolution before they are stored, as the loops are told it.
//
// Included by sources that are compiled once per instruction set, so there are no inline functions here.
#pragma once

#include <cstdint>

namespace mgx {

// Activations and sums after a convolution, in the order in which they come.
enum class LinkKind : int64_t { add, mul, sub, div, max, min, relu, linear, clip, logistic, swish, hardswish, tanh, gelu_erf, gelu_tanh };

struct Link {
    LinkKind kind;
    float alpha, beta;
    int64_t buffer; // of a binary link: which operand, and its strides
    int64_t image, row, column, channel;
};

constexpr int most_links = 16;

} // namespace mgx
