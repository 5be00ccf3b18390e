// Cells of recurrent layers: each computes one time step of a block of units.
//
// Included by sources that are compiled once per instruction set, so everything here has internal linkage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vectors.h"

namespace {

constexpr int64_t block_width = 2 * lanes;
constexpr int64_t most_rows = lanes == 16 ? 4 : 2; // sequences per register tile
constexpr int64_t most_sums = lanes == 16 ? 24 : 12; // accumulator vectors
constexpr int64_t most_fields = 3;

// Activation functions; `alpha` and `beta` are their parameters.
enum class Kind : int64_t {
    hyperbolic, relu, sigmoid, affine, leaky_relu, thresholded_relu, scaled_tanh, hard_sigmoid, elu, softsign, softplus
};

struct Function {
    Kind kind;
    float alpha, beta;

    Floats operator()(Floats x) const {
        switch (kind) {
            case Kind::hyperbolic: return hyperbolic(x);
            case Kind::relu: return x < 0.0f ? Floats {} : x; // NaN is preserved
            case Kind::sigmoid: return sigmoid(x);
            case Kind::affine: return x * alpha + beta;
            case Kind::leaky_relu: return x >= 0.0f ? x : x * alpha;
            case Kind::thresholded_relu: return x >= alpha ? x : Floats {};
            case Kind::scaled_tanh: return alpha * hyperbolic(x * beta);
            case Kind::hard_sigmoid: return larger(all(0.0f), smaller(all(1.0f), x * alpha + beta));
            // e^x - 1 = tanh(x / 2) (e^x + 1), without cancellation near 0
            case Kind::elu: return x >= 0.0f ? x : alpha * (hyperbolic(0.5f * x) * (exponential(x) + 1.0f));
            case Kind::softsign: return x / (1.0f + larger(x, -x));
            default: return larger(all(0.0f), x) + logarithm_beyond_1(exponential(smaller(x, -x)));
        }
    }
};

// Arguments and buffers of a layer; `ways` is the number of directions.  Buffers: the input's contribution to the gates [steps,
// batch, ways, gates, hidden], followed by `block_width` readable floats; recurrent weights [ways, blocks, hidden, gates,
// block_width]; initial states [ways, batch, hidden]; output states [steps, batch, ways, hidden].  All kinds of cells have the
// same integer arguments; the meaning of `own` depends on the kind.  Quantized weights (`coded`) are integers stored as bfloat16,
// and each block is followed by its scales, one per column.  Buffers of optional operands are given by their numbers, 0 for none:
// sequence lengths [batch], peepholes [ways, 3, hidden].
struct Layer {
    int64_t steps, batch, ways, hidden;
    bool reverse;
    int64_t rows; // sequences per work item
    int64_t parts; // threads per work item
    int64_t own;
    bool coded; // weights are integers with a scale per column
    bool usual; // default activation functions, no clipping, no peepholes, no coupled gates
    float clip; // infinity: none
    int64_t lengths;
    bool long_lengths; // int64, else int32
    int64_t peepholes;
    const int64_t *functions; // [ways, functions of a cell, 3]: kind, bits of alpha, bits of beta
    int64_t gates;
    void *const *buffers;

    Layer(void *const *buffers, const int64_t *args, int64_t gates)
        : steps(args[0]), batch(args[1]), ways(args[2]), hidden(args[3]), reverse(args[4]), rows(args[5]), parts(args[6]),
          own(args[7]), coded(args[8]), usual(args[9]), clip(float_of(args[10])), lengths(args[11]), long_lengths(args[12]),
          peepholes(args[13]), functions(args + 14), gates(gates), buffers(buffers) {}

    static float float_of(int64_t bits) {
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }

