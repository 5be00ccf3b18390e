#include "program.h"

#include "memory.h"

#include <algorithm>
#include <atomic>

#include <pybind11/stl.h>

#include "arena.h"
#include "errors.h"
#include "team.h"
#include "threads.h"

namespace py = pybind11;

namespace mgx {

// Takes a frame from the program's free list and a block from the process's arena pool for the duration of a run.
class Program::Lease {
public:
    Lease(Program &program, char *external)
        : program_(program), block_((external ? 0 : program.scratch_offset()) + program.scratch_bytes()) {
        {
            std::lock_guard<std::mutex> lock(program_.frames_mutex_);
            if (!program_.free_.empty()) {
                frame_ = std::move(program_.free_.back());
                program_.free_.pop_back();
            }
        }
        if (!frame_) frame_ = std::make_unique<Frame>(program_);
        if (external)
            frame_->bind_memory(external, block_.data());
        else
            frame_->bind_memory(block_.data(), block_.data() + program.scratch_offset());
    }
    ~Lease() {
        std::lock_guard<std::mutex> lock(program_.frames_mutex_);
        program_.free_.push_back(std::move(frame_));
    }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;
    Frame &operator*() const { return *frame_; }

private:
    Program &program_;
    ArenaBlock block_;
    std::unique_ptr<Frame> frame_;
};

Program::~Program() { unregister_arena(borrowed_); }

void Program::compute_scratch() {
    size_t bytes = 0;
    for (auto &step : steps_)
        bytes = std::max(bytes, step->scratch_bytes(most_threads_));
    std::lock_guard<std::mutex> frames(frames_mutex_);
    scratch_bytes_ = bytes;
    unregister_arena(borrowed_);
    register_arena(borrowed_ = scratch_offset() + bytes);
}

void Program::finish(bool touch) {
    if (!branches_.empty()) throw Failure(Fault::parameter, "a branch of the program is not ended: call end_branch before finish");
    if (!loops_.empty()) throw Failure(Fault::parameter, "a loop of the program is not ended: call end_loop before finish");
    for (auto &step : steps_) {
        planned_threads_ = std::max(planned_threads_, step->planned_threads());
        movable_ = movable_ && !step->needs_caller();
    }
    most_threads_ = std::max(planned_threads_, thread_count());
    finished_ = true;
    if (results_.empty())
        for (size_t id = 0; id < values_.size(); ++id)
            if (values_[id].kind == Value::Kind::output) results_.push_back(static_cast<int>(id));
    py::gil_scoped_release nogil;
    run_concurrently(steps_.size(), [this](size_t i) { steps_[i]->prepare(); });
    compute_scratch();
    if (!touch) return;
    Lease lease(*this, nullptr);
    for (auto &spec : outputs_) { // pre-fault the pages of the first results, too
        auto bytes = static_cast<size_t>(std::max<int64_t>(spec.bytes, 1));
        auto *block = static_cast<char *>(recycled_allocate(bytes));
        if (!block) continue;
        for (size_t at = 0; at < bytes; at += 4096)
            *const_cast<volatile char *>(block + at) = 0;
        recycled_free(block);
    }
}

// Creates the variant for one thread of every primitive.
void Program::prepare_single() {
    std::call_once(single_, [this] {
        for (auto &step : steps_)
            step->prepare_single();
        compute_scratch();
    });
}

void Program::assign(const std::vector<int64_t> &numbers) {
    bool moved = false;
    auto set = [&](int64_t &place, int64_t value) {
        const bool changed = place != value;
        place = value;
        return changed;
    };
    for (const Varying &v : varying_) {
        const int64_t value = numbers.at(v.number);
        switch (v.kind) {
            case Varying::Kind::input:
            case Varying::Kind::output: {
                ArraySpec &spec = v.kind == Varying::Kind::input ? inputs_.at(v.of).spec : outputs_.at(v.of);
                set(spec.dims.at(v.at), value);
                break;
            }
            case Varying::Kind::argument: set(loop_step(v.of).loop(v.part).args.at(v.at), value); break;
            case Varying::Kind::work: set(loop_step(v.of).loop(v.part).work, value); break;
            case Varying::Kind::grain: set(loop_step(v.of).loop(v.part).grain, value); break;
            case Varying::Kind::offset: moved |= set(loop_step(v.of).ref(v.at).offset, value); break;
        }
    }
    if (!moved) return;
    std::lock_guard<std::mutex> lock(frames_mutex_);
    free_.clear(); // frames hold addresses with the offsets
}

std::vector<py::object *> Program::owned() {
    std::vector<py::object *> list;
    for (auto &value : values_)
        list.push_back(&value.owner);
    for (auto &step : steps_)
        step->owned(list);
    return list;
}

void Program::drop_references() {
    finished_ = false;
    for (auto *object : owned())
        object->release().dec_ref();
}

void Program::require_finished() const {
    if (!finished_) throw Failure(Fault::parameter, "the program is not finished: call finish before running it");
}

void Program::run_steps(Frame &frame, Team team, std::vector<int64_t> *nanoseconds) const {
    if (nanoseconds) nanoseconds->assign(steps_.size(), 0);
    int64_t before = nanoseconds_now();
    wake_team(team.threads, before);
    for (size_t i = 0, next; i < steps_.size(); i = next) {
        const Step &step = *steps_[i];
        Stepping stepping(step.times, team.threads, before);
        step.run(frame, i, team);
        const int64_t now = stepping.finished();
        if (nanoseconds) (*nanoseconds)[i] += now - before;
        before = now;
        next = step.next(frame, i);
    }
}

void Program::execute(const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
        std::vector<py::object> *objects, std::vector<int64_t> *nanoseconds) {
    with_share(movable_, [&](int share) { execute_with(share, inputs, outputs, arena, objects, nanoseconds); });
}

void Program::execute_with(int share, const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
        std::vector<py::object> *objects, std::vector<int64_t> *nanoseconds) {
    bool single = share < planned_threads_;
    if (single) prepare_single();
    int threads = single ? 1 : std::min(std::max(share, planned_threads_), most_threads_);
    TeamSize team_size(threads);
    Team team {threads, single};
    Lease lease(*this, arena);
    Frame &frame = *lease;
    if (single && !frame.has_single) {
        for (size_t i = 0; i < steps_.size(); ++i)
            steps_[i]->build_single(frame, i);
        frame.has_single = true;
    }
    frame.bind_inputs(inputs);
    frame.bind_outputs(outputs);
    if (objects) frame.objects.swap(*objects);
    try {
        run_steps(frame, team, nanoseconds);
    } catch (...) {
        if (objects) frame.objects.swap(*objects);
        throw;
    }
    if (objects) frame.objects.swap(*objects);
    count_run();
}

void Program::run(const std::vector<size_t> &inputs, const std::vector<size_t> &outputs, size_t arena) {
    require_finished();
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
        throw Failure(Fault::parameter, "the program takes " + counted(inputs_.size(), "input") + " and "
                + counted(outputs_.size(), "output"));
    if (objects_)
        throw Failure(Fault::parameter, "a program with values that are Python objects must be run on arrays: call run_arrays");
    std::vector<void *> from, to;
    for (auto address : inputs)
        from.push_back(reinterpret_cast<void *>(address));
    for (auto address : outputs)
        to.push_back(reinterpret_cast<void *>(address));
    py::gil_scoped_release nogil;
    execute(from, to, reinterpret_cast<char *>(arena), nullptr, nullptr);
}

py::list Program::with_arrays(const py::list &given, std::vector<int64_t> *nanoseconds) {
    require_finished();
    size_t count = given.size();
    if (count != inputs_.size())
        throw Failure(Fault::parameter,
                "the program takes " + counted(inputs_.size(), "input") + ", got " + std::to_string(count));
    std::vector<py::object> held;
    std::vector<py::object> objects(objects_);
    std::vector<void *> from(inputs_.size()), to(outputs_.size());
    held.reserve(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
        PyObject *item = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
        if (inputs_[i].object)
            objects[static_cast<size_t>(inputs_[i].slot)] = py::reinterpret_borrow<py::object>(item);
        else
            held.push_back(checked_input(item, inputs_[i].spec, i, from[i]));
    }
    std::vector<py::object> arrays;
    arrays.reserve(outputs_.size());
    if (!outputs_.empty()) {
        const Recycling recycling;
        for (size_t i = 0; i < outputs_.size(); ++i)
            arrays.push_back(recycling.new_array(outputs_[i], to[i]));
    }
    {
        py::gil_scoped_release nogil;
        execute(from, to, nullptr, objects_ ? &objects : nullptr, nanoseconds);
    }
    py::list results(results_.size());
    for (size_t i = 0; i < results_.size(); ++i) {
        const Value &value = values_[static_cast<size_t>(results_[i])];
        if (value.kind == Value::Kind::output)
            results[i] = arrays[static_cast<size_t>(value.at)];
        else {
            py::object &object = objects[static_cast<size_t>(value.at)];
            results[i] = object ? object : py::none();
        }
    }
    return results;
}

py::list Program::run_arrays(const py::list &inputs) { return with_arrays(inputs, nullptr); }

std::vector<double> Program::time(const py::list &inputs, int runs, int warmup) {
    std::vector<std::vector<int64_t>> samples(steps_.size());
    for (int n = 0; n < warmup + runs; ++n) {
        std::vector<int64_t> nanoseconds;
        with_arrays(inputs, &nanoseconds);
        if (n < warmup) continue;
        for (size_t i = 0; i < nanoseconds.size(); ++i)
            samples[i].push_back(nanoseconds[i]);
    }
    std::vector<double> medians;
    for (auto &list : samples) {
        if (list.empty()) {
            medians.push_back(0);
            continue;
        }
        auto middle = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
        std::nth_element(list.begin(), middle, list.end());
        medians.push_back(static_cast<double>(*middle));
    }
    return medians;
}

} // namespace mgx
