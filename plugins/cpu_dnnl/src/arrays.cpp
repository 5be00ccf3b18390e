#include "arrays.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <pybind11/stl.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include "errors.h"
#include "memory.h"

namespace py = pybind11;

namespace mgx {

namespace {

// numpy allocator hooks (NEP 49): arrays created under this handler own recycled blocks and release them to the recycler.
void *hook_malloc(void *, size_t bytes) { return recycled_allocate(bytes); }

void *hook_calloc(void *, size_t count, size_t size) {
    void *block = recycled_allocate(count * size);
    if (block) std::memset(block, 0, count * size);
    return block;
}

void hook_free(void *, void *block, size_t) {
    if (block) recycled_free(block);
}

void *hook_realloc(void *, void *block, size_t bytes) {
    void *moved = recycled_allocate(bytes);
    if (moved && block) {
        std::memcpy(moved, block, std::min(bytes, recycled_size(block)));
        recycled_free(block);
    }
    return moved;
}

PyDataMem_Handler handler {"mgx_recycled", 1, {nullptr, hook_malloc, hook_calloc, hook_realloc, hook_free}};
PyObject *handler_capsule = nullptr;

PyArray_Descr *descr_of(const ArraySpec &spec) { return reinterpret_cast<PyArray_Descr *>(spec.dtype.ptr()); }

PyObject *make(const ArraySpec &spec, void *data, int flags) {
    Py_INCREF(spec.dtype.ptr());
    PyObject *created = PyArray_NewFromDescr(&PyArray_Type, descr_of(spec), static_cast<int>(spec.dims.size()),
            reinterpret_cast<const npy_intp *>(spec.dims.data()),
            spec.strides.empty() ? nullptr : reinterpret_cast<const npy_intp *>(spec.strides.data()), data, flags, nullptr);
    if (!created) throw py::error_already_set();
    return created;
}

std::string described(PyArrayObject *array) {
    std::string text = py::str(py::handle(reinterpret_cast<PyObject *>(PyArray_DESCR(array)))).cast<std::string>() + "[";
    for (int i = 0; i < PyArray_NDIM(array); ++i)
        text += (i ? ", " : "") + std::to_string(PyArray_DIM(array, i));
    return text + "]";
}

std::string described(const ArraySpec &spec) {
    std::string text = py::str(spec.dtype).cast<std::string>() + "[";
    for (size_t i = 0; i < spec.dims.size(); ++i)
        text += (i ? ", " : "") + std::to_string(spec.dims[i]);
    return text + "]";
}

bool same_type(PyArrayObject *array, const ArraySpec &spec) {
    return PyArray_DESCR(array) == descr_of(spec) || PyArray_EquivTypes(PyArray_DESCR(array), descr_of(spec));
}

bool fits(PyArrayObject *array, const ArraySpec &spec) {
    if (static_cast<size_t>(PyArray_NDIM(array)) != spec.dims.size() || !same_type(array, spec)) return false;
    return std::equal(spec.dims.begin(), spec.dims.end(), PyArray_DIMS(array));
}

PyArrayObject *as_array(PyObject *object) { return reinterpret_cast<PyArrayObject *>(object); }

} // namespace

void init_arrays() {
    if (_import_array() < 0) throw py::error_already_set();
    handler_capsule = PyCapsule_New(&handler, "mem_handler", nullptr);
    if (!handler_capsule) throw py::error_already_set();
}

ArraySpec array_spec(
        const py::object &dtype, const std::vector<int64_t> &dims, const std::vector<int64_t> &element_strides) {
    ArraySpec spec;
    PyArray_Descr *descr = nullptr;
    if (!PyArray_DescrConverter(dtype.ptr(), &descr)) throw py::error_already_set();
    spec.dtype = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject *>(descr));
    spec.dims = dims;
    auto size = static_cast<int64_t>(PyDataType_ELSIZE(descr));
    spec.bytes = size;
    for (auto d : dims)
        spec.bytes *= d;
    for (auto s : element_strides)
        spec.strides.push_back(s * size);
    return spec;
}

