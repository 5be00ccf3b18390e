// A machine for loops that nobody compiled: it does a group's operations one after the other, each on some hundred elements that
// the first cache holds.  What the operations are is a table of compiled loops (`jit/machine_table.py` writes them), so that
// the results are those of the compiled group, bit by bit.  Included once for each instruction set, with MGX_LANES and MGX_MACHINE.
#include <algorithm>
#include <limits>

#include "loops.h"
#include "vectors.h"

namespace mgx {

namespace {

constexpr int64_t block = 512;     // elements of a register; `jit/machine.py` knows it
constexpr int64_t sum_block = 64;  // indices of a parted axis, as in `jit/reduce_plan.py`
constexpr int most_slots = 160, most_operands = 24, most_axes = 12, most_passes = 8; // as in `jit/machine.py`

using Table = const LoopFunction *;

// How an operand is reached while the innermost axis is walked.
enum Access : int64_t { at_row, stream, gathered, spread };

struct Operand {
    int64_t buffer, size, slot, access, step; // step: along the axis that vectors run along
};
struct Constant {
    int64_t slot, size, bits, count;
};
struct Splat {
    int64_t from, to, size;
};
struct Store {
    int64_t slot, operand;
};
struct Kept { // a value of each element of a row, for the passes behind
    int64_t slot, offset, size;
};
struct Reduce {
    int64_t kind, value, total, accumulators; // kind: 0 sum, 1 product, 2 maximum, 3 minimum, 4 maximum of numbers, 5 sum of int64
};

template <class T> struct List {
    const T *items = nullptr;
    int64_t count = 0;

    const T *begin() const { return items; }
    const T *end() const { return items + count; }
};

// Reads numbers in the order in which `jit/machine.py` writes them.
struct Reader {
    const int64_t *at;

    int64_t number() { return *at++; }
    template <class T> List<T> list() {
        const int64_t count = *at++;
        List<T> found {reinterpret_cast<const T *>(at), count};
        at += count * static_cast<int64_t>(sizeof(T) / sizeof(int64_t));
        return found;
    }
};

// One pass: what is done once for each row, then what is done all along it.
struct Pass {
    List<int64_t> row_code, inner_code, row_operands, inner_operands;
    List<Store> row_stores, inner_stores;
    List<Splat> splats;
    List<Reduce> reduces;
    List<Kept> kept;
    int64_t walks, both, times;

    void read(Reader &r) {
        walks = r.number();
        both = r.number();
        times = r.number();
        row_operands = r.list<int64_t>();
        inner_operands = r.list<int64_t>();
        row_code = r.list<int64_t>();
        inner_code = r.list<int64_t>();
        row_stores = r.list<Store>();
        inner_stores = r.list<Store>();
        splats = r.list<Splat>();
        reduces = r.list<Reduce>();
        kept = r.list<Kept>();
    }
};

template <class T> void fill(char *to, const char *from, int64_t count) {
    T x;
    std::memcpy(&x, from, sizeof x);
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * sizeof x, &x, sizeof x);
}

template <class T> void pick(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * to_step * static_cast<int64_t>(sizeof(T)), from + i * from_step * static_cast<int64_t>(sizeof(T)), sizeof(T));
}

void fill(char *to, const char *from, int64_t size, int64_t count) {
    size == 4 ? fill<int32_t>(to, from, count) : size == 8 ? fill<int64_t>(to, from, count)
            : size == 2                        ? fill<int16_t>(to, from, count)
                                               : fill<int8_t>(to, from, count);
}

void pick(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t size, int64_t count) {
    if (to_step == 1 && from_step == 1)
        std::memcpy(to, from, static_cast<size_t>(size * count));
    else
        size == 4 ? pick<int32_t>(to, to_step, from, from_step, count) : size == 8 ? pick<int64_t>(to, to_step, from, from_step, count)
                : size == 2 ? pick<int16_t>(to, to_step, from, from_step, count)
                            : pick<int8_t>(to, to_step, from, from_step, count);
}

