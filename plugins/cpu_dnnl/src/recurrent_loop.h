// The recurrent half of LSTM, GRU and simple layers, one sequence and direction per work item: no thread waits for another
// between steps.
//
// Included by one source per instruction set, which defines MGX_LANES (floats in a vector) and MGX_NAME (a name for the set).
#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace {

constexpr int64_t wide = 2 * lanes;

// Adds to each of `count` vectors the products of a state [hidden] with a column of vectors, whose rows lie `row` floats apart.
// `together` rows have sums of their own, so that enough of them are under way at once.
template <int count, int together>
inline void multiply(Floats *sum, const float *state, const float *w, int64_t hidden, int64_t row) {
    Floats more[together][count] = {};
    int64_t k = 0;
    for (; k + together <= hidden; k += together)
        for (int n = 0; n < together; ++n)
            for (int j = 0; j < count; ++j)
                more[n][j] += state[k + n] * load(w + (k + n) * row + j * lanes);
    for (; k < hidden; ++k)
        for (int j = 0; j < count; ++j)
            more[0][j] += state[k] * load(w + k * row + j * lanes);
    for (int n = 0; n < together; ++n)
        for (int j = 0; j < count; ++j)
            sum[j] += more[n][j];
}

// A layer: [steps, batch, ways, blocks, gates, wide] from the input; recurrent weights [ways, blocks, hidden, gates, wide]; first
// states [ways, batch, hidden]; states out [steps, batch, ways, hidden].  The arguments of all loops begin with its numbers.
struct Layer {
    int64_t steps, batch, ways, hidden;
    bool reverse;
    int gates;

    Layer(const int64_t *args, int gates)
        : steps(args[0]), batch(args[1]), ways(args[2]), hidden(args[3]), reverse(args[4]), gates(gates) {}

    int64_t blocks() const { return (hidden + wide - 1) / wide; }
    int64_t padded() const { return blocks() * wide; }
    int64_t row() const { return gates * wide; }
};

// Takes each sequence and direction of [begin, end) through all steps.  cell(way, given, w, now, next) computes the state after a
// step from the gates of the input, the weights and the state before; the states have room for whole blocks.
template <typename Start, typename Cell, typename End>
inline void follow(const Layer &layer, void *const *buffers, const float *first, float *out, int64_t begin, int64_t end,
        float *now, float *next, const Start &start, const Cell &cell, const End &finish) {
    const auto *gates = static_cast<const float *>(buffers[0]);
    const auto *weights = static_cast<const float *>(buffers[1]);
    const int64_t hidden = layer.hidden, row = layer.row(), blocks = layer.blocks();
    for (int64_t item = begin; item < end; ++item) {
        const int64_t way = item / layer.batch, sequence = item % layer.batch;
        const bool backwards = way == 1 || layer.reverse;
        std::memset(now, 0, layer.padded() * sizeof(float));
        std::memcpy(now, first + item * hidden, hidden * sizeof(float));
        start(item);
        for (int64_t step = 0; step < layer.steps; ++step) {
            const int64_t t = backwards ? layer.steps - 1 - step : step;
            const int64_t place = (t * layer.batch + sequence) * layer.ways + way;
            cell(way, gates + place * blocks * row, weights + way * blocks * hidden * row, now, next);
            std::memcpy(out + place * hidden, next, hidden * sizeof(float));
            auto *swapped = now;
            now = next;
            next = swapped;
        }
        finish(item);
    }
}

} // namespace

#define MGX_JOINED(a, b) a##b
#define MGX_LOOP(kind, name) MGX_JOINED(kind, name)

