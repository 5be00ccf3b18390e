// numpy arrays: results that own recycled memory, and views on a run's memory for host steps.
#pragma once

#include <cstdint>
#include <vector>

#include <pybind11/pybind11.h>

namespace mgx {

// Type and dims of an array that enters or leaves a program.
struct ArraySpec {
    pybind11::object dtype; // numpy.dtype
    std::vector<int64_t> dims;
    std::vector<int64_t> strides; // in bytes; empty: row-major
    int64_t bytes = 0;
};

ArraySpec array_spec(const pybind11::object &dtype, const std::vector<int64_t> &dims,
        const std::vector<int64_t> &element_strides = {});

void init_arrays();

// A new array that owns its memory, taken from the recycler.
pybind11::object new_array(const ArraySpec &spec, void *&address);

// Arrays made while it lives take their memory from the recycler: one for several saves numpy's change of its allocator.
class Recycling {
public:
    Recycling();
    ~Recycling();
    Recycling(const Recycling &) = delete;
    Recycling &operator=(const Recycling &) = delete;

    pybind11::object new_array(const ArraySpec &spec, void *&address) const;

private:
    PyObject *before_;
};

// An array on memory that a run owns; `keep` is what its base chain ends in.
pybind11::object array_view(const ArraySpec &spec, void *address, const pybind11::object &keep);
// The array itself if it has this dtype and these dims and is row-major, else a row-major copy; ParameterError if it
// does not fit.
pybind11::object checked_input(const pybind11::handle &given, const ArraySpec &spec, size_t index, void *&address);
// Copy a result of a host step into a run's memory; ShapeError if it does not fit.
void store_array(const pybind11::object &value, const ArraySpec &spec, void *address);
// The value, or a copy of it where it looks at memory of a run (its base chain ends in `keep`); nested.
pybind11::object detached(const pybind11::object &value, const pybind11::object &keep);

void bind_arrays(pybind11::module_ &module);

} // namespace mgx
