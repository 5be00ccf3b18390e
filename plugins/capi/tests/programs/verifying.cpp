/* Tests of program::verify: agreement, a difference, a missing file; options and their handles. */
#include "check.hpp"
#include <migraphx/migraphx.hpp>

/* relu(x + 1) * x, with values that float16 rounds. */
static migraphx::program small(const migraphx::shape& s)
{
    migraphx::program p;
    auto main = p.get_main_module();
    auto x = main.add_parameter("x", s);
    std::vector<float> ones(s.elements(), 1);
    auto sum = main.add_instruction(migraphx::operation("add"), {x, main.add_literal(s, ones.data())});
    auto positive = main.add_instruction(migraphx::operation("relu"), {sum});
    main.add_return({main.add_instruction(migraphx::operation("mul"), {positive, x})});
    return p;
}

int main()
{
    migraphx::shape s{migraphx_shape_float_type, {2, 2}};
    auto p = small(s);
    migraphx::target on("ref");
    float input[] = {1.0001f, -2.0003f, 3.0007f, 4.0009f};
    migraphx::program_parameters values;
    values.add("x", migraphx::argument(s, input));

    auto whole = p.verify(on, migraphx_program_verify_mode_outputs, values);
    CHECK(whole.passed() && whole.size() == 1 && !whole.has_failure_step());
    CHECK(whole.get_mode() == migraphx_program_verify_mode_outputs);
    CHECK(whole[0].get_operator() == "@return" && whole[0].get_message().empty() && whole[0].get_name().empty());
    CHECK(whole[0].passed() && !whole[0].threw_exception() && whole[0].get_rms_error() < 1e-6);
    CHECK(thrown([&] { whole.get_failure_step(); }).find("has_failure_step") != std::string::npos);
    CHECK(thrown([&] { whole[1]; }) != "");
    CHECK(p.verify(migraphx::target("cpu")).passed());

    const migraphx_program_verify_mode modes[] = {
        migraphx_program_verify_mode_instructions, migraphx_program_verify_mode_reduce, migraphx_program_verify_mode_bisect,
        migraphx_program_verify_mode_layerwise};
    for (auto mode : modes) {
        auto found = p.verify(on, mode);
        CHECK(found.passed() && found.get_mode() == mode && found.size() >= 1);
    }

    migraphx::program_verify_options strict;
    strict.set_rms_tolerance(1e-7);
    strict.set_absolute_tolerance(1e-7);
    strict.set_relative_tolerance(1e-7);
    strict.set_precision(migraphx_program_verify_precision_fp16);
    strict.set_ref_use_double();
    strict.set_name("narrow");
    migraphx::compile_options slow;
    slow.set_fast_math(false);
    strict.set_compile_options(slow);
    auto narrow = p.verify(on, migraphx_program_verify_mode_outputs, values, strict);
    CHECK(!narrow.passed() && narrow[0].get_name() == "narrow" && narrow[0].get_rms_error() > 1e-7);
    CHECK(narrow[0].get_message().find("elements differ") != std::string::npos && !narrow[0].threw_exception());
    auto steps = p.verify(on, migraphx_program_verify_mode_instructions, values, strict);
    CHECK(steps.has_failure_step() && steps.get_failure_step() == 0);
    size_t layers = 0;
    for (auto layer : steps) layers += layer.get_index() == layers;
    CHECK(layers == 3);

    migraphx::program_verify_options absent;
    absent.set_compiled_model("nowhere.mxr");
    auto missing = p.verify(on, migraphx_program_verify_mode_outputs, values, absent);
    CHECK(!missing.passed() && missing[0].threw_exception());
    CHECK(missing[0].get_message().find("nowhere.mxr") != std::string::npos);

    auto* handle = strict.get_handle_ptr();
    CHECK(migraphx_program_verify_options_set_compiled_model(handle, nullptr) == migraphx_status_bad_param);
    CHECK(migraphx_program_verify_options_set_name(handle, nullptr) == migraphx_status_bad_param);
    CHECK(migraphx_program_verify_options_set_rms_tolerance(nullptr, 1e-3) == migraphx_status_bad_param);
    migraphx_program_verify_result_t none = nullptr;
    CHECK(migraphx_program_verify(&none, p.get_handle_ptr(), on.get_handle_ptr(), static_cast<migraphx_program_verify_mode>(7),
                                  values.get_handle_ptr(), handle) == migraphx_status_unknown_error);
    CHECK(none == nullptr);
    return checked();
}