namespace mgx {

// buffers: gates from the input in the order i, o, f, c; weights; first states and cells; states out; last cells [ways, batch, hidden].
void MGX_LOOP(lstm_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(args, 4);
    const int64_t hidden = layer.hidden, row = layer.row();
    const auto *first_cell = static_cast<const float *>(buffers[3]);
    auto *last_cell = static_cast<float *>(buffers[5]);
    auto *now = static_cast<float *>(scratch), *next = now + layer.padded(), *cell = next + layer.padded();
    follow(
            layer, buffers, static_cast<const float *>(buffers[2]), static_cast<float *>(buffers[4]), begin, end, now, next,
            [&](int64_t item) {
                std::memset(cell, 0, layer.padded() * sizeof(float));
                std::memcpy(cell, first_cell + item * hidden, hidden * sizeof(float));
            },
            [&](int64_t, const float *given, const float *w, const float *before, float *after) {
                for (int64_t unit = 0; unit < layer.padded(); given += row, w += hidden * row) {
                    Floats sum[8];
                    for (int j = 0; j < 8; ++j)
                        sum[j] = load(given + j * lanes);
                    multiply<8, 1>(sum, before, w, hidden, row);
                    for (int half = 0; half < 2; ++half, unit += lanes) {
                        Floats c = sigmoid(sum[4 + half]) * load(cell + unit) + sigmoid(sum[half]) * hyperbolic(sum[6 + half]);
                        store(cell + unit, c);
                        store(after + unit, sigmoid(sum[2 + half]) * hyperbolic(c));
                    }
                }
            },
            [&](int64_t item) { std::memcpy(last_cell + item * hidden, cell, hidden * sizeof(float)); });
}

// buffers: gates from the input in the order z, r, n; weights; biases of the state's product for n [ways, blocks, wide]; first
// states; states out.  args: those of a layer, whether the reset multiplies the finished product.
void MGX_LOOP(gru_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(args, 3);
    const int64_t hidden = layer.hidden, row = layer.row(), padded = layer.padded();
    const auto *biases = static_cast<const float *>(buffers[2]);
    auto *now = static_cast<float *>(scratch), *next = now + padded, *update = next + padded, *kept = update + padded;
    auto reset_late = [&](int64_t way, const float *given, const float *w, const float *before, float *after) {
        const float *bias = biases + way * padded;
        for (int64_t unit = 0; unit < padded; given += row, w += hidden * row) {
            Floats sum[6];
            for (int j = 0; j < 4; ++j)
                sum[j] = load(given + j * lanes);
            for (int half = 0; half < 2; ++half)
                sum[4 + half] = load(bias + unit + half * lanes);
            multiply<6, 2>(sum, before, w, hidden, row);
            for (int half = 0; half < 2; ++half, unit += lanes) {
                Floats n = hyperbolic(load(given + (4 + half) * lanes) + sigmoid(sum[2 + half]) * sum[4 + half]);
                store(after + unit, n + sigmoid(sum[half]) * (load(before + unit) - n));
            }
        }
    };
    auto reset_first = [&](int64_t way, const float *given, const float *w, const float *before, float *after) {
        const float *bias = biases + way * padded;
        for (int64_t block = 0; block < layer.blocks(); ++block) {
            Floats sum[4];
            for (int j = 0; j < 4; ++j)
                sum[j] = load(given + block * row + j * lanes);
            multiply<4, 2>(sum, before, w + block * hidden * row, hidden, row);
            for (int half = 0; half < 2; ++half) {
                const int64_t unit = block * wide + half * lanes;
                store(update + unit, sigmoid(sum[half]));
                store(kept + unit, sigmoid(sum[2 + half]) * load(before + unit));
            }
        }
        for (int64_t block = 0; block < layer.blocks(); ++block) {
            Floats sum[2];
            for (int half = 0; half < 2; ++half)
                sum[half] = load(given + block * row + (4 + half) * lanes) + load(bias + block * wide + half * lanes);
            multiply<2, 4>(sum, kept, w + block * hidden * row + 2 * wide, hidden, row);
            for (int half = 0; half < 2; ++half) {
                const int64_t unit = block * wide + half * lanes;
                Floats n = hyperbolic(sum[half]);
                store(after + unit, n + load(update + unit) * (load(before + unit) - n));
            }
        }
    };
    auto nothing = [](int64_t) {};
    const auto *first = static_cast<const float *>(buffers[3]);
    auto *out = static_cast<float *>(buffers[4]);
    if (args[5])
        follow(layer, buffers, first, out, begin, end, now, next, nothing, reset_late, nothing);
    else
        follow(layer, buffers, first, out, begin, end, now, next, nothing, reset_first, nothing);
}

// buffers: one gate from the input; weights; first states; states out.  args: those of a layer, the activation (0 tanh, 1 relu,
// 2 sigmoid).
void MGX_LOOP(rnn_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(args, 1);
    const int64_t hidden = layer.hidden, row = layer.row();
    auto *now = static_cast<float *>(scratch), *next = now + layer.padded();
    auto activated = [&](Floats x) {
        if (args[5] == 0) return hyperbolic(x);
        if (args[5] == 2) return sigmoid(x);
        return x < 0.0f ? Floats {} : x; // not a number stays so
    };
    auto nothing = [](int64_t) {};
    follow(
            layer, buffers, static_cast<const float *>(buffers[2]), static_cast<float *>(buffers[3]), begin, end, now, next,
            nothing,
            [&](int64_t, const float *given, const float *w, const float *before, float *after) {
                for (int64_t unit = 0; unit < layer.padded(); unit += wide, given += row, w += hidden * row) {
                    Floats sum[2] = {load(given), load(given + lanes)};
                    multiply<2, 4>(sum, before, w, hidden, row);
                    for (int half = 0; half < 2; ++half)
                        store(after + unit + half * lanes, activated(sum[half]));
                }
            },
            nothing);
}

} // namespace mgx
