/* Tests of shapes, dynamic dimensions, arguments, modules with branches, attributes, lifetimes and messages. */
#include <migraphx/migraphx.hpp>

#include "check.hpp"

struct plain_array : migraphx::array_base<plain_array> {
    std::vector<int> items{1, 2, 3};
    size_t size() const { return items.size(); }
    int operator[](size_t i) const { return items[i]; }
};

template <class T>
static std::false_type has_class(migraphx::rank<0>, T)
{
    return {};
}
template <class T>
static auto has_class(migraphx::rank<1>, T*) -> decltype(migraphx::as_handle<T>{}, std::true_type{})
{
    return {};
}

static void shapes()
{
    migraphx::shape s{migraphx_shape_float_type, {2, 3}};
    CHECK(s.lengths() == std::vector<size_t>{2, 3});
    CHECK(s.strides() == std::vector<size_t>{3, 1});
    CHECK(s.type() == migraphx_shape_float_type && s.elements() == 6 && s.bytes() == 24 && s.ndim() == 2 && s.standard());
    migraphx::shape transposed{migraphx_shape_half_type, {2, 3}, {1, 2}};
    CHECK(!transposed.standard() && transposed.index(1) == 2 && transposed.index(3) == 1 && transposed.bytes() == 12);
    CHECK(s != transposed);
    migraphx::shape scalar{migraphx_shape_int64_type};
    CHECK(scalar.lengths() == std::vector<size_t>{1} && scalar.strides() == std::vector<size_t>{0});
    for (int type = migraphx_shape_bool_type; type <= migraphx_shape_fp8e5m2fnuz_type; ++type)
        CHECK(migraphx::shape(static_cast<migraphx_shape_datatype_t>(type), {4}).type() == type);
    CHECK(thrown([&] { s.index(6); }).find("6") != std::string::npos);

    migraphx::dynamic_dimension range{1, 4}, fixed{4, 4}, preferring{1, 4, {1, 4}};
    CHECK(!range.is_fixed() && fixed.is_fixed() && range != preferring);
    migraphx::dynamic_dimensions all{range, fixed, preferring};
    CHECK(all.size() == 3 && all[0] == range && all[2] == preferring);
    migraphx::shape dynamic{migraphx_shape_float_type, all};
    CHECK(dynamic.dynamic() && !s.dynamic());
    CHECK(dynamic.dyn_dims().size() == 3 && dynamic.dyn_dims()[0] == range);

    migraphx_shape_t raw = nullptr;
    size_t lengths[] = {7};
    migraphx_shape_create(&raw, migraphx_shape_int8_type, lengths, 1);
    migraphx::shape held(raw, migraphx::own{});
    s.assign_to_handle(raw);
    CHECK(held == s && held.lengths()[1] == 3);
}

static void arguments()
{
    migraphx::shape s{migraphx_shape_float_type, {2, 3}};
    std::vector<float> values{0, 1, 2, 3, 4, 5};
    migraphx::argument borrowed(s, values.data());
    CHECK(reinterpret_cast<float*>(borrowed.data()) == values.data());
    values[5] = 50;
    CHECK(borrowed.as_vector<float>() == values);
    CHECK(migraphx::argument::generate(s, 3) == migraphx::argument::generate(s, 3));
    CHECK(migraphx::argument::generate(s, 3) != migraphx::argument::generate(s, 4));
    migraphx::argument owned(s);
    CHECK(owned.as_vector<float>() == std::vector<float>(6, 0.f) && owned.get_shape() == s);
    migraphx::argument transposed(migraphx::shape{migraphx_shape_float_type, {3, 2}, {1, 3}}, values.data());
    CHECK(transposed.as_vector<float>() == std::vector<float>{0, 3, 1, 4, 2, 50});
    migraphx::save_argument(borrowed, "argument.dat");
    CHECK(migraphx::load_argument("argument.dat") == borrowed);
}

static void branches()
{
    migraphx::shape s{migraphx_shape_float_type, {3, 3}}, truth{migraphx_shape_bool_type};
    migraphx::program p;
    auto main = p.get_main_module();
    auto cond = main.add_parameter("cond", truth);
    auto x = main.add_parameter("x", s);
    auto y = main.add_parameter("y", s);
    auto yes = p.create_module("yes"), no = p.create_module("no");
    yes.add_return({yes.add_instruction(migraphx::operation("neg"), {x})});
    no.add_return({no.add_instruction(migraphx::operation("identity"), {y})});
    auto branch = main.add_instruction(migraphx::operation("if"), {cond}, {yes, no});
    main.add_return({main.add_instruction(migraphx::operation("get_tuple_elem", "{index: %i}", 0), {branch})});
    p.compile(migraphx::target("ref"));
    std::vector<float> ones(9, 1), twos(9, 2), minus(9, -1);
    for (bool chosen : {true, false}) {
        auto results = p.eval({{"cond", migraphx::argument(truth, &chosen)},
                               {"x", migraphx::argument(s, ones.data())},
                               {"y", migraphx::argument(s, twos.data())}});
        CHECK(results.size() == 1 && results[0].as_vector<float>() == (chosen ? minus : twos));
        CHECK(results.front() == migraphx::argument(s, chosen ? minus.data() : twos.data()));
    }
}

static void attributes()
{
    CHECK(migraphx::operation("add").name() == "add");
    CHECK(migraphx::operation("reduce_mean", "{axes : [1, 2, 3, 4]}").name() == "reduce_mean");
    CHECK(migraphx::operation("reduce_mean", "{\"axes\" : [1, %d]}", 2).name() == "reduce_mean");
    CHECK(migraphx::operation("pooling", "{mode: max, lengths: [2, 2], padding: [0, 0], stride: [2, 2]}").name() == "pooling");
    CHECK(thrown([] { migraphx::operation("softmax", "{nosuch: 1}"); }).find("nosuch") != std::string::npos);
    CHECK(thrown([] { migraphx::operation("softmax", "{axis: "); }).find("{axis: ") != std::string::npos);
    CHECK(thrown([] { migraphx::operation("nosuchop"); }).find("nosuchop") != std::string::npos);
    CHECK(thrown([] { migraphx::target("nowhere"); }).find("nowhere") != std::string::npos);
}

int main()
{
    plain_array a;
    CHECK(a.front() == 1 && a.back() == 3 && !a.empty() && std::vector<int>{*a.begin()} == std::vector<int>{1});
    int i = 0;
    CHECK(has_class(migraphx::rank<1>{}, migraphx_shape_t{}) && !has_class(migraphx::rank<1>{}, &i));
    shapes();
    arguments();
    branches();
    attributes();
    return checked();
}
