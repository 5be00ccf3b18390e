// The recurrent part of LSTM, GRU and vanilla RNN layers; the products with the input are computed before.  A work item is a
// group of sequences of one direction, computed by one thread or by several that divide its units.
//
// Included by one source per instruction set, which defines MGX_LANES (floats in a vector) and MGX_NAME (a name for the set).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "loops.h"
#include "recurrent_board.h"
#include "recurrent_cells.h"
#include "team.h"

namespace {

constexpr int64_t most_items = 16; // work items computed by several threads each

// Computes one phase of time `t` for the blocks [begin, end) into `after`, without tiles whose sequences have all ended.  Odd steps
// traverse the weights backwards, because the last ones are still in the cache.  Not inlined: shared by leaders and helpers.
template <typename Cell>
[[gnu::noinline]] void do_units(const Cell &cell, int64_t way, int64_t first_row, int64_t rows, int64_t t, int64_t step, int phase,
        const State &before, const State &now, const State &after, int64_t begin, int64_t end) {
    const Layer &layer = cell.layer;
    Work work;
    work.gate_stride = layer.hidden;
    work.sequence_stride = layer.ways * layer.gates * layer.hidden;
    work.way = way;
    const float *input_gates = layer.read(0) + ((t * layer.batch + first_row) * layer.ways + way) * layer.gates * layer.hidden;
    for (int64_t n = begin; n < end; ++n) {
        work.block = step % 2 ? begin + end - 1 - n : n;
        work.w = layer.weights(way, work.block);
        for (int64_t left = rows; left > 0; left -= most_rows) {
            work.row = rows - left;
            if (t >= layer.longest(first_row + work.row, std::min(left, most_rows))) continue;
            work.input_gates = input_gates + work.row * work.sequence_stride + work.block * block_width;
            switch (std::min(left, most_rows)) {
                case 1: cell.template units<1>(phase, work, before, now, after); break;
                case 2: cell.template units<2>(phase, work, before, now, after); break;
                case 3: cell.template units<most_rows == 2 ? 2 : 3>(phase, work, before, now, after); break;
                default: cell.template units<most_rows>(phase, work, before, now, after);
            }
        }
    }
}

// A work item in progress: states, double-buffered by the parity of the step, and the results of helpers.
struct Item {
    int64_t way, first_row, rows;
    int64_t steps; // of the longest sequence
    bool backward;
    State states[2];
    State found[Board::most_helpers];
    Board *board = nullptr; // null: no helpers

    // memory: space for parts + 1 states
    Item(const Layer &layer, int64_t index, int64_t fields, float *memory)
        : way(index / layer.groups()), first_row(index % layer.groups() * layer.rows),
          rows(std::min(layer.rows, layer.batch - first_row)), steps(layer.longest(first_row, rows)),
          backward(way == 1 || layer.reverse) {
        for (int64_t n = 0; n < layer.parts + 1; ++n)
            for (int64_t f = 0; f < fields; ++f)
                (n < 2 ? states[n] : found[n - 2]).field[f] = memory + (n * fields + f) * layer.rows * layer.padded();
    }