template <int kind> inline Floats joined(Floats a, Floats b) {
    switch (kind) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: {
        const Floats best = larger(a, b);
        return a == a ? best : a;
    }
    case 3: {
        const Floats best = smaller(a, b);
        return a == a ? best : a;
    }
    default: return larger(a, b);
    }
}

constexpr float identity(int64_t kind) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    return kind == 0 ? 0 : kind == 1 ? 1 : kind == 3 ? infinity : -infinity;
}

template <int kind, int vectors> void accumulate(float *sums, const float *x, int64_t count) {
    Floats s[vectors];
    for (int v = 0; v < vectors; ++v)
        s[v] = load(sums + v * lanes);
    for (int64_t i = 0; i < count; i += vectors * lanes)
        for (int v = 0; v < vectors; ++v)
            s[v] = joined<kind>(s[v], load(x + i + v * lanes));
    for (int v = 0; v < vectors; ++v)
        store(sums + v * lanes, s[v]);
}

template <int kind> void accumulate(float *sums, const float *x, int64_t count, int64_t times) {
    times == 4 ? accumulate<kind, 4>(sums, x, count) : times == 2 ? accumulate<kind, 2>(sums, x, count)
                                                                   : accumulate<kind, 1>(sums, x, count);
}

// Elements that begin a part of a row in as many vectors as are taken at once, and those behind them one vector after the other.
template <int kind> void along(float *wide, float *narrow, const float *x, int64_t whole, int64_t count, int64_t times) {
    accumulate<kind>(wide, x, whole, times);
    const int64_t vectors = (count - whole) / lanes * lanes;
    accumulate<kind, 1>(narrow, x + whole, vectors);
    if (whole + vectors == count) return;
    float rest[lanes];
    std::fill(rest, rest + lanes, identity(kind));
    std::copy(x + whole + vectors, x + count, rest);
    accumulate<kind, 1>(narrow, rest, lanes);
}

template <int kind> void across(float *sums, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
        store(sums + i, joined<kind>(load(sums + i), load(x + i)));
    if (i < count) store_some(sums + i, joined<kind>(load_some(sums + i, count - i), load_some(x + i, count - i)), count - i);
}

inline float joined_scalar(int64_t kind, float a, float b) {
    switch (kind) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a != a ? a : a > b ? a : b;
    case 3: return a != a ? a : a < b ? a : b;
    default: return a > b ? a : b;
    }
}

// One reduction of the element type that it has.
void add_along(const Reduce &r, char *sums, const char *x, int64_t whole, int64_t count, int64_t times) {
    if (r.kind == 5) {
        int64_t *total = reinterpret_cast<int64_t *>(sums);
        for (int64_t i = 0; i < count; ++i)
            *total = static_cast<int64_t>(static_cast<uint64_t>(*total) + static_cast<uint64_t>(reinterpret_cast<const int64_t *>(x)[i]));
        return;
    }
    float *wide = reinterpret_cast<float *>(sums), *narrow = wide + 4 * lanes;
    const float *from = reinterpret_cast<const float *>(x);
    switch (r.kind) {
    case 0: return along<0>(wide, narrow, from, whole, count, times);
    case 1: return along<1>(wide, narrow, from, whole, count, times);
    case 2: return along<2>(wide, narrow, from, whole, count, times);
    case 3: return along<3>(wide, narrow, from, whole, count, times);
    default: return along<4>(wide, narrow, from, whole, count, times);
    }
}

void add_across(const Reduce &r, char *sums, const char *x, int64_t count) {
    if (r.kind == 5) {
        uint64_t *totals = reinterpret_cast<uint64_t *>(sums);
        for (int64_t i = 0; i < count; ++i)
            totals[i] += reinterpret_cast<const uint64_t *>(x)[i];
        return;
    }
    float *totals = reinterpret_cast<float *>(sums);
    const float *from = reinterpret_cast<const float *>(x);
    switch (r.kind) {
    case 0: return across<0>(totals, from, count);
    case 1: return across<1>(totals, from, count);
    case 2: return across<2>(totals, from, count);
    case 3: return across<3>(totals, from, count);
    default: return across<4>(totals, from, count);
    }
}

