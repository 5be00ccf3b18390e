// Locations of a program's values, and frames: the addresses that the steps of one run use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#include <pybind11/pybind11.h>

#include "arrays.h"
#include "loops.h"
#include "memory.h"

namespace mgx {

struct Value {
    enum class Kind { arena, literal, input, output, object };
    Kind kind;
    int64_t at; // offset in the arena, index of the input or output, or object slot
    char *address = nullptr; // literals only
    int64_t bytes = 0;
    pybind11::object owner; // keeps the memory of a literal alive
};

struct Ref {
    int value;
    int64_t offset;
};

class Program;

// Argument addresses of all steps for one run.  Frames are built once and reused: binding inputs, outputs or memory patches only
// the addresses that have changed.  A frame is used by one run at a time.
class Frame {
public:
    explicit Frame(const Program &program);
    ~Frame();
    Frame(const Frame &) = delete;
    Frame &operator=(const Frame &) = delete;

    void bind_inputs(const std::vector<void *> &addresses) { bind(inputs_, addresses); }
    void bind_outputs(const std::vector<void *> &addresses) { bind(outputs_, addresses); }
    void bind_memory(char *arena, char *scratch);

    // Called by Step::build: register a slot, or create a oneDNN memory, that is patched when the value's address changes.
    void attach(void **slot, Ref ref);
    dnnl_memory_t memory(const_dnnl_memory_desc_t desc, Ref ref);
    dnnl_memory_t scratchpad(const_dnnl_memory_desc_t desc);

    char *scratch() const { return static_cast<char *>(scratch_.address); }
    void **pointers(size_t step) { return pointers_[step].data(); }
    std::vector<dnnl_exec_arg_t> &args(size_t step, bool single) { return single ? single_[step] : full_[step]; }
    bool has_single = false;

    // Errors of compiled loops: records the first one of a run; throws it.
    void fail(int64_t code, int64_t value);
    void check_failure(const std::string &step);

    std::vector<pybind11::object> objects; // values that are Python objects
    std::vector<std::vector<void *>> &all_pointers() { return pointers_; }
    std::vector<std::vector<dnnl_exec_arg_t>> &all_args(bool single) { return single ? single_ : full_; }

private:
    struct Patch {
        void **slot;
        dnnl_memory_t memory;
        int64_t offset;
    };
    struct Bound {
        void *address = nullptr;
        std::vector<Patch> patches;
    };

    static void bind(Bound &bound, void *address);
    static void bind(std::vector<Bound> &list, const std::vector<void *> &addresses);
    void add_patch(Ref ref, Patch patch, void *&address);

    const Program &program_;
    Bound arena_;
    Bound scratch_;
    std::vector<Bound> inputs_;
    std::vector<Bound> outputs_;
    std::vector<std::vector<void *>> pointers_;
    std::vector<std::vector<dnnl_exec_arg_t>> full_;
    std::vector<std::vector<dnnl_exec_arg_t>> single_;
    std::vector<dnnl_memory_t> memories_;
    std::atomic<int64_t> error_code_ {0};
    int64_t error_value_ = 0;
};

} // namespace mgx
