// Construction of native programs: values, steps, branches and loops.
#include "errors.h"
#include "program.h"

namespace py = pybind11;

namespace mgx {

Program::Program(std::string name, int64_t arena_bytes)
    : name_(std::move(name)), arena_bytes_(arena_bytes), keep_(py::capsule(this, "mgx memory of a run")) {}

const Value &Program::value(int id) const {
    if (id < 0 || static_cast<size_t>(id) >= values_.size())
        throw Failure(Fault::parameter, "there is no value " + std::to_string(id));
    return values_[static_cast<size_t>(id)];
}

Ref Program::checked(Ref ref) const {
    if (value(ref.value).kind == Value::Kind::object)
        throw Failure(Fault::parameter, "value " + std::to_string(ref.value) + " is a Python object, not memory");
    return ref;
}

int Program::add_value(Value value) {
    if (value.kind == Value::Kind::arena && (value.at < 0 || value.at + value.bytes > arena_bytes_))
        throw Failure(Fault::parameter, "a value of " + std::to_string(value.bytes) + " bytes at offset "
                + std::to_string(value.at) + " is outside the arena of " + std::to_string(arena_bytes_));
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
}

int Program::add_input(ArraySpec spec, bool object) {
    Value value {object ? Value::Kind::object : Value::Kind::input, static_cast<int64_t>(inputs_.size())};
    value.bytes = spec.bytes;
    int64_t slot = -1;
    if (object) value.at = slot = static_cast<int64_t>(objects_++);
    inputs_.push_back({std::move(spec), object, slot});
    return add_value(std::move(value));
}

int Program::add_output(ArraySpec spec) {
    Value value {Value::Kind::output, static_cast<int64_t>(outputs_.size())};
    value.bytes = spec.bytes;
    outputs_.push_back(std::move(spec));
    return add_value(std::move(value));
}

int Program::add_object() { return add_value({Value::Kind::object, static_cast<int64_t>(objects_++)}); }

void Program::add_step(std::unique_ptr<Step> step) {
    if (finished_) throw Failure(Fault::parameter, "the program is finished: no step can be added");
    steps_.push_back(std::move(step));
}

JumpStep &Program::add_jump(const std::string &name, std::vector<Ref> condition) {
    auto made = std::make_unique<JumpStep>(name, std::move(condition));
    JumpStep &jump = *made;
    add_step(std::move(made));
    jump.target = steps_.size();
    return jump;
}

void Program::begin_branch(const std::string &name, Ref condition) {
    branches_.push_back({&add_jump(name, {condition}), false});
}

void Program::begin_other(const std::string &name) {
    if (branches_.empty() || branches_.back().other)
        throw Failure(Fault::parameter, name + ": no branch has begun, or its other side already has: call begin_branch first");
    JumpStep &jump = add_jump(name, {});
    branches_.back().last->target = steps_.size();
    branches_.back() = {&jump, true};
}

void Program::end_branch(const std::string &name) {
    if (branches_.empty() || !branches_.back().other)
        throw Failure(Fault::parameter, name + ": no branch with both sides is open: call begin_branch and begin_other first");
    JumpStep *last = branches_.back().last;
    branches_.pop_back();
    add_jump(name, {});
    last->target = steps_.size();
}

void Program::begin_loop(const std::string &name, const Trips &trips) {
    auto made = std::make_unique<LoopHeaderStep>(name, trips);
    loops_.push_back({made.get(), steps_.size(), trips.counter, branches_.size()});
    add_step(std::move(made));
}

void Program::end_loop(const std::string &name) {
    if (loops_.empty() || loops_.back().branches != branches_.size())
        throw Failure(Fault::parameter, name + ": no loop is open, or a branch in it has not ended");
    const OpenLoop loop = loops_.back();
    loops_.pop_back();
    add_step(std::make_unique<LoopLatchStep>(name, loop.counter, loop.at));
    loop.first->target = steps_.size();
}

void Program::add_result(int id) {
    auto kind = value(id).kind;
    if (kind != Value::Kind::output && kind != Value::Kind::object)
        throw Failure(Fault::parameter, "value " + std::to_string(id) + " cannot be a result: results are outputs or objects");
    results_.push_back(id);
}

LoopStep &Program::loop_step(size_t index) const {
    auto loop = index < steps_.size() ? dynamic_cast<LoopStep *>(steps_[index].get()) : nullptr;
    if (!loop) throw Failure(Fault::parameter, "step " + std::to_string(index) + " is not a loop");
    return *loop;
}

void Program::vary(std::vector<Varying> places) {
    for (const Varying &v : places)
        if (v.kind != Varying::Kind::input && v.kind != Varying::Kind::output) loop_step(v.of);
    varying_ = std::move(places);
}

} // namespace mgx
