/* Compiles a model, saves it, loads it again, and compares the two programs' results.

   parse_load_save MODEL.onnx SAVED.mxr */
#include <migraphx/migraphx.hpp>

static migraphx::argument result(const migraphx::program& program, migraphx::argument image)
{
    auto shapes = program.get_parameter_shapes();
    migraphx::program_parameters parameters;
    parameters.add(shapes.names().front(), image);
    return program.eval(parameters).front();
}

int main(int argc, char** argv)
{
    if (argc != 3) {
        std::cerr << "usage: parse_load_save MODEL.onnx SAVED.mxr" << std::endl;
        return 2;
    }
    auto parsed = migraphx::parse_onnx(argv[1]);
    parsed.compile(migraphx::target("cpu"));
    migraphx::save(parsed, argv[2]);
    auto loaded = migraphx::load(argv[2]);

    auto shapes = parsed.get_parameter_shapes();
    auto image = migraphx::argument::generate(shapes[shapes.names().front()]);
    bool same = result(parsed, image) == result(loaded, image);
    std::cout << (same ? "the loaded program gives the same result" : "the results differ") << std::endl;
    return same ? 0 : 1;
}