void start(const Reduce &r, char *sums, int64_t count) {
    if (r.kind == 5)
        std::memset(sums, 0, static_cast<size_t>(8 * count));
    else
        std::fill(reinterpret_cast<float *>(sums), reinterpret_cast<float *>(sums) + count, identity(r.kind));
}

class Machine {
public:
    Machine(void *const *buffers, const int64_t *args, char *scratch, Table table) : buffers_(buffers), scratch_(scratch), table_(table) {
        Reader r {args};
        columns_ = r.number();
        part_ = r.number();
        rows_ = r.number();
        outer_ = r.list<int64_t>();
        nest_ = r.list<int64_t>();
        parted_ = r.list<int64_t>();
        operands_ = r.list<Operand>();
        steps_ = r.list<int64_t>().items;
        const List<int64_t> offsets = r.list<int64_t>();
        for (int64_t slot = 0; slot < offsets.count; ++slot)
            where_[slot] = scratch + offsets.items[slot];
        for (const Constant &c : r.list<Constant>())
            fill(where_[c.slot], reinterpret_cast<const char *>(&c.bits), c.size, c.count);
        passes_ = r.number();
        for (int64_t i = 0; i < passes_; ++i)
            pass_[i].read(r);
    }

    void run(int64_t begin, int64_t end) {
        if (columns_)
            run_columns(begin, end);
        else
            run_rows(begin * rows_, end * rows_);
    }

private:
    int64_t along(int64_t axis, const Operand &o) const { return steps_[axis * operands_.count + (&o - operands_.items)]; }

    // Puts the operands at an index of the outer axes.
    void place(int64_t index, int64_t axes) {
        std::fill(place_, place_ + operands_.count, 0);
        for (int64_t axis = axes - 1; axis >= 0; --axis) {
            index_[axis] = index % outer_.items[axis];
            index /= outer_.items[axis];
            for (int64_t k = 0; k < operands_.count; ++k)
                place_[k] += index_[axis] * steps_[axis * operands_.count + k];
        }
    }

    // Moves the operands to the next index.
    void onward(int64_t axes) {
        for (int64_t axis = axes - 1; axis >= 0; --axis) {
            const int64_t *step = steps_ + axis * operands_.count;
            const bool on = ++index_[axis] < outer_.items[axis];
            for (int64_t k = 0; k < operands_.count; ++k)
                place_[k] += on ? step[k] : -step[k] * (outer_.items[axis] - 1);
            if (on) return;
            index_[axis] = 0;
        }
    }

    char *address(const Operand &o, int64_t offset) const {
        return static_cast<char *>(buffers_[o.buffer]) + offset * o.size;
    }

    void execute(const List<int64_t> &code, int64_t count) {
        for (const int64_t *at = code.begin(); at < code.end(); at += 2 + at[1]) {
            void *operands[8];
            for (int64_t i = 0; i < at[1]; ++i)
                operands[i] = where_[at[2 + i]];
            table_[at[0]](operands, nullptr, 0, count, nullptr);
        }
    }

    void run_rows(int64_t begin, int64_t end) {
        const int64_t last = nest_.items[nest_.count - 1];
        const int64_t part = part_ ? part_ : last, parts = part_ ? (last + part_ - 1) / part_ : 1;
        place(begin / parts, outer_.count);
        for (int64_t row = begin; row < end; ++row) {
            if (row > begin && row % parts == 0) onward(outer_.count);
            const int64_t from = row % parts * part;
            length_ = part_ ? std::min(part, last - from) : last;
            run_row(from);
        }
    }

