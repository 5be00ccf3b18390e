#include "frame.h"

#include <string>

#include "errors.h"
#include "primitive.h"
#include "program.h"

namespace py = pybind11;

namespace mgx {

Frame::Frame(const Program &program, char *external_arena)
    : program_(program)
    , own_arena_(external_arena ? 0 : program.arena_bytes())
    , scratch_(program.scratch_bytes())
    , arena_(external_arena ? external_arena : own_arena_.data())
    , inputs_(program.input_count())
    , outputs_(program.output_count())
    , pointers_(program.steps().size())
    , full_(program.steps().size())
    , single_(program.steps().size()) {
    own_arena_.touch();
    scratch_.touch();
    for (size_t i = 0; i < program.steps().size(); ++i)
        program.steps()[i]->build(*this, i);
}

Frame::~Frame() {
    for (auto memory : memories_)
        dnnl_memory_destroy(memory);
    if (!objects.empty()) {
        py::gil_scoped_acquire gil;
        objects.clear();
    }
}

void Frame::follow(Ref ref, Patch patch, void *&address) {
    const Value &value = program_.values()[static_cast<size_t>(ref.value)];
    address = nullptr;
    switch (value.kind) {
        case Value::Kind::arena: address = arena_ + value.at + ref.offset; break;
        case Value::Kind::literal: address = value.address + ref.offset; break;
        case Value::Kind::input: inputs_[static_cast<size_t>(value.at)].patches.push_back(patch); break;
        case Value::Kind::output: outputs_[static_cast<size_t>(value.at)].patches.push_back(patch); break;
        case Value::Kind::object: throw Failure(Fault::parameter, "an object value has no memory for a native step");
    }
}

void Frame::attach(void **slot, Ref ref) { follow(ref, {slot, nullptr, ref.offset}, *slot); }

dnnl_memory_t Frame::memory(const_dnnl_memory_desc_t desc, Ref ref) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, desc, cpu_engine().get(), DNNL_MEMORY_NONE), "memory");
    memories_.push_back(made);
    void *address = nullptr;
    follow(ref, {nullptr, made, ref.offset}, address);
    if (address) check(dnnl_memory_set_data_handle(made, address), "memory");
    return made;
}

dnnl_memory_t Frame::scratchpad(const_dnnl_memory_desc_t desc) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, desc, cpu_engine().get(), scratch_.data()), "scratchpad");
    memories_.push_back(made);
    return made;
}

void Frame::bind(std::vector<Bound> &list, const std::vector<void *> &addresses) {
    for (size_t i = 0; i < list.size(); ++i) {
        Bound &bound = list[i];
        if (bound.address == addresses[i]) continue;
        bound.address = addresses[i];
        for (auto &patch : bound.patches) {
            void *address = static_cast<char *>(addresses[i]) + patch.offset;
            if (patch.slot)
                *patch.slot = address;
            else
                check(dnnl_memory_set_data_handle(patch.memory, address), "memory");
        }
    }
}

void Frame::fail(int64_t code, int64_t value) {
    int64_t none = 0;
    if (error_code_.compare_exchange_strong(none, code)) error_value_ = value;
}

void Frame::check_failure(const std::string &step) {
    int64_t code = error_code_.load(std::memory_order_relaxed);
    if (!code) return;
    error_code_.store(0);
    std::string value = std::to_string(error_value_);
    if (code == 1) throw Failure(Fault::shape, step + ": index " + value + " is out of bounds");
    if (code == 2) throw Failure(Fault::shape, step + ": division by zero");
    if (code == 3) throw Failure(Fault::shape, step + ": a number given while running lies outside its range");
    if (code == 4) throw Failure(Fault::parameter, step + ": region " + value + " is not finite");
    throw Failure(Fault::device, step + ": failed with code " + std::to_string(code) + ", value " + value);
}

} // namespace mgx