Recycling::Recycling() : before_(PyDataMem_SetHandler(handler_capsule)) {
    if (!before_) throw py::error_already_set();
}

Recycling::~Recycling() {
    PyObject *ours = PyDataMem_SetHandler(before_);
    Py_XDECREF(ours);
    Py_DECREF(before_);
}

py::object new_array(const ArraySpec &spec, void *&address) { return Recycling().new_array(spec, address); }

py::object Recycling::new_array(const ArraySpec &spec, void *&address) const {
    PyObject *created = make(spec, nullptr, 0);
    address = PyArray_DATA(as_array(created));
    return py::reinterpret_steal<py::object>(created);
}

py::object array_view(const ArraySpec &spec, void *address, const py::object &keep) {
    PyObject *created = make(spec, address, NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED);
    auto view = py::reinterpret_steal<py::object>(created);
    if (keep) {
        Py_INCREF(keep.ptr());
        if (PyArray_SetBaseObject(as_array(created), keep.ptr()) < 0) throw py::error_already_set();
    }
    return view;
}

py::object checked_input(const py::handle &input, const ArraySpec &spec, size_t index, void *&address) {
    if (!PyArray_Check(input.ptr()))
        throw Failure(Fault::parameter,
                "input " + std::to_string(index) + " must be a numpy array " + described(spec) + ", got an object of type "
                        + Py_TYPE(input.ptr())->tp_name);
    auto *array = as_array(input.ptr());
    if (!fits(array, spec))
        throw Failure(Fault::parameter,
                "input " + std::to_string(index) + " must be " + described(spec) + ", got " + described(array));
    auto held = py::reinterpret_borrow<py::object>(input);
    if (!PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array)) {
        PyArray_Descr *descr = descr_of(spec);
        Py_INCREF(descr);
        PyObject *copy = PyArray_FromArray(array, descr, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED);
        if (!copy) throw py::error_already_set();
        held = py::reinterpret_steal<py::object>(copy);
    }
    address = PyArray_DATA(as_array(held.ptr()));
    return held;
}

void store_array(const py::object &value, const ArraySpec &spec, void *address) {
    auto array = py::reinterpret_steal<py::object>(PyArray_FromAny(value.ptr(), nullptr, 0, 0, 0, nullptr));
    if (!array) throw py::error_already_set();
    if (!fits(as_array(array.ptr()), spec))
        throw Failure(Fault::shape, "the result must be " + described(spec) + ", got " + described(as_array(array.ptr())));
    auto target = array_view(spec, address, py::object());
    if (PyArray_CopyInto(as_array(target.ptr()), as_array(array.ptr())) < 0) throw py::error_already_set();
}

py::object detached(const py::object &value, const py::object &keep) {
    PyObject *object = value.ptr();
    if (PyArray_Check(object)) {
        PyObject *at = object;
        while (at && PyArray_Check(at))
            at = PyArray_BASE(as_array(at));
        if (!at || at != keep.ptr()) return value;
        PyObject *copy = PyArray_NewCopy(as_array(object), NPY_CORDER);
        if (!copy) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(copy);
    }
    if (PyTuple_Check(object)) {
        py::tuple items = py::reinterpret_borrow<py::tuple>(value);
        py::tuple result(items.size());
        for (size_t i = 0; i < items.size(); ++i)
            result[i] = detached(py::reinterpret_borrow<py::object>(items[i]), keep);
        return result;
    }
    if (PyList_Check(object)) {
        py::list result;
        for (auto item : py::reinterpret_borrow<py::list>(value))
            result.append(detached(py::reinterpret_borrow<py::object>(item), keep));
        return result;
    }
    return value;
}

void bind_arrays(py::module_ &module) {
    module.def("empty",
            [](const std::vector<int64_t> &dims, const py::object &dtype) {
                void *address = nullptr;
                return new_array(array_spec(dtype, dims), address);
            },
            py::arg("dims"), py::arg("dtype"));
}

} // namespace mgx