    // from: where a part of the row begins
    void run_row(int64_t from) {
        int64_t here[most_operands];
        for (int64_t k = 0; k < operands_.count; ++k)
            here[k] = place_[k] + from * operands_.items[k].step;
        for (int64_t i = 0; i < passes_; ++i) {
            const Pass &pass = pass_[i];
            for (int64_t k : pass.row_operands)
                where_[operands_.items[k].slot] = address(operands_.items[k], here[k]);
            execute(pass.row_code, 1);
            for (const Splat &s : pass.splats) // before a result takes an operand's place
                fill(where_[s.to], where_[s.from], s.size, std::min(length_, block));
            for (const Store &s : pass.row_stores) {
                const Operand &o = operands_.items[s.operand];
                std::memcpy(address(o, here[s.operand]), where_[s.slot], static_cast<size_t>(o.size));
            }
            if (!pass.walks) continue;
            for (const Reduce &reduce : pass.reduces)
                start(reduce, scratch_ + reduce.accumulators, reduce.kind == 5 ? 1 : 5 * lanes);
            walk_rows(pass, 0, here, 0);
            for (const Reduce &reduce : pass.reduces)
                finish(pass, reduce);
        }
    }

    // line: the number of the run along the last axis
    void walk_rows(const Pass &pass, int64_t axis, const int64_t *at, int64_t line) {
        if (axis + 1 == nest_.count) return along_row(pass, at, line * length_);
        int64_t here[most_operands];
        std::copy(at, at + operands_.count, here);
        for (int64_t i = 0; i < nest_.items[axis]; ++i) {
            walk_rows(pass, axis + 1, here, line * nest_.items[axis] + i);
            for (const Operand &o : operands_)
                here[&o - operands_.items] += along(outer_.count + axis, o);
        }
    }

    // line: the number of the first element in the row
    void along_row(const Pass &pass, const int64_t *at, int64_t line) {
        for (int64_t k : pass.inner_operands) {
            const Operand &o = operands_.items[k];
            if (o.access == spread) fill(where_[o.slot], address(o, at[k]), o.size, std::min(length_, block));
        }
        const int64_t once = pass.times * lanes, wide = pass.both ? length_ / once * once : 0;
        for (int64_t i = 0; i < length_; i += block) {
            const int64_t count = std::min(block, length_ - i);
            for (int64_t k : pass.inner_operands) {
                const Operand &o = operands_.items[k];
                char *from = address(o, at[k] + i * o.step);
                if (o.access == stream)
                    where_[o.slot] = from;
                else if (o.access == gathered)
                    pick(where_[o.slot], 1, from, o.step, o.size, count);
            }
            for (const Kept &k : pass.kept)
                where_[k.slot] = scratch_ + k.offset + (line + i) * k.size;
            execute(pass.inner_code, count);
            for (const Store &s : pass.inner_stores) {
                const Operand &o = operands_.items[s.operand];
                pick(address(o, at[s.operand] + i * o.step), o.step, where_[s.slot], 1, o.size, count);
            }
            for (const Reduce &reduce : pass.reduces)
                add_along(reduce, scratch_ + reduce.accumulators, where_[reduce.value], std::clamp<int64_t>(wide - i, 0, count), count, pass.times);
        }
    }

    // The lanes of a row's vectors, in the order in which compiled loops combine them.
    void finish(const Pass &pass, const Reduce &r) {
        char *sums = scratch_ + r.accumulators;
        if (r.kind == 5) {
            std::memcpy(where_[r.total], sums, 8);
            return;
        }
        float *wide = reinterpret_cast<float *>(sums), *narrow = wide + 4 * lanes;
        if (pass.both) {
            for (int64_t parts = pass.times; parts > 1; parts /= 2)
                for (int64_t i = 0; i < parts / 2; ++i)
                    for (int64_t j = 0; j < lanes; ++j)
                        wide[i * lanes + j] = joined_scalar(r.kind, wide[2 * i * lanes + j], wide[(2 * i + 1) * lanes + j]);
            for (int64_t j = 0; j < lanes; ++j)
                narrow[j] = joined_scalar(r.kind, narrow[j], wide[j]);
        }
        for (int64_t n = lanes / 2; n > 0; n /= 2)
            for (int64_t j = 0; j < n; ++j)
                narrow[j] = joined_scalar(r.kind, narrow[j], narrow[j + n]);
        std::memcpy(where_[r.total], narrow, 4);
    }

