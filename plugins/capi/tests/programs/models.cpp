/* Tests of the options of the frontends; argv[1]: the directory that the fixture `models` creates. */
#include <migraphx/file_buffer.hpp>
#include <migraphx/migraphx.hpp>

#include "check.hpp"

static std::string folder;

static std::string at(const std::string& name) { return folder + "/" + name; }

static std::vector<size_t> lengths(const migraphx::program& p, size_t i) { return p.get_output_shapes()[i].lengths(); }

/* Returns the results for random parameters; checks that compiling and running preserve the shapes. */
static migraphx::arguments results(migraphx::program& p)
{
    auto before = p.get_output_shapes();
    p.compile(migraphx::target("ref"));
    auto after = p.get_output_shapes();
    migraphx::program_parameters values;
    auto shapes = p.get_parameter_shapes();
    for (const char* name : shapes.names()) values.add(name, migraphx::argument::generate(shapes[name]));
    auto outputs = p.eval(values);
    CHECK(before.size() == after.size() && before.size() == outputs.size());
    for (size_t i = 0; i < before.size(); ++i) CHECK(before[i] == after[i] && before[i] == outputs[i].get_shape());
    return outputs;
}

static void parameters()
{
    auto none = migraphx::parse_onnx(at("constant.onnx").c_str());
    CHECK(none.get_parameter_shapes().size() == 0);
    CHECK(results(none)[0].as_vector<float>() == std::vector<float>({1, 2, 3}));
    none.get_main_module().print();
    none.print();

    auto vector = migraphx::parse_onnx(at("broadcast.onnx").c_str());
    CHECK(vector.get_parameter_shapes()["b"] == (migraphx::shape{migraphx_shape_float_type, {3, 1}}));
    migraphx::onnx_options options;
    options.set_input_parameter_shape("b", {});
    auto scalar = migraphx::parse_onnx(at("broadcast.onnx").c_str(), options);
    CHECK(scalar.get_parameter_shapes()["b"] == migraphx::shape(migraphx_shape_float_type));
    auto shapes = vector.get_parameter_shapes();
    auto names = shapes.names();
    CHECK(names.size() == 2 && shapes.size() == 2);
    vector.compile(migraphx::target("ref"));
    auto outputs = vector.eval({{names[0], migraphx::argument::generate(shapes[names[0]])},
                                {names[1], migraphx::argument::generate(shapes[names[1]])}});
    CHECK(outputs.size() == 1 && outputs.front().get_shape() == vector.get_output_shapes().front());
}

static void loops()
{
    auto read = [](int64_t trips, int64_t limit) {
        migraphx::onnx_options options;
        if (trips) options.set_default_loop_iterations(trips);
        if (limit) options.set_limit_loop_iterations(limit);
        return migraphx::parse_onnx(at("loop.onnx").c_str(), options);
    };
    for (size_t trips : {0, 15}) {
        auto p = read(trips, 0);
        size_t rows = trips ? trips : 10;
        CHECK(lengths(p, 0) == std::vector<size_t>{1} && lengths(p, 1) == (std::vector<size_t>{rows, 1}));
        auto outputs = results(p);
        CHECK(outputs[1].as_vector<float>().back() == outputs[0].as_vector<float>()[0]);
    }
    CHECK(lengths(read(15, 12), 1) == (std::vector<size_t>{12, 1}));
}

static void precisions()
{
    auto product = [] { return migraphx::parse_onnx(at("product.onnx").c_str()); };
    auto all = product(), some = product(), bytes = product();
    migraphx::quantize_fp16(all);
    migraphx::quantize_op_names names;
    names.add("dot");
    migraphx::quantize_fp16(some, names);
    CHECK(all == some && all != product());
    migraphx::quantize_bf16(bytes, names);
    CHECK(bytes != all);
    auto eight = product(), calibrated = product();
    migraphx::quantize_int8_options options;
    migraphx::quantize_int8(eight, migraphx::target("ref"), options);
    migraphx::program_parameters values;
    auto shapes = calibrated.get_parameter_shapes();
    for (const char* name : shapes.names()) values.add(name, migraphx::argument::generate(shapes[name]));
    options.add_calibration_data(values);
    options.add_op_name("dot");
    migraphx::quantize_int8(calibrated, migraphx::target("ref"), options);
    CHECK(eight != product() && calibrated != product());
    CHECK(results(calibrated)[0].get_shape().elements() == 16);
}

static void files()
{
    auto text = migraphx::read_string(at("weights/apart.onnx"));
    migraphx::onnx_options options;
    CHECK(!thrown([&] { migraphx::parse_onnx_buffer(text, options); }).empty());
    options.set_external_data_path(at("weights"));
    auto apart = migraphx::parse_onnx_buffer(text, options), plain = migraphx::parse_onnx(at("plain.onnx").c_str());
    CHECK(results(apart)[0] == results(plain)[0]);
    auto bytes = migraphx::read_buffer(at("weights/apart.onnx"));
    CHECK(std::string(bytes.begin(), bytes.end()) == text);
    migraphx::write_buffer(at("copied.bin"), bytes);
    CHECK(migraphx::read_buffer(at("copied.bin")) == bytes);
    CHECK(thrown([] { migraphx::read_string(at("nowhere")); }).find(at("nowhere")) != std::string::npos);
    CHECK(thrown([] { migraphx::read_string(at("weights")); }).find(at("weights")) != std::string::npos); /* a directory */
    CHECK(thrown([] { migraphx::parse_onnx(at("unknown.onnx").c_str()); }).find("Nonesuch") != std::string::npos);
    CHECK(thrown([] { migraphx::parse_onnx(at("nowhere").c_str()); }).find("nowhere") != std::string::npos);
}

static void tensorflow()
{
    auto plain = migraphx::parse_tf(at("add.pb").c_str());
    CHECK(plain.get_output_shapes().size() == 1 && lengths(plain, 0) == (std::vector<size_t>{2, 3}));
    results(plain);
    migraphx::tf_options shaped;
    shaped.set_input_parameter_shape("a", {4, 3});
    shaped.set_input_parameter_shape("b", {4, 3});
    CHECK(lengths(migraphx::parse_tf(at("add.pb").c_str(), shaped), 0) == (std::vector<size_t>{4, 3}));
    migraphx::tf_options named;
    named.set_default_dim_value(5);
    named.set_nhwc();
    named.set_output_names({"relu", "tanh"});
    auto two = migraphx::parse_tf_buffer(migraphx::read_string(at("two.pb")), named);
    CHECK(two.get_output_shapes().size() == 2 && lengths(two, 1) == (std::vector<size_t>{5, 3}));
    for (bool nhwc : {false, true}) {
        migraphx::tf_options images;
        if (nhwc) images.set_nhwc();
        auto image = nhwc ? std::vector<size_t>{1, 3, 4, 6} : std::vector<size_t>{1, 4, 6, 3};
        auto p = migraphx::parse_tf(at("image.pb").c_str(), images);
        CHECK(lengths(p, 0) == image && p.get_parameter_shapes()["x"].lengths() == image);
        CHECK(migraphx::parse_tf_buffer(migraphx::read_string(at("image.pb")), images).sort() == p.sort());
    }
    named.set_output_names({"tanh"});
    CHECK(migraphx::parse_tf(at("two.pb").c_str(), named).get_output_shapes().size() == 1);
}

int main(int, char** argv)
{
    folder = argv[1];
    parameters();
    loops();
    precisions();
    files();
    tensorflow();
    return checked();
}
