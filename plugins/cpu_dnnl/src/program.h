// A native program: a flat list of steps over one arena, executed without the Python interpreter.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "run_state.h"
#include "steps.h"

namespace mgx {

// A number of a program that depends on the extents of its inputs: an extent of an input or a result, or an argument, the work
// items, the least items of a thread, or an operand's offset of a loop step.
struct Varying {
    enum class Kind : int64_t { input, output, argument, work, grain, offset };
    Kind kind;
    size_t of; // index of the input, result or step
    size_t part; // of the step's loops
    size_t at; // axis, argument or operand
    size_t number; // index of its value in the numbers that `assign` takes
};

class Program {
public:
    explicit Program(std::string name, int64_t arena_bytes);
    ~Program();

    // construction
    int add_value(Value value);
    int add_input(ArraySpec spec, bool object);
    int add_output(ArraySpec spec);
    int add_object();
    void add_step(std::unique_ptr<Step> step);
    void begin_branch(const std::string &name, Ref condition); // then-branch: the steps added next run if the condition is true
    void begin_other(const std::string &name); // else-branch
    void end_branch(const std::string &name);
    void begin_loop(const std::string &name, const Trips &trips); // the steps added next are the loop body
    void end_loop(const std::string &name);
    void add_result(int value); // results in order: outputs or objects
    void vary(std::vector<Varying> places); // numbers that `assign` sets
    void finish(bool touch);

    // accessors
    size_t arena_bytes() const { return static_cast<size_t>(arena_bytes_); }
    size_t scratch_bytes() const { return scratch_bytes_; }
    size_t scratch_offset() const { return (arena_bytes() + alignment - 1) / alignment * alignment; } // after the arena
    size_t input_count() const { return inputs_.size(); }
    size_t output_count() const { return outputs_.size(); }
    const std::vector<Value> &values() const { return values_; }
    const std::vector<std::unique_ptr<Step>> &steps() const { return steps_; }
    const std::string &name() const { return name_; }
    const Value &value(int id) const;
    Ref checked(Ref ref) const;
    pybind11::object keep() const { return keep_; }
    size_t frames() const { return free_.size(); }

    // execution
    void run(const std::vector<size_t> &inputs, const std::vector<size_t> &outputs, size_t arena);
    pybind11::list run_arrays(const pybind11::list &inputs);
    std::vector<double> time(const pybind11::list &inputs, int runs, int warmup);
    void prepare_single();
    void assign(const std::vector<int64_t> &numbers); // sets the numbers for the extents of the next runs; not during a run

    std::vector<pybind11::object *> owned(); // references to Python objects, for the garbage collector
    LoopStep &loop_step(size_t index) const; // ParameterError if that step is not a loop
    void drop_references(); // drops these references; the program cannot run afterwards

private:
    struct Input {
        ArraySpec spec;
        bool object;
        int64_t slot;
    };
    struct OpenBranch {
        JumpStep *last;
        bool other; // in the else-branch
    };
    struct OpenLoop {
        LoopHeaderStep *first;
        size_t at; // index of the LoopHeaderStep
        Ref counter;
        size_t branches; // number of open branches that enclose it
    };
    class Lease;

    pybind11::list with_arrays(const pybind11::list &inputs, std::vector<int64_t> *nanoseconds);
    void execute(const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
            std::vector<pybind11::object> *objects, std::vector<int64_t> *nanoseconds);
    void execute_with(int share, const std::vector<void *> &inputs, const std::vector<void *> &outputs, char *arena,
            std::vector<pybind11::object> *objects, std::vector<int64_t> *nanoseconds);
    void run_steps(Frame &frame, Team team, std::vector<int64_t> *nanoseconds) const;
    JumpStep &add_jump(const std::string &name, std::vector<Ref> condition);
    void require_finished() const;
    void compute_scratch();

    std::string name_;
    int64_t arena_bytes_;
    std::atomic<size_t> scratch_bytes_ {0};
    size_t borrowed_ = 0; // bytes reserved for a run in the process's arena pool
    int planned_threads_ = 1; // largest team size that a primitive is planned for
    int most_threads_ = 1; // threads that scratch memory is reserved for
    bool finished_ = false;
    bool movable_ = true; // a run may be executed by any thread
    std::vector<Value> values_;
    std::vector<Input> inputs_;
    std::vector<ArraySpec> outputs_;
    std::vector<int> results_;
    size_t objects_ = 0;
    std::vector<std::unique_ptr<Step>> steps_;
    std::vector<Varying> varying_;
    std::vector<OpenBranch> branches_; // open, innermost last
    std::vector<OpenLoop> loops_;
    pybind11::object keep_;

    std::mutex frames_mutex_;
    std::vector<std::unique_ptr<Frame>> free_;
    std::once_flag single_;
};

void bind_program(pybind11::module_ &module);

} // namespace mgx
