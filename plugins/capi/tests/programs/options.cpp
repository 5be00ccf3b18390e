/* Tests that the fields of compile options follow what is set and assigned through handles. */
#include "check.hpp"
#include <migraphx/compile_options.hpp>
#include <migraphx/migraphx.hpp>

#include <cstdio>
#include <fstream>

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
    using modes = migraphx::MIGRAPHX_INLINE_NS::compile_modes;
    CHECK(behind(options).compile_mode == modes::balanced);
    for(int mode : {0, 24, 26, 74, 76, 100}) {
        options.set_compile_mode(mode);
        CHECK(behind(options).compile_mode == (mode < 25 ? modes::eager : mode < 75 ? modes::balanced : modes::max));
    }
    CHECK(migraphx_compile_options_set_compile_mode(nullptr, 50) == migraphx_status_bad_param);

    migraphx::program p;
    migraphx::module main = p.get_main_module();
    migraphx::shape s{migraphx_shape_float_type, {2}};
    main.add_return({main.add_instruction(migraphx::operation("neg"), {main.add_parameter("x", s)})});
    p.write_netron_output("netron.onnx");
    std::ifstream written("netron.onnx", std::ios::binary | std::ios::ate);
    CHECK(written.tellg() > 20);
    CHECK(std::remove("netron.onnx") == 0);
    options.set_compile_mode(0);
    p.compile(migraphx::target("ref"), options);
    CHECK(p.get_output_shapes().size() == 1);
    return checked();
}
