/* Reads an image of a handwritten digit, 8 lines of 8 numbers from 0 to 16, and says which it is.

   digits MODEL.onnx < IMAGE */
#include <migraphx/migraphx.hpp>

int main(int argc, char** argv)
{
    if (argc != 2) {
        std::cerr << "usage: digits MODEL.onnx < IMAGE" << std::endl;
        return 2;
    }
    auto program = migraphx::parse_onnx(argv[1]);
    program.compile(migraphx::target("cpu"));

    std::vector<float> pixels(64);
    for (auto& pixel : pixels) {
        if (!(std::cin >> pixel)) {
            std::cerr << "an image has 64 numbers" << std::endl;
            return 2;
        }
        pixel /= 16;
    }

    auto shapes = program.get_parameter_shapes();
    const char* input = shapes.names().front();
    migraphx::program_parameters parameters;
    parameters.add(input, migraphx::argument(shapes[input], pixels.data()));
    auto scores = program.eval(parameters).front().as_vector<float>();
    std::cout << std::max_element(scores.begin(), scores.end()) - scores.begin() << std::endl;
}
