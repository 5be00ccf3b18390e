/* Tests of symbolic extents: created, compared, refused, and used for a model with a dynamic batch. */
#include "check.hpp"
#include <migraphx/migraphx.hpp>

using migraphx::dynamic_dimension;
using migraphx::dynamic_dimensions;

int main(int, char** argv)
{
    dynamic_dimension named("n", {{"n", dynamic_dimension(1, 4)}}), range(1, 4);
    CHECK(named.is_symbolic() && !named.is_fixed() && !range.is_symbolic());
    CHECK(named != range && named == dynamic_dimension("n({[1..4]})"));
    dynamic_dimension best("n * 3 + m", {{"n", dynamic_dimension(1, 8, migraphx::optimals{2, 4})}, {"m", dynamic_dimension(0, 1)}});
    CHECK(best.is_symbolic() && best == dynamic_dimension{"m({[0..1]}) + 3*n({[1..8]}, {2, 4})"});
    CHECK(dynamic_dimension{"3"}.is_fixed());
    CHECK(thrown([] { dynamic_dimension("n * 3"); }).find("no range is given for 'n'") != std::string::npos);
    CHECK(thrown([] { dynamic_dimension("n *", {{"n", dynamic_dimension(1, 4)}}); }).find("is not an extent") != std::string::npos);
    migraphx_dynamic_dimension_t none = nullptr;
    const char* name = "n";
    CHECK(migraphx_dynamic_dimension_create_symbolic(&none, nullptr, nullptr, 0, nullptr, 0) == migraphx_status_bad_param);
    CHECK(migraphx_dynamic_dimension_create_symbolic(&none, "n", &name, 1, nullptr, 0) == migraphx_status_bad_param);
    CHECK(none == nullptr);

    migraphx::shape s{migraphx_shape_float_type, dynamic_dimensions(named, dynamic_dimension(3, 3))};
    CHECK(s.dynamic() && s.dyn_dims()[0].is_symbolic() && !s.dyn_dims()[1].is_symbolic());
    migraphx::shape texts{migraphx_shape_float_type, {"n({[1..4]})", "3"}};
    CHECK(texts.dynamic() && texts.standard() && texts == s);
    CHECK(texts.dyn_dims()[1].is_symbolic() && !s.dyn_dims()[1].is_symbolic());
    migraphx::shape turned{migraphx_shape_float_type, {"n({[1..8]})", "3"}, {"1", "n({[1..8]})"}};
    CHECK(turned.dynamic() && !turned.standard());
    CHECK(turned != (migraphx::shape{migraphx_shape_float_type, {"n({[1..8]})", "3"}, {"3", "1"}}));
    migraphx::shape narrowed{migraphx_shape_float_type, {"n({[1..20], [2..10]}, {4})"}};
    CHECK(narrowed.dyn_dims()[0] == dynamic_dimension("n({[2..10]}, {4})"));
    CHECK(thrown([] { migraphx::shape{migraphx_shape_float_type, {"n({[1..8]})", "3"}, {"1"}}; }).find("dyn_strides") !=
          std::string::npos);
    migraphx::shape numbers{migraphx_shape_float_type, {2, 3}};
    CHECK(!numbers.dynamic() && numbers.lengths() == std::vector<size_t>({2, 3}));

    migraphx::onnx_options options;
    options.set_dyn_input_parameter_shape("x", dynamic_dimensions(dynamic_dimension("2 * n({[1..8]})"), dynamic_dimension(4, 4)));
    auto p = migraphx::parse_onnx(argv[1], options);
    CHECK(p.get_parameter_shapes()["x"].dyn_dims()[0].is_symbolic());
    p.compile(migraphx::target("ref"));
    for (size_t rows : {4, 5}) {
        migraphx::program_parameters values;
        values.add("x", migraphx::argument(migraphx::shape(migraphx_shape_float_type, {rows, 4})));
        auto refused = thrown([&] { CHECK(p.eval(values)[0].get_shape().lengths()[0] == rows); });
        CHECK(refused == "" ? rows == 4 : refused.find("(2*n) is 5 for no n from 1 to 8") != std::string::npos);
    }
    return checked();
}
