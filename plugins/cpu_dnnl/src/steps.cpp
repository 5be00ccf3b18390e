#include "steps.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "errors.h"
#include "team.h"
#include "threads.h"

namespace py = pybind11;

namespace mgx {

namespace {

thread_local Frame *running = nullptr; // the run whose loop this thread executes

// The rest of a thread's range [begin, end), in one word: the owner takes from the front, thieves from the back.
struct alignas(64) Part {
    std::atomic<uint64_t> left;

    void set(int64_t begin, int64_t end) {
        left.store(static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end), std::memory_order_relaxed);
    }

    // Half of what is left, at least `grain`; false if nothing is.
    bool take(bool front, int64_t grain, int64_t &begin, int64_t &end) {
        uint64_t seen = left.load(std::memory_order_relaxed);
        for (;;) {
            const auto first = static_cast<int64_t>(seen >> 32), last = static_cast<int64_t>(seen & 0xffffffff);
            if (first >= last) return false;
            int64_t count = std::max(grain, (last - first + 1) / 2);
            if (last - first - count < grain) count = last - first;
            begin = front ? first : last - count;
            end = begin + count;
            const uint64_t rest = front ? static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(last)
                                        : static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(begin);
            if (left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) return true;
        }
    }
};

constexpr int most_parts = 64;

// Splits [0, work) into contiguous slices of at least `grain` for the team.  Each part has a range of its own, so that a thread
// finds in its cache what it wrote a step before; who is done takes from the others, since shared or mixed processors are not
// equally fast.
template <typename Body>
void split(int64_t work, int64_t grain, int threads, const Body &body) {
    if (work <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    const int64_t wanted = stepping_alone() ? 1 : std::min<int64_t>(threads, work / grain);
    if (wanted <= 1) {
        body(int64_t {0}, work, 0);
        return;
    }
    std::array<Part, most_parts> parts;
    const bool shared = wanted <= most_parts && work <= INT32_MAX;
    if (shared)
        for (int64_t n = 0; n < wanted; ++n)
            parts[static_cast<size_t>(n)].set(work * n / wanted, work * (n + 1) / wanted);
    in_parts(static_cast<int>(wanted), [&](int me) {
        int64_t begin = work / wanted * me + std::min<int64_t>(work % wanted, me);
        int64_t end = begin + work / wanted + (me < work % wanted ? 1 : 0);
        if (!shared) {
            body(begin, end, me);
            return;
        }
        for (int64_t n = 0; n < wanted; ++n)
            while (parts[static_cast<size_t>((me + n) % wanted)].take(n == 0, grain, begin, end))
                body(begin, end, me);
    });
}

constexpr int64_t copy_grain = 1 << 15; // bytes below which a second thread does not pay

template <typename T>
void copy_line(char *to, const char *from, int64_t count, int64_t to_step, int64_t from_step) {
    auto *target = reinterpret_cast<T *>(to);
    auto *source = reinterpret_cast<const T *>(from);
    for (int64_t i = 0; i < count; ++i)
        target[i * to_step] = source[i * from_step];
}

void copy_items(char *to, const char *from, int64_t count, int64_t to_step, int64_t from_step, int64_t item) {
    if (to_step == 1 && from_step == 1) {
        std::memcpy(to, from, static_cast<size_t>(count * item));
        return;
    }
    switch (item) {
        case 1: return copy_line<uint8_t>(to, from, count, to_step, from_step);
        case 2: return copy_line<uint16_t>(to, from, count, to_step, from_step);
        case 4: return copy_line<uint32_t>(to, from, count, to_step, from_step);
        case 8: return copy_line<uint64_t>(to, from, count, to_step, from_step);
        default:
            for (int64_t i = 0; i < count; ++i)
                std::memcpy(to + i * to_step * item, from + i * from_step * item, static_cast<size_t>(item));
    }
}

// Copies `count` rows by position; false and the position where one is outside of [-length, length).
template <typename Position, typename Copy>
std::pair<bool, int64_t> each_row(const Position *positions, int64_t count, int64_t length, const Copy &copy) {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = positions[i];
        if (row < -length || row >= length) return {false, row};
        copy(i, row < 0 ? row + length : row);
    }
    return {true, 0};
}

template <typename T, typename Position>
std::pair<bool, int64_t> gather_items(char *to, const char *from, const Position *positions, int64_t count, int64_t length) {
    auto *target = reinterpret_cast<T *>(to);
    auto *source = reinterpret_cast<const T *>(from);
    return each_row(positions, count, length, [&](int64_t i, int64_t row) { target[i] = source[row]; });
}

template <typename Position>
std::pair<bool, int64_t> gather(char *to, const char *from, const Position *positions, int64_t count, int64_t length, int64_t bytes) {
    switch (bytes) {
        case 1: return gather_items<uint8_t>(to, from, positions, count, length);
        case 2: return gather_items<uint16_t>(to, from, positions, count, length);
        case 4: return gather_items<uint32_t>(to, from, positions, count, length);
        case 8: return gather_items<uint64_t>(to, from, positions, count, length);
        default:
            return each_row(positions, count, length,
                    [&](int64_t i, int64_t row) { std::memcpy(to + i * bytes, from + row * bytes, static_cast<size_t>(bytes)); });
    }
}

} // namespace

