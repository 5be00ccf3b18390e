/* Runs a model and prints each instruction with the largest absolute number of its result.

   trace MODEL.onnx */
#include <migraphx/migraphx.hpp>

#include <cmath>

int main(int argc, char** argv)
{
    if (argc != 2) {
        std::cerr << "usage: trace MODEL.onnx" << std::endl;
        return 2;
    }
    auto program = migraphx::parse_onnx(argv[1]);
    program.compile(migraphx::target("cpu"));
    auto shapes = program.get_parameter_shapes();
    migraphx::program_parameters parameters;
    for (const char* name : shapes.names()) parameters.add(name, migraphx::argument::generate(shapes[name]));

    program.run_trace(parameters, [](migraphx::trace_info info) {
        auto result = info.get_result();
        if (result.get_shape().type() != migraphx_shape_float_type) return;
        float largest = 0;
        for (float value : result.as_vector<float>()) largest = std::max(largest, std::fabs(value));
        std::cout << info.get_index() << " " << info.get_name() << " " << largest << std::endl;
    });
}
