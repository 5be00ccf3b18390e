/* Tests of custom operators on a target with device memory: the emulated device, whose addresses the host can access. */
#include <migraphx/migraphx.hpp>

#include <numeric>

#include "check.hpp"

/* Doubles in place, in device memory. */
struct doubled final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "doubled"; }
    migraphx::argument compute(migraphx::context ctx, migraphx::shape, migraphx::arguments inputs) const override
    {
        CHECK(ctx.get_queue<void*>() != nullptr);
        auto* x = reinterpret_cast<float*>(inputs[0].data());
        for (size_t i = 0; i < inputs[0].get_shape().elements(); ++i) x[i] *= 2;
        return inputs[0];
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs[0]; }
};

/* Returns every other row as a view of its input. */
struct sparse final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "sparse"; }
    migraphx::argument compute(migraphx::context, migraphx::shape output, migraphx::arguments inputs) const override
    {
        return {output, inputs[0].data()};
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override
    {
        auto lengths = inputs[0].lengths(), strides = inputs[0].strides();
        lengths[0] /= 2;
        strides[0] *= 2;
        return {inputs[0].type(), lengths, strides};
    }
    std::vector<size_t> output_alias(migraphx::shapes) const override { return {0}; }
};

/* Adds one on the host, into memory that the program allocated. */
struct on_host final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "on_host"; }
    bool runs_on_offload_target() const override { return false; }
    migraphx::argument compute(migraphx::context, migraphx::shape, migraphx::arguments inputs) const override
    {
        auto* x = reinterpret_cast<float*>(inputs[0].data());
        auto* y = reinterpret_cast<float*>(inputs[1].data());
        for (size_t i = 0; i < inputs[0].get_shape().elements(); ++i) y[i] = x[i] + 1;
        return inputs[1];
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs.back(); }
};

struct failing final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "failing"; }
    migraphx::argument compute(migraphx::context, migraphx::shape, migraphx::arguments) const override
    {
        throw std::runtime_error("no luck today");
    }
    migraphx::shape compute_shape(migraphx::shapes inputs) const override { return inputs[0]; }
};

int main()
{
    doubled d;
    sparse s;
    on_host h;
    failing f;
    migraphx::register_experimental_custom_op(d);
    migraphx::register_experimental_custom_op(s);
    migraphx::register_experimental_custom_op(h);
    migraphx::register_experimental_custom_op(f);
    migraphx::shape whole{migraphx_shape_float_type, {4, 3}};
    std::vector<float> x(12);
    std::iota(x.begin(), x.end(), 0);
    migraphx::compile_options copied;
    copied.set_offload_copy();

    /* x is used again after an operator that overwrites its input: x + abs(sparse(on_host(doubled(neg(x))))) of two rows */
    migraphx::program p;
    auto m = p.get_main_module();
    auto given = m.add_parameter("x", whole);
    auto negated = m.add_instruction(migraphx::operation("neg"), {given});
    auto twice = m.add_instruction(migraphx::operation("doubled"), {negated});
    auto more = m.add_instruction(migraphx::operation("on_host"), {twice, m.add_allocation(whole)});
    auto rows = m.add_instruction(migraphx::operation("abs"), {m.add_instruction(migraphx::operation("sparse"), {more})});
    m.add_return({rows, negated, m.add_instruction(migraphx::operation("doubled"), {given})});
    p.compile(migraphx::target("gpu"), copied);
    std::vector<float> expected, kept, again;
    for (int row : {0, 2})
        for (int i = 0; i < 3; ++i) expected.push_back(std::abs(-2 * x[row * 3 + i] + 1));
    for (float v : x) kept.push_back(-v), again.push_back(2 * v);
    for (int run = 0; run < 3; ++run) {
        auto results = p.eval({{"x", migraphx::argument(whole, x.data())}});
        CHECK(results[0].as_vector<float>() == expected);
        CHECK(results[1].as_vector<float>() == kept);
        CHECK(results[2].as_vector<float>() == again);
    }

    /* on device memory of the caller, which operators must not overwrite either */
    p.compile(migraphx::target("gpu"));
    migraphx::argument placed(whole, x.data());
    CHECK(p.eval({{"x", placed}})[2].get_shape() == whole);
    CHECK(x[11] == 11);

    auto message = thrown([&] {
        migraphx::program q;
        auto n = q.get_main_module();
        n.add_return({n.add_instruction(migraphx::operation("failing"), {n.add_parameter("x", whole)})});
        q.compile(migraphx::target("gpu"), copied);
        q.eval({{"x", migraphx::argument(whole, x.data())}});
    });
    CHECK(message.find("no luck today") != std::string::npos && message.find("failing") != std::string::npos);
    return checked();
}
