/* Tests of custom operators on targets that compute on the host. */
#include <migraphx/migraphx.hpp>

#include <cmath>
#include <numeric>

#include "check.hpp"

struct cube final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "cube"; }
    migraphx::argument compute(migraphx::context, migraphx::shape, migraphx::arguments inputs) const override
    {
        auto* x = reinterpret_cast<float*>(inputs[0].data());
        auto* y = reinterpret_cast<float*>(inputs[1].data());
        for (size_t i = 0; i < inputs[0].get_shape().elements(); ++i) y[i] = x[i] * x[i] * x[i];
        return inputs[1];
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override
    {
        if (inputs.size() != 2) throw std::runtime_error("cube takes a tensor and memory for the result");
        return inputs.back();
    }
};

struct failing final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "failing"; }
    migraphx::argument compute(migraphx::context, migraphx::shape, migraphx::arguments) const override
    {
        throw std::runtime_error("no luck today");
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs[0]; }
};

/* Returns its operand: the result aliases it. */
struct same final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "same"; }
    migraphx::argument compute(migraphx::context, migraphx::shape, migraphx::arguments inputs) const override { return inputs[0]; }
    bool runs_on_offload_target() const override { return true; }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs.back(); }
    std::vector<size_t> output_alias(migraphx::shapes) const override { return {0}; }
};

/* Allocates its result itself. */
struct doubled final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "doubled"; }
    migraphx::argument compute(migraphx::context, migraphx::shape output, migraphx::arguments inputs) const override
    {
        migraphx::argument result(output);
        auto* y = reinterpret_cast<float*>(result.data());
        for (float x : inputs[0].as_vector<float>()) *y++ = 2 * x;
        return result;
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs[0]; }
};

static migraphx::program made(const char* name, const char* target)
{
    migraphx::program p;
    auto m = p.get_main_module();
    migraphx::shape s{migraphx_shape_float_type, {4, 3}};
    auto x = m.add_instruction(migraphx::operation("neg"), {m.add_parameter("x", s)});
    auto y = m.add_instruction(migraphx::operation(name), {x, m.add_allocation(s)});
    m.add_return({m.add_instruction(migraphx::operation("abs"), {y})});
    p.compile(migraphx::target(target));
    return p;
}

int main()
{
    cube c;
    failing f;
    migraphx::register_experimental_custom_op(c);
    migraphx::register_experimental_custom_op(f);
    CHECK(migraphx::operation("cube").name() == "cube");
    migraphx::shape s{migraphx_shape_float_type, {4, 3}};
    std::vector<float> x(12), expected(12);
    std::iota(x.begin(), x.end(), -3);
    for (size_t i = 0; i < 12; ++i) expected[i] = std::fabs(x[i] * x[i] * x[i]);
    for (const char* target : {"ref", "cpu"}) {
        auto p = made("cube", target);
        for (int run = 0; run < 3; ++run)
            CHECK(p.eval({{"x", migraphx::argument(s, x.data())}})[0].as_vector<float>() == expected);
    }
    same i;
    doubled d;
    migraphx::register_experimental_custom_op(i);
    migraphx::register_experimental_custom_op(d);
    for (const char* target : {"ref", "cpu"}) {
        migraphx::program p;
        auto m = p.get_main_module();
        auto kept = m.add_instruction(migraphx::operation("same"), {m.add_parameter("x", s)});
        m.add_return({m.add_instruction(migraphx::operation("doubled"), {kept}), kept});
        p.compile(migraphx::target(target));
        auto results = p.eval({{"x", migraphx::argument(s, x.data())}});
        CHECK(results[1].as_vector<float>() == x);
        for (size_t k = 0; k < 12; ++k) CHECK(results[0].as_vector<float>()[k] == 2 * x[k]);
    }
    auto message = thrown([&] { made("failing", "ref").eval({{"x", migraphx::argument(s, x.data())}}); });
    CHECK(message.find("no luck today") != std::string::npos && message.find("failing") != std::string::npos);
    message = thrown([&] {
        migraphx::program p;
        auto m = p.get_main_module();
        m.add_instruction(migraphx::operation("cube"), {m.add_parameter("x", s)});
    });
    CHECK(message.find("Error in compute_shape of: cube: cube takes a tensor and memory for the result") != std::string::npos);
    return checked();
}