    int64_t blocks() const { return (hidden + block_width - 1) / block_width; }
    int64_t padded() const { return blocks() * block_width; }
    int64_t row() const { return gates * block_width; }
    const char *weights(int64_t way, int64_t block) const {
        const int64_t bytes = row() * (coded ? 2 * hidden + 4 : 4 * hidden); // per block
        return static_cast<const char *>(buffers[1]) + (way * blocks() + block) * bytes;
    }
    bool both(int64_t block) const { return block * block_width + lanes < hidden; } // true if both halves of the block have units
    int64_t groups() const { return (batch + rows - 1) / rows; } // groups of sequences, per direction
    Floats clipped(Floats x) const { return larger(all(-clip), smaller(all(clip), x)); }
    Function function(int64_t index) const {
        const int64_t *at = functions + 3 * index;
        return {static_cast<Kind>(at[0]), float_of(at[1]), float_of(at[2])};
    }
    // Returns the number of steps of a sequence as given, which may be out of range.
    int64_t given_length(int64_t sequence) const {
        if (!lengths) return steps;
        return long_lengths ? static_cast<const int64_t *>(buffers[lengths])[sequence]
                            : static_cast<const int32_t *>(buffers[lengths])[sequence];
    }
    int64_t length(int64_t sequence) const { return std::clamp<int64_t>(given_length(sequence), 0, steps); }
    // Returns the steps of the longest of some sequences.
    int64_t longest(int64_t first, int64_t count) const {
        if (!lengths) return steps;
        int64_t found = 0;
        for (int64_t sequence = first; sequence < first + count; ++sequence)
            found = std::max(found, length(sequence));
        return found;
    }
    const float *read(int64_t n) const { return static_cast<const float *>(buffers[n]); }
    float *written(int n) const { return static_cast<float *>(buffers[n]); }
};

// State of a group of sequences after a step: fields [rows, padded].
struct State {
    float *field[most_fields];
};

// The operands of one phase of one step for a block of units and a few sequences.
struct Work {
    const float *input_gates; // the input's contribution to the block's gates; sequences are `sequence_stride` floats apart
    const char *w;      // weights of the block
    int64_t sequence_stride, gate_stride;
    int64_t block, row, way; // row: the first sequence

    // Returns the input's contribution to a gate for one half of the block.  Lanes beyond the last unit are unspecified.
    Floats from_input(int64_t r, int64_t gate, int64_t half) const {
        return load(input_gates + r * sequence_stride + gate * gate_stride + half * lanes);
    }
};

// Adds the products of `rows` states [hidden] and `vectors` vectors of weights, `apart` vectors from one another, scaled by
// `factors` for quantized weights.  `chains` independent partial sums hide the latency of FMAs.
template <int vectors, int rows, int apart, typename Weight>
[[gnu::always_inline]] inline void add_products(Floats (&sum)[rows][vectors], const float *state, int64_t next_state,
        const Weight *w, const float *factors, int64_t hidden, int64_t row) {
    constexpr int chains = vectors * rows >= 8 ? 1 : 8 / (vectors * rows) + (8 % (vectors * rows) != 0);
    Floats more[chains][rows][vectors] = {};
    auto add = [&](Floats (&to)[rows][vectors], int64_t k) {
        for (int j = 0; j < vectors; ++j) {
            Floats column = load(w + k * row + j * apart * lanes);
            if constexpr (rows > 1) asm("" : "+v"(column)); // pins it in a register: compilers reload it for each row
            for (int r = 0; r < rows; ++r)
                to[r][j] += state[r * next_state + k] * column;
        }
    };
    int64_t k = 0;
    for (; k + chains <= hidden; k += chains)
        for (int n = 0; n < chains; ++n)
            add(more[n], k + n);
    for (; k < hidden; ++k)
        add(more[0], k);
    for (int r = 0; r < rows; ++r)
        for (int j = 0; j < vectors; ++j) {
            if constexpr (std::is_same_v<Weight, float>) {
                for (int n = 0; n < chains; ++n)
                    sum[r][j] += more[n][r][j];
            } else {
                for (int n = 1; n < chains; ++n)
                    more[0][r][j] += more[n][r][j];
                sum[r][j] += load(factors + j * apart * lanes) * more[0][r][j];
            }
        }
}

// Dispatches add_products on the kind of weights; `first` is the first column of the block.
template <int vectors, int rows, int apart>
[[gnu::always_inline]] inline void multiply(
        Floats (&sum)[rows][vectors], const float *state, int64_t next_state, const Layer &layer, const char *w, int64_t first) {
    if (layer.coded) {
        const auto codes = reinterpret_cast<const uint16_t *>(w);
        const auto factors = reinterpret_cast<const float *>(codes + layer.hidden * layer.row());
        add_products<vectors, rows, apart>(sum, state, next_state, codes + first, factors + first, layer.hidden, layer.row());
    } else {
        const auto floats = reinterpret_cast<const float *>(w);
        add_products<vectors, rows, apart>(sum, state, next_state, floats + first, nullptr, layer.hidden, layer.row());
    }
}

// Calls body(halves, half) for the halves of a block: once for both if the accumulators of `gates` gates fit in registers, only
// for the first if the second has no units.
template <int gates, int rows, typename Body>
inline void by_halves(bool both, const Body &body) {
    if (!both) {
        body(std::integral_constant<int, 1> {}, 0);
    } else if constexpr (2 * gates * rows <= most_sums) {
        body(std::integral_constant<int, 2> {}, 0);
    } else {
        body(std::integral_constant<int, 1> {}, 0);
        body(std::integral_constant<int, 1> {}, 1);
    }
}

// Buffers: input gates in the order i, o, f, c; weights; initial hidden states and cell states; output states; final cell states
// [ways, batch, hidden].  `own`: 1 if the forget gate is 1 - i.
template <bool usual>
struct LstmCell {
    static constexpr int phases = 1, fields = 2, carried = 2;
    static constexpr int written(int, int end) { return end ? 2 : 0; }
    Layer layer;

