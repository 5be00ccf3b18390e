/* The fields behind a handle of compile options follow what is set and assigned. */
#include "check.hpp"
#include <migraphx/compile_options.hpp>
#include <migraphx/migraphx.hpp>

using fields = migraphx::MIGRAPHX_INLINE_NS::compile_options;

static const fields& behind(const migraphx::api::compile_options& options)
{
    return *reinterpret_cast<const fields*>(options.get_handle_ptr());
}

int main()
{
    migraphx::api::compile_options options, copied;
    CHECK(!behind(options).offload_copy && behind(options).fast_math && !behind(options).exhaustive_tune);
    options.set_offload_copy();
    options.set_fast_math(false);
    CHECK(behind(options).offload_copy && !behind(options).fast_math);
    CHECK(!behind(copied).offload_copy);
    const fields& place = behind(options);
    copied.assign_to_handle(options.get_handle_ptr());
    CHECK(!behind(options).offload_copy && behind(options).fast_math && &place == &behind(options));
    options.set_exhaustive_tune_flag();
    CHECK(behind(options).exhaustive_tune && !behind(copied).exhaustive_tune);
    return checked();
}
