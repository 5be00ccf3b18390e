// Encoded epilogues of convolutions: the operations on sums before they are stored.
//
// Included by sources that are compiled once per instruction set, so it defines no inline functions.
#pragma once

#include <cstdint>

namespace mgx {

// Activations and residual sums after a convolution, in order.
enum class LinkKind : int64_t { add, mul, sub, div, max, min, relu, linear, clip, logistic, swish, hardswish, tanh, gelu_erf, gelu_tanh };

struct Link {
    LinkKind kind;
    float alpha, beta;
    int64_t buffer;                      // index of a binary link's operand
    int64_t image, row, column, channel; // its strides
};

constexpr int most_links = 16;

} // namespace mgx
