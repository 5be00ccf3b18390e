// The Python module `_native`: bindings, and translation of C++ exceptions to mgx errors.
#include <pybind11/pybind11.h>

#include "arrays.h"
#include "errors.h"
#include "run_state.h"
#include "object_loader.h"
#include "machine.h"
#include "memory.h"
#include "memory_desc.h"
#include "named_loops.h"
#include "openmp.h"
#include "primitive.h"
#include "program.h"
#include "sources.h"
#include "team.h"
#include "threads.h"
#include "winograd.h"

namespace py = pybind11;

namespace {

void raise(mgx::Fault fault, const char *message) {
    const char *names[] = {"DeviceError", "UnsupportedError", "ParameterError", "ShapeError"};
    py::object type = py::module_::import("mgx_core.errors").attr(names[static_cast<int>(fault)]);
    PyErr_SetObject(type.ptr(), type(message).ptr());
}

void translate(std::exception_ptr exception) {
    try {
        if (exception) std::rethrow_exception(exception);
    } catch (const mgx::Failure &failure) {
        raise(failure.fault, failure.what());
    } catch (const dnnl::error &error) {
        raise(error.status == dnnl_unimplemented ? mgx::Fault::unsupported : mgx::Fault::device,
                ("oneDNN: " + mgx::status_text(error.status) + ": " + error.what()).c_str());
    }
}

} // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "oneDNN primitives and the executor of native programs.";
    py::register_local_exception_translator(translate);
    mgx::init_arrays();
    mgx::handle_forks();
    mgx::redirect_onednn();
    mgx::bind_memory_desc(module);
    mgx::bind_primitive(module);
    mgx::bind_builders(module);
    mgx::bind_recurrent(module);
    mgx::record_recipes(module);
    mgx::bind_image(module);
    mgx::bind_memory(module);
    mgx::bind_arrays(module);
    mgx::bind_program(module);
    mgx::bind_machine(module);
    mgx::bind_winograd(module);
    mgx::bind_named_loops(module);
    module.def("available_threads", &mgx::available_threads);
    module.def("thread_count", &mgx::thread_count);
    module.def("set_threads", &mgx::set_thread_count, py::arg("count"));
    module.def("team_counts", [] {
        const mgx::TeamCounts counts = mgx::team_counts();
        return py::make_tuple(counts.absences, counts.alone, counts.watches);
    });
    module.def("loop_failed_address", [] { return reinterpret_cast<size_t>(&mgx::mgx_loop_failed); });
    module.attr("SOURCE_SIZES") = mgx::source_sizes;
    module.attr("SOURCE_HASHES") = mgx::source_hashes;
    module.def("dnnl_version", [] {
        const dnnl_version_t *v = dnnl_version();
        return py::make_tuple(v->major, v->minor, v->patch);
    });
}
