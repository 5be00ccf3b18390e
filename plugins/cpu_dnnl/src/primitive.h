// A oneDNN primitive with its chosen layouts, and its twin for runs on one thread.
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
dnnl::stream &cpu_stream(); // the calling thread's own

// Creates a primitive descriptor from the descriptors of the arguments, in the order of their slots.
using Maker = std::function<dnnl_status_t(
        dnnl_primitive_desc_t *, const std::vector<MemoryDesc> &, const_dnnl_primitive_attr_t)>;

// Made in two steps: described (layouts and implementation chosen), which the constructor does unless it is deferred, and
// prepared (its code made), which may happen on any thread and happens before the first execution at the latest.
class Primitive {
public:
    // threads: of the team that it is planned for; 0: all that the process has
    Primitive(std::string kind, std::vector<int> slots, std::vector<MemoryDesc> descs, Attributes attributes, Maker make,
            int threads = 0);
    ~Primitive();

    void describe();
    void prepare();

    MemoryDesc desc(int arg) const;
    size_t scratchpad_bytes() const;
    std::string implementation() const { return pd_.impl_info_str(); }
    const std::string &kind() const { return kind_; }
    int threads() const { return threads_; } // the team it was planned for
    bool waits_inside() const { return waits_inside_; } // its parts wait for each other
    const std::vector<int> &slots() const { return slots_; }
    const std::vector<int> &post_op_args() const { return attributes_.post_op_args; }

    // The same computation with the same layouts planned for one thread; null if oneDNN has none.
    std::shared_ptr<Primitive> single();

    void execute(const std::vector<dnnl_exec_arg_t> &args) const { // prepared
        check(dnnl_primitive_execute(
                      primitive_.get(), cpu_stream().get(), static_cast<int>(args.size()), args.data()),
                kind_);
    }
    // Bind addresses and run once, with a scratchpad of its own.
    void execute_at(const std::vector<std::pair<int, size_t>> &addresses);

    pybind11::object recipe; // builder, arguments and keywords that it was made with; none for twins and inner ones

private:
    MemoryDesc along_mask(int arg, int mask) const; // of scales or zero points: one number an index of the masked axes

    std::string kind_;
    std::vector<int> slots_;
    std::vector<MemoryDesc> descs_; // as asked for, until it is described
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
void keep_recipes(pybind11::module_ &module); // of what the builders make; after they are bound

} // namespace mgx
