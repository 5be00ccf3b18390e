#include "run_state.h"

#include <string>

#include "errors.h"
#include "primitive.h"
#include "program.h"

namespace py = pybind11;

namespace mgx {

Frame::Frame(const Program &program)
    : program_(program)
    , inputs_(program.input_count())
    , outputs_(program.output_count())
    , pointers_(program.steps().size())
    , full_(program.steps().size())
    , single_(program.steps().size()) {
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

void Frame::add_patch(Ref ref, Patch patch, void *&address) {
    const Value &value = program_.values()[static_cast<size_t>(ref.value)];
    address = nullptr;
    switch (value.kind) {
        case Value::Kind::arena:
            patch.offset = value.at + ref.offset;
            arena_.patches.push_back(patch);
            if (arena_.address) address = static_cast<char *>(arena_.address) + patch.offset;
            break;
        case Value::Kind::literal: address = value.address + ref.offset; break;
        case Value::Kind::input: inputs_[static_cast<size_t>(value.at)].patches.push_back(patch); break;
        case Value::Kind::output: outputs_[static_cast<size_t>(value.at)].patches.push_back(patch); break;
        case Value::Kind::object:
            throw Failure(Fault::parameter, "value " + std::to_string(ref.value) + " is a Python object: native steps need memory");
    }
}

void Frame::attach(void **slot, Ref ref) { add_patch(ref, {slot, nullptr, ref.offset}, *slot); }

dnnl_memory_t Frame::memory(const_dnnl_memory_desc_t desc, Ref ref) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, desc, cpu_engine().get(), DNNL_MEMORY_NONE), "memory");
    memories_.push_back(made);
    void *address = nullptr;
    add_patch(ref, {nullptr, made, ref.offset}, address);
    if (address) check(dnnl_memory_set_data_handle(made, address), "memory");
    return made;
}

dnnl_memory_t Frame::scratchpad(const_dnnl_memory_desc_t desc) {
    dnnl_memory_t made = nullptr;
    check(dnnl_memory_create(&made, desc, cpu_engine().get(), DNNL_MEMORY_NONE), "scratchpad");
    memories_.push_back(made);
    scratch_.patches.push_back({nullptr, made, 0});
    if (scratch_.address) check(dnnl_memory_set_data_handle(made, scratch_.address), "memory");
    return made;
}

void Frame::bind(Bound &bound, void *address) {
    if (bound.address == address) return;
    bound.address = address;
    for (auto &patch : bound.patches) {
        void *at = static_cast<char *>(address) + patch.offset;
        if (patch.slot)
            *patch.slot = at;
        else
            check(dnnl_memory_set_data_handle(patch.memory, at), "memory");
    }
}

void Frame::bind(std::vector<Bound> &list, const std::vector<void *> &addresses) {
    for (size_t i = 0; i < list.size(); ++i)
        bind(list[i], addresses[i]);
}

void Frame::bind_memory(char *arena, char *scratch) {
    bind(arena_, arena);
    bind(scratch_, scratch);
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
    if (code == 3) throw Failure(Fault::shape, step + ": a number computed at run time is outside its range");
    if (code == 4) throw Failure(Fault::parameter, step + ": region " + value + " is not finite");
    if (code == 5) throw Failure(Fault::parameter, step + ": a matrix to be inverted is singular");
    throw Failure(Fault::device, step + ": failed with code " + std::to_string(code) + ", value " + value);
}

} // namespace mgx
