/* Compiles a model once for batches of 1 to 64 images and runs several sizes.

   dynamic_batch MODEL.onnx */
#include <migraphx/migraphx.hpp>

int main(int argc, char** argv)
{
    if (argc != 2) {
        std::cerr << "usage: dynamic_batch MODEL.onnx" << std::endl;
        return 2;
    }
    migraphx::onnx_options options;
    options.set_default_dyn_dim_value(migraphx::dynamic_dimension{1, 64});
    auto program = migraphx::parse_onnx(argv[1], options);
    program.compile(migraphx::target("cpu"));

    auto shapes = program.get_parameter_shapes();
    const char* input = shapes.names().front();
    for (size_t batch : {1, 3, 64, 2}) {
        migraphx::shape images{migraphx_shape_float_type, {batch, 1, 8, 8}};
        migraphx::program_parameters parameters;
        parameters.add(input, migraphx::argument::generate(images, batch));
        auto scores = program.eval(parameters).front().get_shape().lengths();
        std::cout << batch << " images, " << scores[0] << " x " << scores[1] << " scores" << std::endl;
    }
}
