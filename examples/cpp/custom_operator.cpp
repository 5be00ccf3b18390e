/* Adds an operator that calls a library of the program's own, and runs it between two operators of mgx. */
#include <migraphx/migraphx.hpp>

#include <numeric>

/* Stands for a library with an interface of C. */
static void running_sum(const float* from, float* to, size_t count) { std::partial_sum(from, from + count, to); }

struct running_sum_op final : migraphx::experimental_custom_op_base {
    std::string name() const override { return "running_sum"; }
    bool runs_on_offload_target() const override { return false; }

    /* The second input is memory for the result. */
    migraphx::shape compute_shape(migraphx::shapes inputs) const override
    {
        if (inputs.size() != 2) throw std::runtime_error("running_sum takes a tensor and memory for the result");
        return inputs.back();
    }
    migraphx::argument compute(migraphx::context, migraphx::shape output, migraphx::arguments inputs) const override
    {
        running_sum(reinterpret_cast<const float*>(inputs[0].data()), reinterpret_cast<float*>(inputs[1].data()),
                    output.elements());
        return inputs[1];
    }
};

int main()
{
    running_sum_op op;
    migraphx::register_experimental_custom_op(op);

    migraphx::program program;
    migraphx::module main = program.get_main_module();
    migraphx::shape row{migraphx_shape_float_type, {5}};
    auto x = main.add_parameter("x", row);
    auto positive = main.add_instruction(migraphx::operation("abs"), {x});
    auto memory = main.add_allocation(row);
    auto sums = main.add_instruction(migraphx::operation("running_sum"), {positive, memory});
    main.add_return({main.add_instruction(migraphx::operation("neg"), {sums})});
    program.compile(migraphx::target("cpu"));

    std::vector<float> values{1, -2, 3, -4, 5};
    auto result = program.eval({{"x", migraphx::argument(row, values.data())}}).front();
    for (float value : result.as_vector<float>()) std::cout << value << " ";
    std::cout << std::endl;
}
