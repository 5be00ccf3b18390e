/* Layout of compile options: `reinterpret_cast` converts `get_handle_ptr()` to a pointer to this struct. */
#ifndef MIGRAPHX_COMPILE_OPTIONS_HPP
#define MIGRAPHX_COMPILE_OPTIONS_HPP

#ifndef MIGRAPHX_INLINE_NS
#define MIGRAPHX_INLINE_NS version_1
#endif

namespace migraphx {
inline namespace MIGRAPHX_INLINE_NS {

/* Trade-off between compile time and optimization. */
enum class compile_modes { eager = 0, balanced = 50, max = 100 };

struct compile_options {
    bool offload_copy = false;
    bool fast_math = true;
    bool exhaustive_tune = false;
    compile_modes compile_mode = compile_modes::balanced;
};

} // namespace MIGRAPHX_INLINE_NS
} // namespace migraphx

#endif
