/* Tests of a model from a file: parsed, compiled, run, traced, saved, loaded, quantized.  argv[1]: a model of add and relu. */
#include <migraphx/migraphx.hpp>

#include <cmath>
#include <fstream>
#include <sstream>

#include "check.hpp"

static std::vector<float> result(const migraphx::program& p, size_t rows, float value)
{
    migraphx::shape s{migraphx_shape_float_type, {rows, 4}};
    std::vector<float> x(rows * 4, value);
    migraphx::program_parameters values;
    values.add("x", migraphx::argument(s, x.data()));
    values.add("of another model", migraphx::argument(s, x.data()));
    return p.eval(values).front().as_vector<float>();
}

int main(int, char** argv)
{
    auto p = migraphx::parse_onnx(argv[1]);
    CHECK(p.get_parameter_shapes()["x"].lengths() == std::vector<size_t>{1, 4}); /* a dynamic batch defaults to 1 */
    CHECK(thrown([&] { p.get_parameter_shapes()["nosuch"]; }).find("nosuch") != std::string::npos);
    auto before = p.get_output_shapes();
    p.compile(migraphx::target("cpu"));
    auto after = p.get_output_shapes();
    CHECK(before.size() == 1 && after.size() == 1 && before.front() == after.front());
    CHECK(result(p, 1, 2) == std::vector<float>{3, 0, 5, 0});

    migraphx::onnx_options options;
    options.set_input_parameter_shape("x", {3, 4});
    auto three = migraphx::parse_onnx(argv[1], options);
    CHECK(three.get_parameter_shapes()["x"].lengths()[0] == 3);
    migraphx::onnx_options by_default;
    by_default.set_default_dim_value(2);
    CHECK(migraphx::parse_onnx(argv[1], by_default).get_parameter_shapes()["x"].lengths()[0] == 2);
    migraphx::onnx_options open;
    open.set_dyn_input_parameter_shape("x", {migraphx::dynamic_dimension{1, 8}, migraphx::dynamic_dimension{4, 4}});
    auto any = migraphx::parse_onnx(argv[1], open);
    CHECK(any.get_parameter_shapes()["x"].dynamic());
    any.compile(migraphx::target("cpu"));
    CHECK(result(any, 5, 2).size() == 20);

    std::ifstream file(argv[1], std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    auto read = migraphx::parse_onnx_buffer(bytes.str());
    migraphx::quantize_fp16(read);
    read.compile(migraphx::target("ref"));
    CHECK(result(read, 1, 2) == std::vector<float>{3, 0, 5, 0});
    CHECK(!thrown([] { migraphx::parse_onnx_buffer(std::string("no model")); }).empty());

    for (const char* format : {"msgpack", "json"}) {
        migraphx::file_options files;
        files.set_file_format(format);
        auto plain = migraphx::parse_onnx(argv[1]);
        migraphx::save(plain, "saved.dat", files);
        auto again = migraphx::load("saved.dat", files);
        CHECK(plain.sort() == again.sort());
        again.compile(migraphx::target("ref"));
        CHECK(result(again, 1, 2) == std::vector<float>{3, 0, 5, 0});
    }

    migraphx::program built;
    auto m = built.get_main_module();
    migraphx::shape s{migraphx_shape_float_type, {3}};
    std::vector<float> one(3, 1), two(3, 2);
    auto x = m.add_parameter("x", s), y = m.add_literal(s, two.data());
    auto sum = m.add_instruction(migraphx::operation("add"), {x, y});
    m.add_return({m.add_instruction(migraphx::operation("reduce_sum", "{axes: [0]}"), {sum}), sum});
    built.compile(migraphx::target("ref"));
    std::vector<size_t> seen;
    std::vector<float> last;
    auto outputs = built.run_trace({{"x", migraphx::argument(s, one.data())}}, [&](migraphx::trace_info info) {
        seen.push_back(info.get_index());
        CHECK(!info.get_name().empty());
        last = info.get_result().as_vector<float>();
    });
    CHECK(outputs.size() == 2 && outputs[0].as_vector<float>() == std::vector<float>{9});
    CHECK(seen.size() >= 3 && seen.back() == seen.size() - 1 && (last == std::vector<float>{9} || last.size() == 3));
    CHECK(!thrown([&] {
               built.run_trace({{"x", migraphx::argument(s, one.data())}},
                               [](migraphx::trace_info) { throw std::runtime_error("enough"); });
           }).empty());

    migraphx::program product;
    auto pm = product.get_main_module();
    migraphx::shape square{migraphx_shape_float_type, {16, 16}};
    std::vector<float> ramp(256), weights(256);
    for (size_t i = 0; i < 256; ++i) ramp[i] = i / 256.f, weights[i] = (i % 7) - 3.f;
    auto w = pm.add_literal(square, weights.data());
    pm.add_return({pm.add_instruction(migraphx::operation("dot"), {pm.add_parameter("x", square), w})});
    migraphx::program_parameters images{{"x", migraphx::argument(square, ramp.data())}};
    migraphx::quantize_int8_options bytes8;
    bytes8.add_op_name("dot");
    bytes8.add_calibration_data(images);
    migraphx::quantize_int8(product, migraphx::target("cpu"), bytes8);
    product.compile(migraphx::target("cpu"));
    auto quantized = product.eval(images)[0].as_vector<float>();
    float worst = 0, largest = 0;
    for (size_t r = 0; r < 16; ++r)
        for (size_t c = 0; c < 16; ++c) {
            float sum = 0;
            for (size_t k = 0; k < 16; ++k) sum += ramp[r * 16 + k] * weights[k * 16 + c];
            worst = std::max(worst, std::abs(sum - quantized[r * 16 + c]));
            largest = std::max(largest, std::abs(sum));
        }
    CHECK(worst < 0.02f * largest && worst > 0);

    built.experimental_get_context().finish();
    CHECK(built.experimental_get_context().get_queue<void*>() == nullptr);
    CHECK(migraphx::get_onnx_operators().size() > 150);
    return checked();
}