extern "C" void mgx_loop_failed(int64_t code, int64_t value) {
    if (running) running->fail(code ? code : -1, value);
}

// primitives

void PrimitiveStep::build(Frame &frame, size_t index) const {
    auto &args = frame.all_args(false)[index];
    for (auto &a : args_)
        args.push_back({a.arg, frame.memory(a.desc.get(), a.ref)});
    args.push_back({DNNL_ARG_SCRATCHPAD, frame.scratchpad(primitive_->desc(DNNL_ARG_SCRATCHPAD).get())});
}

void PrimitiveStep::prepare_single() {
    if (!single_) single_ = primitive_->threads() == 1 ? primitive_ : primitive_->single();
    if (!single_) single_ = primitive_; // no plan for one thread on the same weights: this step alone takes the team
}

void PrimitiveStep::build_single(Frame &frame, size_t index) const {
    auto &args = frame.all_args(true)[index];
    args = frame.all_args(false)[index];
    if (single_ != primitive_)
        args.back().memory = frame.scratchpad(single_->desc(DNNL_ARG_SCRATCHPAD).get());
}

size_t PrimitiveStep::scratch_bytes(int) const {
    return std::max(primitive_->scratchpad_bytes(), single_ ? single_->scratchpad_bytes() : 0);
}

void PrimitiveStep::run(Frame &frame, size_t index, Team team) const {
    const auto &primitive = team.single ? *single_ : *primitive_;
    Flushing flushing;
    if (!primitive.waits_inside() || primitive.threads() <= 1) {
        primitive.execute(frame.args(index, team.single));
        return;
    }
    Gathering gathering(primitive.threads());
    TeamSize size(gathering.complete() ? primitive.threads() : 1);
    primitive.execute(frame.args(index, team.single));
}

// loops and copies

void PointerStep::build(Frame &frame, size_t index) const {
    auto &pointers = frame.all_pointers()[index];
    pointers.resize(refs_.size());
    for (size_t i = 0; i < refs_.size(); ++i)
        frame.attach(&pointers[i], refs_[i]);
}

void LoopStep::run(Frame &frame, size_t index, Team team) const {
    void **pointers = frame.pointers(index);
    split(work_, grain_, team.threads, [&](int64_t begin, int64_t end, int member) {
        Frame *before = running;
        running = &frame;
        function_(pointers, args_.data(), begin, end, frame.scratch() + scratch_ * member);
        running = before;
    });
    frame.check_failure(name);
}

void CopyStep::run(Frame &frame, size_t index, Team team) const {
    void **at = frame.pointers(index);
    if (at[0] == at[1]) return;
    split(bytes_, copy_grain, team.threads, [&](int64_t begin, int64_t end, int) {
        std::memcpy(static_cast<char *>(at[1]) + begin, static_cast<char *>(at[0]) + begin, static_cast<size_t>(end - begin));
    });
}

StridedCopyStep::StridedCopyStep(std::string name, Ref from, Ref to, int64_t item, std::vector<int64_t> dims,
        std::vector<int64_t> from_strides, std::vector<int64_t> to_strides)
    : PointerStep(std::move(name), {from, to}), item_(item) {
    if (dims.size() != from_strides.size() || dims.size() != to_strides.size())
        throw Failure(Fault::parameter, "a strided copy needs as many strides as dims");
    for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] == 1) continue;
        // an axis that continues its outer neighbour on both sides is one with it
        if (!dims_.empty() && from_.back() == from_strides[i] * dims[i] && to_.back() == to_strides[i] * dims[i]) {
            dims_.back() *= dims[i];
            from_.back() = from_strides[i];
            to_.back() = to_strides[i];
        } else {
            dims_.push_back(dims[i]);
            from_.push_back(from_strides[i]);
            to_.push_back(to_strides[i]);
        }
    }
    if (dims_.empty()) {
        dims_ = {1};
        from_ = to_ = {1};
    }
}

