// Value locations of a program, and the memory of one run with every step's addresses filled in.
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
    int64_t at; // offset, index or slot
    char *address = nullptr; // of a literal
    int64_t bytes = 0;
    pybind11::object owner; // keeps a literal alive
};

struct Ref {
    int value;
    int64_t offset;
};

class Program;

// The addresses of one run, filled in for every step.  Built once and reused: what changes from run to run is put in again.
class Frame {
public:
    explicit Frame(const Program &program);
    ~Frame();
    Frame(const Frame &) = delete;
    Frame &operator=(const Frame &) = delete;

    void bind_inputs(const std::vector<void *> &addresses) { bind(inputs_, addresses); }
    void bind_outputs(const std::vector<void *> &addresses) { bind(outputs_, addresses); }
    void bind_memory(char *arena, char *scratch);

    // For steps while they are built: a slot that follows the value, and a oneDNN memory that does.
    void attach(void **slot, Ref ref);
    dnnl_memory_t memory(const_dnnl_memory_desc_t desc, Ref ref);
    dnnl_memory_t scratchpad(const_dnnl_memory_desc_t desc);

    char *scratch() const { return static_cast<char *>(scratch_.address); }
    void **pointers(size_t step) { return pointers_[step].data(); }
    std::vector<dnnl_exec_arg_t> &args(size_t step, bool single) { return single ? single_[step] : full_[step]; }
    bool has_single = false;

    // Errors of compiled loops: the first one of a run is kept.
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
    void follow(Ref ref, Patch patch, void *&address);

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
