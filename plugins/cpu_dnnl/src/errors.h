// Native exceptions, which module.cpp translates to mgx errors, parts of their messages, and checks of oneDNN status codes.
#pragma once

#include <stdexcept>
#include <string>

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

namespace mgx {

enum class Fault { device, unsupported, parameter, shape };

class Failure : public std::runtime_error {
public:
    Failure(Fault fault, const std::string &message) : std::runtime_error(message), fault(fault) {}
    Fault fault;
};

inline std::string status_text(dnnl_status_t status) {
    switch (status) {
        case dnnl_out_of_memory: return "out of memory";
        case dnnl_invalid_arguments: return "invalid arguments";
        case dnnl_unimplemented: return "unimplemented";
        case dnnl_runtime_error: return "run-time error";
        case dnnl_not_required: return "not required";
        default: return dnnl_status2str(status);
    }
}

// Returns a number and its noun, in the plural unless the number is 1.
inline std::string counted(size_t number, const std::string &noun) {
    return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// Throws Failure if `status` is not success: unsupported if oneDNN has no implementation, device otherwise.
inline void check(dnnl_status_t status, const std::string &what) {
    if (status == dnnl_success) return;
    throw Failure(status == dnnl_unimplemented ? Fault::unsupported : Fault::device,
            "oneDNN " + what + ": " + status_text(status));
}

} // namespace mgx