void StridedCopyStep::run(Frame &frame, size_t index, Team team) const {
    auto *from = static_cast<const char *>(frame.pointers(index)[0]);
    auto *to = static_cast<char *>(frame.pointers(index)[1]);
    size_t rank = dims_.size();
    int64_t line = dims_[rank - 1];
    int64_t lines = 1;
    for (size_t i = 0; i + 1 < rank; ++i)
        lines *= dims_[i];
    if (lines * line == 0) return;
    if (lines == 1) {
        split(line, copy_grain / item_, team.threads, [&](int64_t begin, int64_t end, int) {
            copy_items(to + begin * to_[rank - 1] * item_, from + begin * from_[rank - 1] * item_, end - begin,
                    to_[rank - 1], from_[rank - 1], item_);
        });
        return;
    }
    split(lines, std::max<int64_t>(1, copy_grain / (line * item_)), team.threads, [&](int64_t begin, int64_t end, int) {
        std::vector<int64_t> at(rank);
        int64_t rest = begin, source = 0, target = 0;
        for (size_t i = rank - 1; i-- > 0;) {
            at[i] = rest % dims_[i];
            rest /= dims_[i];
            source += at[i] * from_[i];
            target += at[i] * to_[i];
        }
        for (int64_t n = begin; n < end; ++n) {
            copy_items(to + target * item_, from + source * item_, line, to_[rank - 1], from_[rank - 1], item_);
            for (size_t i = rank - 1; i-- > 0;) {
                source += from_[i];
                target += to_[i];
                if (++at[i] < dims_[i]) break;
                source -= from_[i] * dims_[i];
                target -= to_[i] * dims_[i];
                at[i] = 0;
            }
        }
    });
}

void FillStep::run(Frame &frame, size_t index, Team team) const {
    auto *to = static_cast<char *>(frame.pointers(index)[0]);
    auto size = static_cast<int64_t>(pattern_.size());
    bool same = pattern_.find_first_not_of(pattern_[0]) == std::string::npos;
    split(count_, copy_grain / size, team.threads, [&](int64_t begin, int64_t end, int) {
        if (same) {
            std::memset(to + begin * size, pattern_[0], static_cast<size_t>((end - begin) * size));
            return;
        }
        // the first item by hand, then what is filled doubles
        char *start = to + begin * size;
        int64_t bytes = (end - begin) * size;
        std::memcpy(start, pattern_.data(), pattern_.size());
        for (int64_t done = size; done < bytes;) {
            int64_t more = std::min({done, bytes - done, int64_t {4096} / size * size + size});
            std::memcpy(start + done, start, static_cast<size_t>(more));
            done += more;
        }
    });
}

void GatherStep::run(Frame &frame, size_t index, Team team) const {
    void **at = frame.pointers(index);
    auto *data = static_cast<const char *>(at[0]);
    auto *out = static_cast<char *>(at[2]);
    split(outer_ * count_, std::max<int64_t>(1, copy_grain / std::max<int64_t>(row_, 1)), team.threads,
            [&](int64_t begin, int64_t end, int) {
                for (int64_t outer = begin / count_; begin < end; ++outer) {
                    const int64_t first = begin - outer * count_, last = std::min(end - outer * count_, count_);
                    const char *from = data + outer * length_ * row_;
                    char *to = out + begin * row_;
                    const auto [good, row] = wide_
                            ? gather(to, from, static_cast<const int64_t *>(at[1]) + first, last - first, length_, row_)
                            : gather(to, from, static_cast<const int32_t *>(at[1]) + first, last - first, length_, row_);
                    if (!good) {
                        frame.fail(1, row);
                        return;
                    }
                    begin += last - first;
                }
            });
    frame.check_failure(name + " (axis of length " + std::to_string(length_) + ")");
}

// host steps

void HostStep::build(Frame &frame, size_t index) const {
    auto &pointers = frame.all_pointers()[index];
    pointers.resize(inputs_.size() + outputs_.size());
    size_t n = 0;
    for (auto *list : {&inputs_, &outputs_})
        for (auto &operand : *list) {
            if (!operand.object) frame.attach(&pointers[n], operand.ref);
            ++n;
        }
}

void HostStep::run(Frame &frame, size_t index, Team) const {
    py::gil_scoped_acquire gil;
    void **pointers = frame.pointers(index);
    size_t n = 0;
    auto view = [&](const HostOperand &operand) -> py::object {
        void *address = pointers[n++];
        if (!operand.object) return array_view(operand.spec, address, keep_);
        const auto &held = frame.objects[static_cast<size_t>(operand.ref.offset)];
        return held ? held : py::none();
    };
    py::list inputs;
    for (auto &operand : inputs_)
        inputs.append(view(operand));
    if (into_) {
        py::list outputs;
        for (auto &operand : outputs_)
            outputs.append(view(operand));
        function_(inputs, outputs);
        return;
    }
    py::object returned = function_(inputs);
    auto results = py::reinterpret_borrow<py::sequence>(returned);
    if (!PySequence_Check(returned.ptr()) || results.size() != outputs_.size())
        throw Failure(Fault::device, name + ": the host step must return " + std::to_string(outputs_.size()) + " results");
    for (size_t i = 0; i < outputs_.size(); ++i) {
        void *address = pointers[n++];
        py::object result = results[i];
        if (outputs_[i].object) {
            frame.objects[static_cast<size_t>(outputs_[i].ref.offset)] = detached(result, keep_);
            continue;
        }
        try {
            store_array(result, outputs_[i].spec, address);
        } catch (const Failure &failure) {
            throw Failure(failure.fault, name + ": " + failure.what());
        }
    }
}

} // namespace mgx
