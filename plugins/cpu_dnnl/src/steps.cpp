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

thread_local Frame *running = nullptr; // frame of the loop that this thread executes, for mgx_loop_failed

// Remaining range [begin, end) of a thread, packed into one atomic word: the owner takes from the front, thieves from the back.
struct alignas(64) Part {
    std::atomic<uint64_t> left;

    void set(int64_t begin, int64_t end) {
        left.store(static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end), std::memory_order_relaxed);
    }

    // Takes half of the remaining range, at least `grain`; false if it is empty.
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

// Distributes [0, work) over the team in contiguous slices of at least `grain`.  Each thread starts with the same share in every
// step, so that it finds in its cache what it wrote in the previous step.  Threads that finish steal from the others, because
// processors that are shared with other load, or are of mixed kinds, are not equally fast.
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
    if (primitive_->needs_whole_team()) build_single(frame, index);
}

void PrimitiveStep::prepare() {
    primitive_->prepare();
    if (!primitive_->needs_whole_team()) return;
    prepare_single(); // for runs in which the team does not gather
    if (single_ == primitive_) throw Failure(Fault::unsupported, "oneDNN has no " + primitive_->kind() + " for one thread");
}

void PrimitiveStep::prepare_single() {
    if (!single_) single_ = primitive_->threads() == 1 ? primitive_ : primitive_->single();
    if (!single_) single_ = primitive_; // oneDNN has no plan for one thread with these weights: this step uses the team
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
    const bool alone = !gathering.complete() && primitive.needs_whole_team();
    (alone ? *single_ : primitive).execute(frame.args(index, alone || team.single));
}

// loops

void PointerStep::build(Frame &frame, size_t index) const {
    auto &pointers = frame.all_pointers()[index];
    pointers.resize(refs_.size());
    for (size_t i = 0; i < refs_.size(); ++i)
        frame.attach(&pointers[i], refs_[i]);
}

void LoopStep::run(Frame &frame, size_t index, Team team) const {
    void **pointers = frame.pointers(index);
    for (const Loop &loop : *loops_.load(std::memory_order_acquire)) {
        split(loop.work, loop.grain, team.threads, [&](int64_t begin, int64_t end, int member) {
            Frame *before = running;
            running = &frame;
            loop.function(pointers, loop.args.data(), begin, end, frame.scratch() + scratch_ * member);
            running = before;
        });
        frame.check_failure(name);
    }
}

// branches

size_t JumpStep::next(Frame &frame, size_t index) const {
    const bool on = !refs_.empty() && *static_cast<const uint8_t *>(frame.pointers(index)[0]) != 0;
    return on ? index + 1 : target;
}

// control-flow loops

LoopHeaderStep::LoopHeaderStep(std::string name, const Trips &trips)
    : PointerStep(std::move(name), {trips.counter}), bounded_(!trips.bound.empty()), conditional_(!trips.going.empty()),
      sure_(trips.sure), most_(trips.most) {
    for (auto *list : {&trips.bound, &trips.going})
        refs_.insert(refs_.end(), list->begin(), list->end());
}

size_t LoopHeaderStep::next(Frame &frame, size_t index) const {
    void **pointers = frame.pointers(index);
    const int64_t done = *static_cast<const int64_t *>(pointers[0]);
    const int64_t bound = bounded_ ? *static_cast<const int64_t *>(pointers[1]) : INT64_MAX;
    if (done >= bound || (conditional_ && !*static_cast<const uint8_t *>(pointers[bounded_ ? 2 : 1]))) return target;
    if (done >= most_ || (sure_ && bound > most_))
        throw Failure(Fault::shape,
                name + ": the loop takes more than " + std::to_string(most_) + " trips (option limit_max_iterations)");
    return index + 1;
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
        throw Failure(Fault::device, name + ": the host step must return " + counted(outputs_.size(), "result"));
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
