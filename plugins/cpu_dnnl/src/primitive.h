// A oneDNN primitive with the layouts that oneDNN chose, and its variant for runs on one thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>
#include <pybind11/pybind11.h>

#include "attributes.h"
#include "errors.h"
#include "memory_desc.h"

namespace mgx {

dnnl::engine &cpu_engine();
dnnl::stream &cpu_stream(); // thread-local

// Creates a primitive descriptor from the memory descriptors of the arguments, in the order of their slots.
using Maker = std::function<dnnl_status_t(
        dnnl_primitive_desc_t *, const std::vector<MemoryDesc> &, const_dnnl_primitive_attr_t)>;

// Created in two steps.  describe() selects layouts and implementation; the constructor calls it unless the attributes defer it.
// prepare() generates code; it may run on any thread and must have returned before the first execution.
class Primitive {
public:
    // threads: team size that the primitive is planned for; 0: all threads of the process
    Primitive(std::string kind, std::vector<int> slots, std::vector<MemoryDesc> descs, Attributes attributes, Maker make,
            int threads = 0);
    ~Primitive();

    void describe();
    void prepare();

    MemoryDesc desc(int arg) const;
    size_t scratchpad_bytes() const;
    std::string implementation() const { return pd_.impl_info_str(); }
    const std::string &kind() const { return kind_; }
    int threads() const { return threads_; } // team size that it was planned for
    bool waits_inside() const { return waits_inside_; } // true if its threads synchronize with barriers
    // true if it waits for as many threads as it was planned for, however many there are
    bool needs_whole_team() const { return kind_ == "convolution_weights" && threads_ > 1; }
    const std::vector<int> &slots() const { return slots_; }
    const std::vector<int> &post_op_args() const { return attributes_.post_op_args; }

    // Returns the same computation on the same layouts planned for one thread; null if oneDNN has no implementation of it.
    std::shared_ptr<Primitive> single();

    void execute(const std::vector<dnnl_exec_arg_t> &args) const { // requires prepare()
        check(dnnl_primitive_execute(
                      primitive_.get(), cpu_stream().get(), static_cast<int>(args.size()), args.data()),
                kind_);
    }
    // Executes once on the given addresses, with a temporary scratchpad.
    void execute_at(const std::vector<std::pair<int, size_t>> &addresses);

    pybind11::object recipe; // (builder, args, keywords) that Python created it with; null for primitives created in C++

private:
    MemoryDesc masked_desc(int arg, int mask) const; // of scales or zero points: one per index of the masked axes

    std::string kind_;
    std::vector<int> slots_;
    std::vector<MemoryDesc> descs_; // requested layouts; cleared by describe()
    Attributes attributes_;
    Maker make_;
    int threads_;
    bool waits_inside_ = false;
    dnnl::primitive_desc_base pd_;
    dnnl::primitive primitive_;
    std::once_flag described_;
    std::once_flag prepared_;
    std::once_flag once_;
    std::shared_ptr<Primitive> single_;
    bool is_single_ = false;
};

void bind_primitive(pybind11::module_ &module);
void bind_builders(pybind11::module_ &module);
void bind_recurrent(pybind11::module_ &module);
void record_recipes(pybind11::module_ &module); // makes the bound builders record recipes; call after binding them

} // namespace mgx