    int64_t time(int64_t step) const { return backward ? steps - 1 - step : step; }
};

inline int64_t part_begin(const Layer &layer, int64_t part) { return layer.blocks() * part / layer.parts; }

template <typename Cell>
void help(const Cell &cell, const Item &item, int64_t helper) {
    const Layer &layer = cell.layer;
    item.board->follow(helper, [&](int64_t phase) {
        const int64_t step = (phase - 1) / Cell::phases;
        do_units(cell, item.way, item.first_row, item.rows, item.time(step), step, static_cast<int>((phase - 1) % Cell::phases),
                item.states[step % 2], item.states[(step + 1) % 2], item.found[helper], part_begin(layer, helper + 1),
                part_begin(layer, helper + 2));
    });
}

// Computes all steps of a work item, as the leader if there are helpers.
template <typename Cell>
void lead(const Cell &cell, Item &item) {
    const Layer &layer = cell.layer;
    const int64_t hidden = layer.hidden, padded = layer.padded(), next_row = layer.ways * hidden;
    const int64_t helpers = item.board ? layer.parts - 1 : 0;
    const int64_t end = item.board ? part_begin(layer, 1) : layer.blocks();
    for (int f = 0; f < Cell::carried; ++f)
        for (int64_t r = 0; r < item.rows; ++r) {
            float *to = item.states[0].field[f] + r * padded;
            std::memset(to, 0, padded * sizeof(float));
            std::memcpy(to, cell.first(f) + (item.way * layer.batch + item.first_row + r) * hidden, hidden * sizeof(float));
        }
    auto output = [&](int64_t t, int64_t r) {
        return cell.out() + (t * layer.batch + item.first_row + r) * next_row + item.way * hidden;
    };
    for (int64_t step = 0; step < item.steps; ++step) {
        const int64_t t = item.time(step);
        const State &before = item.states[step % 2], &after = item.states[(step + 1) % 2];
        for (int phase = 0; phase < Cell::phases; ++phase) {
            auto units = [&](int64_t from, int64_t to) {
                do_units(cell, item.way, item.first_row, item.rows, t, step, phase, before, after, after, from, to);
            };
            const int64_t number = step * Cell::phases + phase + 1;
            unsigned present = 0;
            for (int64_t h = 0; h < helpers; ++h)
                present |= static_cast<unsigned>(item.board->present(h, number)) << h;
            if (helpers) item.board->publish(number);
            const uint64_t began = helpers ? __rdtsc() : 0;
            units(0, end);
            const uint64_t taken = helpers ? __rdtsc() - began : 0;
            for (int64_t h = 0; h < helpers; ++h) {
                const int64_t from = part_begin(layer, h + 1), to = part_begin(layer, h + 2);
                if (!(present >> h & 1) || !item.board->done(h, number, taken)) {
                    units(from, to);
                    continue;
                }
                for (int f = Cell::written(phase, 0); f < Cell::written(phase, 1); ++f)
                    for (int64_t r = 0; r < item.rows; ++r)
                        std::memcpy(after.field[f] + r * padded + from * block_width,
                                item.found[h].field[f] + r * padded + from * block_width,
                                static_cast<size_t>((to - from) * block_width) * sizeof(float));
            }
        }
        for (int64_t r = 0; r < item.rows; ++r) {
            if (t < layer.length(item.first_row + r)) {
                std::memcpy(output(t, r), after.field[0] + r * padded, hidden * sizeof(float));
                continue;
            }
            std::memset(output(t, r), 0, hidden * sizeof(float));
            for (int f = 0; f < Cell::carried; ++f)
                std::memcpy(after.field[f] + r * padded, before.field[f] + r * padded, hidden * sizeof(float));
        }
    }
    if (item.board) item.board->close();
    const State &last = item.states[item.steps % 2];
    for (int64_t r = 0; r < item.rows; ++r) {
        const int64_t length = layer.given_length(item.first_row + r);
        if (length < 0 || length > layer.steps) mgx::mgx_loop_failed(1, length);
        for (int64_t t = item.steps; t < layer.steps; ++t)
            std::memset(output(t, r), 0, hidden * sizeof(float));
        if (length <= 0) // no step: the result is 0, not the initial state
            for (int f = 0; f < Cell::carried; ++f)
                std::memset(last.field[f] + r * padded, 0, hidden * sizeof(float));
        cell.finish((item.way * layer.batch + item.first_row + r) * hidden, last, r * padded);
    }
}

// Computes the work items [begin, end); if several threads share an item, computes all items.
template <typename Cell>
void run(const Cell &cell, int64_t begin, int64_t end, void *scratch) {
    const Layer &layer = cell.layer;
    auto *memory = static_cast<float *>(scratch);
    if (layer.parts == 1) {
        for (int64_t index = begin; index < end; ++index) {
            Item item(layer, index, Cell::fields, memory);
            lead(cell, item);
        }
        return;
    }
    const int64_t items = layer.ways * layer.groups();
    const int64_t room = (layer.parts + 1) * Cell::fields * layer.rows * layer.padded();
    Board boards[most_items];
    mgx::in_parts(static_cast<int>(items * layer.parts), [&](int64_t part) { // leaders get the lowest numbers
        const int64_t index = part % items, helper = part / items - 1;
        Item item(layer, index, Cell::fields, memory + index * room);
        item.board = &boards[index];
        if (helper < 0)
            lead(cell, item);
        else
            help(cell, item, helper);
    });
}

} // namespace

#define MGX_JOINED(a, b) a##b
#define MGX_LOOP(kind, name) MGX_JOINED(kind, name)

namespace mgx {

void MGX_LOOP(lstm_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(buffers, args, 4);
    if (layer.usual)
        run(LstmCell<true> {layer}, begin, end, scratch);
    else
        run(LstmCell<false> {layer}, begin, end, scratch);
}

// `own`: 1 for linear-before-reset.
void MGX_LOOP(gru_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(buffers, args, 3);
    if (layer.own && layer.usual)
        run(LbrGruCell<true> {{layer}}, begin, end, scratch);
    else if (layer.own)
        run(LbrGruCell<false> {{layer}}, begin, end, scratch);
    else if (layer.usual)
        run(ResetStateGruCell<true> {{layer}}, begin, end, scratch);
    else
        run(ResetStateGruCell<false> {{layer}}, begin, end, scratch);
}

void MGX_LOOP(rnn_loop_, MGX_NAME)(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch) {
    const Layer layer(buffers, args, 1);
    if (layer.usual)
        run(SimpleCell<true> {layer}, begin, end, scratch);
    else
        run(SimpleCell<false> {layer}, begin, end, scratch);
}

} // namespace mgx
