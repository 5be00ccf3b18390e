// Steps of a native program: oneDNN primitives, loops, jumps and host functions.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/pybind11.h>

#include "arrays.h"
#include "run_state.h"
#include "primitive.h"
#include "team.h"

namespace mgx {

struct Team {
    int threads;
    bool single; // execute the primitives planned for one thread
};

class Step {
public:
    explicit Step(std::string name) : name(std::move(name)) {}
    virtual ~Step() = default;
    virtual const char *kind() const = 0;
    virtual void build(Frame &frame, size_t index) const = 0;
    virtual void run(Frame &frame, size_t index, Team team) const = 0;
    virtual size_t scratch_bytes(int /* threads */) const { return 0; }
    virtual int planned_threads() const { return 1; }
    virtual void prepare_single() {} // creates the variant for one thread
    virtual void build_single(Frame &, size_t) const {}
    virtual void prepare() {} // expensive initialization; may be called on any thread
    virtual size_t next(Frame &, size_t index) const { return index + 1; } // index of the step to execute next
    virtual bool needs_caller() const { return false; } // true if the run must stay on the calling thread
    virtual void owned(std::vector<pybind11::object *> &) {} // appends references to Python objects, for the garbage collector

    std::string name;
    mutable StepTimes times;
};

struct PrimitiveArg {
    int arg;
    Ref ref;
    MemoryDesc desc;
};

class PrimitiveStep : public Step {
public:
    PrimitiveStep(std::string name, std::shared_ptr<Primitive> primitive, std::vector<PrimitiveArg> args)
        : Step(std::move(name)), primitive_(std::move(primitive)), args_(std::move(args)) {}
    const char *kind() const override { return "primitive"; }
    void build(Frame &frame, size_t index) const override;
    void run(Frame &frame, size_t index, Team team) const override;
    size_t scratch_bytes(int) const override;
    int planned_threads() const override { return primitive_->threads(); }
    void prepare_single() override;
    void prepare() override;
    void build_single(Frame &frame, size_t index) const override;

private:
    std::shared_ptr<Primitive> primitive_;
    std::shared_ptr<Primitive> single_;
    std::vector<PrimitiveArg> args_;
};

// Base of steps that access their values by address.
class PointerStep : public Step {
public:
    PointerStep(std::string name, std::vector<Ref> refs) : Step(std::move(name)), refs_(std::move(refs)) {}
    void build(Frame &frame, size_t index) const override;
    Ref &ref(size_t operand) { return refs_.at(operand); } // not during a run

protected:
    std::vector<Ref> refs_;
};

// Calls a loop function on the team.  `deferred` (interpreted loops only) is the Python object that a compiled replacement is
// built from.  replace() may be called at any time, even during runs: a run uses the code that it loads when it reaches the step.
// One parallel loop: a function, its arguments, the number of work items, and the least of them for a thread.
struct Loop {
    LoopFunction function;
    std::vector<int64_t> args;
    int64_t work;
    int64_t grain;
};

class LoopStep : public PointerStep {
public:
    // loops: run one after the other, each on all threads; owner: of their code
    LoopStep(std::string name, std::vector<Loop> loops, pybind11::object owner, std::vector<Ref> refs, int64_t scratch,
            pybind11::object deferred)
        : PointerStep(std::move(name), std::move(refs)), owner_(std::move(owner)), deferred_(std::move(deferred)),
          scratch_((scratch + 63) / 64 * 64) {
        replace(std::move(loops));
    }
    const char *kind() const override { return "loop"; }
    void run(Frame &frame, size_t index, Team team) const override;
    size_t scratch_bytes(int threads) const override { return static_cast<size_t>(scratch_ * threads); }
    void owned(std::vector<pybind11::object *> &list) override {
        list.push_back(&owner_);
        list.push_back(&deferred_);
    }
    pybind11::object deferred() const { return deferred_; }
    bool fits(int64_t scratch) const { return scratch <= scratch_; }
    Loop &loop(size_t part) { return versions_.back()->at(part); } // not during a run
    void replace(std::vector<Loop> loops) {
        versions_.push_back(std::make_unique<std::vector<Loop>>(std::move(loops)));
        loops_.store(versions_.back().get(), std::memory_order_release);
    }

private:
    std::vector<std::unique_ptr<std::vector<Loop>>> versions_; // never freed before the step: a run may still execute an earlier one
    std::atomic<const std::vector<Loop> *> loops_ {nullptr};
    pybind11::object owner_;
    pybind11::object deferred_;
    int64_t scratch_;
};

// Jumps to `target` if the condition, a byte, is false; unconditionally if there is no condition.
class JumpStep : public PointerStep {
public:
    JumpStep(std::string name, std::vector<Ref> condition) : PointerStep(std::move(name), std::move(condition)) {}
    const char *kind() const override { return "jump"; }
    void run(Frame &, size_t, Team) const override {}
    size_t next(Frame &frame, size_t index) const override;

    size_t target = 0;
};

// Trip count of a loop of steps, and its limits.
struct Trips {
    Ref counter; // int64, 0 before the first iteration
    std::vector<Ref> bound; // int64 trip count; at most one element
    std::vector<Ref> going; // loop condition, a byte; at most one element
    bool sure; // no condition can end the loop early: a bound above `most` fails before the first iteration
    int64_t most; // limit_max_iterations
};

// Loop header: jumps to `target` when the loop ends.
class LoopHeaderStep : public PointerStep {
public:
    LoopHeaderStep(std::string name, const Trips &trips);
    const char *kind() const override { return "trip"; }
    void run(Frame &, size_t, Team) const override {}
    size_t next(Frame &frame, size_t index) const override;

    size_t target = 0;

private:
    bool bounded_;
    bool conditional_;
    bool sure_;
    int64_t most_;
};

// Loop latch: increments the counter and jumps back to `target`, the header.
class LoopLatchStep : public PointerStep {
public:
    LoopLatchStep(std::string name, Ref counter, size_t target) : PointerStep(std::move(name), {counter}), target_(target) {}
    const char *kind() const override { return "again"; }
    void run(Frame &frame, size_t index, Team) const override { ++*static_cast<int64_t *>(frame.pointers(index)[0]); }
    size_t next(Frame &, size_t) const override { return target_; }

private:
    size_t target_;
};

// Operand of a host step: an array view of memory, or a Python object in a slot of the frame.
struct HostOperand {
    Ref ref;
    bool object;
    ArraySpec spec;
};

class HostStep : public Step {
public:
    HostStep(std::string name, pybind11::object function, std::vector<HostOperand> inputs,
            std::vector<HostOperand> outputs, bool into, pybind11::object keep)
        : Step(std::move(name)), function_(std::move(function)), inputs_(std::move(inputs)),
          outputs_(std::move(outputs)), into_(into), keep_(std::move(keep)) {}
    const char *kind() const override { return "host"; }
    bool needs_caller() const override { return true; } // Python code may depend on its thread
    void build(Frame &frame, size_t index) const override;
    void run(Frame &frame, size_t index, Team team) const override;
    void owned(std::vector<pybind11::object *> &list) override { list.push_back(&function_); }

private:
    pybind11::object function_;
    std::vector<HostOperand> inputs_;
    std::vector<HostOperand> outputs_;
    bool into_;
    pybind11::object keep_;
};

} // namespace mgx