    void run_columns(int64_t begin, int64_t end) {
        const int64_t axis = outer_.count - 1, extent = outer_.items[axis], blocks = (extent + part_ - 1) / part_;
        const int64_t most = std::max<int64_t>(1, block / part_);
        for (int64_t item = begin; item < end;) {
            const int64_t first = item % blocks, several = std::min({most, blocks - first, end - item});
            place(item / blocks, axis);
            for (const Operand &o : operands_)
                place_[&o - operands_.items] += first * part_ * along(axis, o);
            length_ = std::min(several * part_, extent - first * part_);
            item += several;
            for (int64_t i = 0; i < passes_; ++i)
                columns_pass(pass_[i]);
        }
    }

    void columns_pass(const Pass &pass) {
        for (int64_t k : pass.row_operands)
            fetch(operands_.items[k], place_[k]);
        execute(pass.row_code, length_);
        for (const Store &s : pass.row_stores)
            put(s, place_[s.operand]);
        if (!pass.walks) return;
        for (const Reduce &reduce : pass.reduces)
            start(reduce, scratch_ + reduce.accumulators, length_);
        walk_columns(pass, 0, place_, 0);
        for (const Reduce &reduce : pass.reduces) // where the row's instructions find it
            std::memcpy(where_[reduce.total], scratch_ + reduce.accumulators, static_cast<size_t>(length_ * (reduce.kind == 5 ? 8 : 4)));
    }

    void fetch(const Operand &o, int64_t offset) {
        char *from = address(o, offset);
        if (o.access == stream)
            where_[o.slot] = from;
        else if (o.access == gathered)
            pick(where_[o.slot], 1, from, o.step, o.size, length_);
        else
            fill(where_[o.slot], from, o.size, length_);
    }

    void put(const Store &s, int64_t offset) {
        const Operand &o = operands_.items[s.operand];
        pick(address(o, offset), o.step, where_[s.slot], 1, o.size, length_);
    }

    // Accumulators of `depth` parted axes around lie behind one another.
    char *sums(const Reduce &r, int64_t depth) const { return scratch_ + r.accumulators + depth * block * 8; }

    void walk_columns(const Pass &pass, int64_t axis, const int64_t *at, int64_t depth) {
        if (axis == nest_.count) {
            for (int64_t k : pass.inner_operands)
                fetch(operands_.items[k], at[k]);
            execute(pass.inner_code, length_);
            for (const Store &s : pass.inner_stores)
                put(s, at[s.operand]);
            for (const Reduce &r : pass.reduces)
                add_across(r, sums(r, depth), where_[r.value], length_);
            return;
        }
        const bool parted = parted_.items[axis] && pass.reduces.count;
        int64_t here[most_operands];
        std::copy(at, at + operands_.count, here);
        for (int64_t i = 0; i < nest_.items[axis]; ++i) {
            if (parted && i % sum_block == 0) {
                if (i) join(pass, depth);
                for (const Reduce &r : pass.reduces)
                    start(r, sums(r, depth + 1), length_);
            }
            walk_columns(pass, axis + 1, here, depth + parted);
            for (const Operand &o : operands_)
                here[&o - operands_.items] += along(outer_.count + axis, o);
        }
        if (parted && nest_.items[axis]) join(pass, depth);
    }

    void join(const Pass &pass, int64_t depth) {
        for (const Reduce &r : pass.reduces)
            add_across(r, sums(r, depth), sums(r, depth + 1), length_);
    }

    void *const *buffers_;
    char *scratch_;
    Table table_;
    int64_t columns_, part_, rows_, passes_, length_ = 0;
    List<int64_t> outer_, nest_, parted_;
    List<Operand> operands_;
    const int64_t *steps_;
    Pass pass_[most_passes];
    char *where_[most_slots];
    int64_t place_[most_operands], index_[most_axes];
};

} // namespace

extern "C" void MGX_MACHINE(void *const *buffers, const int64_t *args, int64_t begin, int64_t end, void *scratch, Table table) {
    if (begin < end) Machine(buffers, args, static_cast<char *>(scratch), table).run(begin, end);
}

} // namespace mgx
