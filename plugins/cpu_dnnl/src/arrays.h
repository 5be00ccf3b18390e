// numpy arrays: results that own recycled memory, and views of a run's memory for host steps.
#pragma once

#include <cstdint>
#include <vector>

#include <pybind11/pybind11.h>

namespace mgx {

// Element type, extents and strides of an input or result of a program.
struct ArraySpec {
    pybind11::object dtype; // numpy.dtype
    std::vector<int64_t> dims;
    std::vector<int64_t> strides; // in bytes; empty: row-major
    int64_t bytes = 0;
};

ArraySpec array_spec(const pybind11::object &dtype, const std::vector<int64_t> &dims,
        const std::vector<int64_t> &element_strides = {});

void init_arrays();

// Creates an array that owns memory from the recycler.
pybind11::object new_array(const ArraySpec &spec, void *&address);

// RAII scope in which new arrays are allocated from the recycler; sharing one scope avoids switching numpy's allocator per array.
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

// Creates an array that views memory of a run; `keep` becomes its base object.
pybind11::object array_view(const ArraySpec &spec, void *address, const pybind11::object &keep);
// Returns the array itself if it is row-major, aligned and in native byte order, else such a copy.  ParameterError if its
// dtype or extents differ from the specification.
pybind11::object checked_input(const pybind11::handle &input, const ArraySpec &spec, size_t index, void *&address);
// Copies a result of a host step into a run's memory; ShapeError if its dtype or extents differ.
void store_array(const pybind11::object &value, const ArraySpec &spec, void *address);
// Returns the value, with arrays that view a run's memory (whose base chain ends in `keep`) replaced by copies; recurses into
// tuples and lists.
pybind11::object detached(const pybind11::object &value, const pybind11::object &keep);

void bind_arrays(pybind11::module_ &module);

} // namespace mgx