    const float *first(int field) const { return layer.read(2 + field); }
    float *out() const { return layer.written(4); }
    void finish(int64_t to, const State &last, int64_t from) const {
        std::memcpy(layer.written(5) + to, last.field[1] + from, layer.hidden * sizeof(float));
    }

    template <int rows>
    void units(int, const Work &work, const State &before, const State &, const State &after) const {
        const int64_t padded = layer.padded();
        by_halves<4, rows>(layer.both(work.block), [&](auto halves, int half) {
            constexpr int both = halves, apart = 3 - both;
            Floats sum[rows][4 * both];
            for (int r = 0; r < rows; ++r)
                for (int j = 0; j < 4 * both; ++j)
                    sum[r][j] = work.from_input(r, j / both, half + j % both);
            multiply<4 * both, rows, apart>(
                    sum, before.field[0] + work.row * padded, padded, layer, work.w, half * lanes);
            for (int r = 0; r < rows; ++r)
                for (int n = 0; n < both; ++n) {
                    const int64_t unit = work.block * block_width + (half + n) * lanes, at = (work.row + r) * padded + unit;
                    const Floats *gates = sum[r] + n, memory = load(before.field[1] + at);
                    if constexpr (usual) {
                        const Floats c = sigmoid(gates[2 * both]) * memory + sigmoid(gates[0]) * hyperbolic(gates[3 * both]);
                        store(after.field[1] + at, c);
                        store(after.field[0] + at, sigmoid(gates[both]) * hyperbolic(c));
                    } else {
                        const Floats let = opened(work.way, unit, 0, gates[0], memory);
                        const Floats kept = layer.own ? 1.0f - let : opened(work.way, unit, 2, gates[2 * both], memory);
                        const Floats c = kept * memory + let * layer.function(3 * work.way + 1)(layer.clipped(gates[3 * both]));
                        store(after.field[1] + at, c);
                        store(after.field[0] + at,
                                opened(work.way, unit, 1, gates[both], c) * layer.function(3 * work.way + 2)(c));
                    }
                }
        });
    }

    // Returns a gate (0 input, 1 output, 2 forget) of one vector of units, from its sum and the cell states that its peephole reads.
    Floats opened(int64_t way, int64_t unit, int64_t gate, Floats sum, Floats memory) const {
        if (layer.peepholes) {
            const float *factors = layer.read(layer.peepholes) + (3 * way + gate) * layer.hidden + unit;
            sum += load_some(factors, std::min(lanes, layer.hidden - unit)) * memory;
        }
        return layer.function(3 * way)(layer.clipped(sum));
    }
};

// Buffers: input gates in the order z, r, n; weights; recurrent biases of n [ways, blocks, block_width]; initial states; output
// states.
template <bool usual>
struct GruCell {
    static constexpr int carried = 1;
    Layer layer;

    const float *first(int) const { return layer.read(3); }
    float *out() const { return layer.written(4); }
    void finish(int64_t, const State &, int64_t) const {}
    const float *biases(const Work &work) const { return layer.read(2) + work.way * layer.padded() + work.block * block_width; }

    // Returns the update or reset gate, and the new state, from their sums.
    Floats gate(const Work &work, Floats sum) const {
        if constexpr (usual) return sigmoid(sum);
        return layer.function(2 * work.way)(layer.clipped(sum));
    }
    Floats next(const Work &work, Floats sum) const {
        if constexpr (usual) return hyperbolic(sum);
        return layer.function(2 * work.way + 1)(layer.clipped(sum));
    }
};

// GRU with linear-before-reset: the reset gate multiplies the recurrent product.
template <bool usual>
struct LbrGruCell : GruCell<usual> {
    using Base = GruCell<usual>;
    using Base::biases, Base::gate, Base::layer, Base::next;
    static constexpr int phases = 1, fields = 1;
    static constexpr int written(int, int end) { return end; }

