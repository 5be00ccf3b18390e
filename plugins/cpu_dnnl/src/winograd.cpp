// Python bindings of Winograd convolutions.
#include "winograd.h"

#include <array>

#include <pybind11/stl.h>

#include "errors.h"
#include "team.h"
#include "threads.h"
#include "winograd_job.h"

namespace py = pybind11;

namespace mgx {

namespace {

using Tile = std::array<int, 5>; // (outputs, taps) of a tile along h, then w; the stride

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

WinogradLoops loops_of(const Tile &tile, bool bfloat16) {
    WinogradKind kind {tile[0], tile[1], tile[2], tile[3], tile[4], bfloat16};
    WinogradLoops found {};
    if (has_avx512())
        found = winograd_avx512(kind);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found = winograd_avx2(kind);
    if (!found.both) throw Failure(Fault::unsupported, "there is no Winograd convolution of this tile and filter on this processor");
    return found;
}

std::array<size_t, 4> addresses(const Tile &tile, bool bfloat16) {
    WinogradLoops found = loops_of(tile, bfloat16);
    return {reinterpret_cast<size_t>(found.transform), reinterpret_cast<size_t>(found.multiply),
            reinterpret_cast<size_t>(found.both), reinterpret_cast<size_t>(found.filters)};
}

void pack(const Tile &tile, size_t from, const std::array<int64_t, 4> &strides, int64_t outputs, int64_t channels,
        size_t to) {
    WinogradLoops found = loops_of(tile, false);
    const int64_t width = has_avx512() ? 32 : 16, panels = (outputs + width - 1) / width;
    const auto *weights = reinterpret_cast<const float *>(from);
    auto *made = reinterpret_cast<float *>(to);
    py::gil_scoped_release released;
    with_share(false, [&](int threads) {
        in_parts(threads, [&](int me) {
            found.pack(weights, strides.data(), made, outputs, channels, panels * me / threads, panels * (me + 1) / threads);
        });
    });
}

} // namespace

void bind_winograd(py::module_ &module) {
    module.def("winograd_loops", &addresses, py::arg("tile"), py::arg("bfloat16") = false);
    module.def("winograd_lanes", [] { return has_avx512() ? 16 : 8; });
    module.def("winograd_pack", &pack, py::arg("tile"), py::arg("address"), py::arg("strides"), py::arg("outputs"),
            py::arg("channels"), py::arg("target"));
}

} // namespace mgx
