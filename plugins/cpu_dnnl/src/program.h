// A native program: a flat list of steps over one arena, executed without Python.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "run_state.h"
#include "steps.h"

namespace mgx {

class Program {
public:
    explicit Program(std::string name, int64_t arena_bytes);
    ~Program();

    // building
    int add_value(Value value);
    int add_input(ArraySpec spec, bool object);
    int add_output(ArraySpec spec);
    int add_object();
    void add_step(std::unique_ptr<Step> step);
    void begin_branch(const std::string &name, Ref condition); // steps of a run in which the condition holds follow
    void begin_other(const std::string &name); // those of any other run follow
    void end_branch(const std::string &name);
    void begin_loop(const std::string &name, const Trips &trips); // the steps of a trip follow
    void end_loop(const std::string &name);
    void add_result(int value); // results in order: outputs or objects
    void finish(bool touch);

    // looking
    size_t arena_bytes() const { return static_cast<size_t>(arena_bytes_); }
    size_t scratch_bytes() const { return scratch_bytes_; }
    size_t scratch_offset() const { return (arena_bytes() + alignment - 1) / alignment * alignment; } // behind the arena
    size_t input_count() const { return inputs_.size(); }
    size_t output_count() const { return outputs_.size(); }
    const std::vector<Value> &values() const { return values_; }
    const std::vector<std::unique_ptr<Step>> &steps() const { return steps_; }
    const std::string &name() const { return name_; }
    const Value &value(int id) const;
    Ref checked(Ref ref) const;
    pybind11::object keep() const { return keep_; }
    size_t frames() const { return free_.size(); }

    // running
    void run(const std::vector<size_t> &inputs, const std::vector<size_t> &outputs, size_t arena);
    pybind11::list run_arrays(const pybind11::list &inputs);
    std::vector<double> time(const pybind11::list &inputs, int runs, int warmup);
    void prepare_single();

    std::vector<pybind11::object *> owned(); // Python objects kept, for the garbage collector
    void abandon(); // called once nothing else refers to the program

private:
    struct Input {
        ArraySpec spec;
        bool object;
        int64_t slot;
    };
    struct OpenBranch {
        JumpStep *last;
        bool other; // its second side has begun
    };
    struct OpenLoop {
        TripStep *first;
        size_t at; // where it is
        Ref counter;
        size_t branches; // begun before it
    };
    class Lease;

    pybind11::list with_arrays(const pybind11::list &inputs, std::vector<int64_t> *nanoseconds);
    void execute(const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
            std::vector<pybind11::object> *objects, std::vector<int64_t> *nanoseconds);
    void execute_with(int share, const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
            std::vector<pybind11::object> *objects, std::vector<int64_t> *nanoseconds);
    void run_steps(Frame &frame, Team team, std::vector<int64_t> *nanoseconds) const;
    JumpStep &add_jump(const std::string &name, std::vector<Ref> condition);
    void ready() const;
    void compute_scratch();

    std::string name_;
    int64_t arena_bytes_;
    std::atomic<size_t> scratch_bytes_ {0};
    size_t borrowed_ = 0; // at most, in a run
    int planned_threads_ = 1; // by the primitives
    int most_threads_ = 1; // that scratch memory is there for
    bool finished_ = false;
    bool movable_ = true; // any thread can do a run
    std::vector<Value> values_;
    std::vector<Input> inputs_;
    std::vector<ArraySpec> outputs_;
    std::vector<int> results_;
    size_t objects_ = 0;
    std::vector<std::unique_ptr<Step>> steps_;
    std::vector<OpenBranch> branches_; // begun and not ended
    std::vector<OpenLoop> loops_;
    pybind11::object keep_;

    std::mutex frames_mutex_;
    std::vector<std::unique_ptr<Frame>> free_;
    std::once_flag single_;
};

void bind_program(pybind11::module_ &module);

} // namespace mgx