    template <int rows>
    void units(int, const Work &work, const State &before, const State &, const State &after) const {
        const int64_t padded = layer.padded();
        by_halves<3, rows>(layer.both(work.block), [&](auto halves, int half) {
            constexpr int both = halves, apart = 3 - both;
            Floats sum[rows][3 * both];
            for (int r = 0; r < rows; ++r)
                for (int j = 0; j < 3 * both; ++j)
                    sum[r][j] = j < 2 * both ? work.from_input(r, j / both, half + j % both)
                                             : load(biases(work) + (half + j - 2 * both) * lanes);
            multiply<3 * both, rows, apart>(
                    sum, before.field[0] + work.row * padded, padded, layer, work.w, half * lanes);
            for (int r = 0; r < rows; ++r)
                for (int k = 0; k < both; ++k) {
                    const int64_t at = (work.row + r) * padded + work.block * block_width + (half + k) * lanes;
                    const Floats input = work.from_input(r, 2, half + k);
                    const Floats n = next(work, input + gate(work, sum[r][both + k]) * sum[r][2 * both + k]);
                    store(after.field[0] + at, n + gate(work, sum[r][k]) * (load(before.field[0] + at) - n));
                }
        });
    }
};

// GRU whose reset gate multiplies the state.  The second phase reads the complete reset state of the first.
template <bool usual>
struct ResetStateGruCell : GruCell<usual> {
    using Base = GruCell<usual>;
    using Base::biases, Base::gate, Base::layer, Base::next;
    static constexpr int phases = 2, fields = 3; // state, update gate, state times reset gate
    static constexpr int written(int phase, int end) { return phase == 0 ? 1 + 2 * end : end; }

    template <int rows>
    void units(int phase, const Work &work, const State &before, const State &now, const State &after) const {
        const int64_t padded = layer.padded();
        auto place = [&](int r, int half) { return (work.row + r) * padded + work.block * block_width + half * lanes; };
        if (phase == 0) {
            Floats sum[rows][4];
            for (int r = 0; r < rows; ++r)
                for (int j = 0; j < 4; ++j)
                    sum[r][j] = work.from_input(r, j / 2, j % 2);
            multiply<4, rows, 1>(sum, before.field[0] + work.row * padded, padded, layer, work.w, 0);
            for (int r = 0; r < rows; ++r)
                for (int half = 0; half < 2; ++half) {
                    store(after.field[1] + place(r, half), gate(work, sum[r][half]));
                    store(after.field[2] + place(r, half), gate(work, sum[r][2 + half]) * load(before.field[0] + place(r, half)));
                }
            return;
        }
        Floats sum[rows][2];
        for (int r = 0; r < rows; ++r)
            for (int half = 0; half < 2; ++half)
                sum[r][half] = work.from_input(r, 2, half) + load(biases(work) + half * lanes);
        multiply<2, rows, 1>(sum, now.field[2] + work.row * padded, padded, layer, work.w, 2 * block_width);
        for (int r = 0; r < rows; ++r)
            for (int half = 0; half < 2; ++half) {
                const int64_t at = place(r, half);
                const Floats n = next(work, sum[r][half]);
                store(after.field[0] + at, n + load(now.field[1] + at) * (load(before.field[0] + at) - n));
            }
    }
};

// Vanilla RNN.  Buffers: one input gate; weights; initial states; output states.
template <bool usual>
struct SimpleCell {
    static constexpr int phases = 1, fields = 1, carried = 1;
    static constexpr int written(int, int end) { return end; }
    Layer layer;

    const float *first(int) const { return layer.read(2); }
    float *out() const { return layer.written(3); }
    void finish(int64_t, const State &, int64_t) const {}

    template <int rows>
    void units(int, const Work &work, const State &before, const State &, const State &after) const {
        const int64_t padded = layer.padded();
        Floats sum[rows][2];
        for (int r = 0; r < rows; ++r)
            for (int half = 0; half < 2; ++half)
                sum[r][half] = work.from_input(r, 0, half);
        multiply<2, rows, 1>(sum, before.field[0] + work.row * padded, padded, layer, work.w, 0);
        const Function function = layer.function(work.way);
        for (int r = 0; r < rows; ++r)
            for (int half = 0; half < 2; ++half)
                store(after.field[0] + (work.row + r) * padded + work.block * block_width + half * lanes,
                        usual ? hyperbolic(sum[r][half]) : function(layer.clipped(sum[r][half])));
    }
};

} // namespace
