// Python bindings of native programs.
#include <pybind11/stl.h>

#include "errors.h"
#include "program.h"

namespace py = pybind11;

namespace mgx {

namespace {

// Converts a value id, or a pair (value id, byte offset).
Ref ref_from(const Program &program, const py::handle &given) {
    if (py::isinstance<py::int_>(given)) return program.checked({given.cast<int>(), 0});
    auto pair = py::reinterpret_borrow<py::sequence>(given);
    return program.checked({pair[0].cast<int>(), pair[1].cast<int64_t>()});
}

void add_primitive(Program &program, const std::string &name, std::shared_ptr<Primitive> primitive, const py::dict &args) {
    std::vector<PrimitiveArg> bound;
    for (auto [key, given] : args) {
        int arg = key.cast<int>();
        MemoryDesc desc = primitive->desc(arg);
        if (py::isinstance<py::sequence>(given)) {
            auto parts = py::reinterpret_borrow<py::sequence>(given);
            if (parts.size() > 2 && !parts[2].is_none()) desc = parts[2].cast<MemoryDesc>();
        }
        if (desc.absent())
            throw Failure(Fault::parameter, name + ": argument " + std::to_string(arg)
                    + " needs a memory descriptor: pass (value, offset, descriptor)");
        bound.push_back({arg, ref_from(program, given), desc});
    }
    program.add_step(std::make_unique<PrimitiveStep>(name, std::move(primitive), std::move(bound)));
}

HostOperand operand_from(const Program &program, const py::handle &given) {
    if (py::isinstance<py::int_>(given)) {
        const Value &value = program.value(given.cast<int>());
        if (value.kind != Value::Kind::object)
            throw Failure(Fault::parameter,
                    "an operand of a host step that is memory must be passed as (value, offset, dtype, dims[, strides])");
        return {{given.cast<int>(), value.at}, true, {}};
    }
    auto parts = py::reinterpret_borrow<py::sequence>(given);
    std::vector<int64_t> strides;
    if (parts.size() > 4 && !parts[4].is_none()) strides = parts[4].cast<std::vector<int64_t>>();
    Ref ref = program.checked({parts[0].cast<int>(), parts[1].cast<int64_t>()});
    return {ref, false, array_spec(parts[2], parts[3].cast<std::vector<int64_t>>(), strides)};
}

std::vector<HostOperand> operands_from(const Program &program, const py::sequence &given) {
    std::vector<HostOperand> result;
    for (auto item : given)
        result.push_back(operand_from(program, item));
    return result;
}

} // namespace

// Supports garbage collection: host steps commonly refer to the owner of the program, which makes reference cycles.
void make_collectable(PyHeapTypeObject *heap_type) {
    auto *type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    type->tp_traverse = [](PyObject *self, visitproc visit, void *arg) {
        Py_VISIT(Py_TYPE(self));
        if (py::detail::is_holder_constructed(self))
            for (auto *object : py::cast<Program &>(py::handle(self)).owned())
                Py_VISIT(object->ptr());
        return 0;
    };
    type->tp_clear = [](PyObject *self) {
        if (py::detail::is_holder_constructed(self)) py::cast<Program &>(py::handle(self)).drop_references();
        return 0;
    };
}

void bind_program(py::module_ &module) {
    py::class_<Program>(module, "NativeProgram", py::custom_type_setup(make_collectable))
            .def(py::init<std::string, int64_t>(), py::arg("name"), py::arg("arena_bytes"))
            .def("arena",
                    [](Program &p, int64_t offset, int64_t bytes) {
                        Value value {Value::Kind::arena, offset};
                        value.bytes = bytes;
                        return p.add_value(value);
                    },
                    py::arg("offset"), py::arg("nbytes"))
            .def("literal",
                    [](Program &p, size_t address, int64_t bytes, py::object owner) {
                        Value value {Value::Kind::literal, 0, reinterpret_cast<char *>(address), bytes, std::move(owner)};
                        return p.add_value(value);
                    },
                    py::arg("address"), py::arg("nbytes"), py::arg("owner"))
            .def("input",
                    [](Program &p, const py::object &dtype, const std::vector<int64_t> &dims) {
                        return p.add_input(array_spec(dtype, dims), false);
                    },
                    py::arg("dtype"), py::arg("dims"))
            .def("object_input", [](Program &p) { return p.add_input({}, true); })
            .def("output",
                    [](Program &p, const py::object &dtype, const std::vector<int64_t> &dims) {
                        return p.add_output(array_spec(dtype, dims));
                    },
                    py::arg("dtype"), py::arg("dims"))
            .def("object", &Program::add_object)
            .def("result", &Program::add_result, py::arg("value"))
            .def("add_primitive", &add_primitive, py::arg("name"), py::arg("primitive"), py::arg("args"))
            .def("add_loop",
                    [](Program &p, const std::string &name, size_t address, py::object owner, const py::sequence &buffers,
                            std::vector<int64_t> args, int64_t work, int64_t grain, int64_t scratch, py::object deferred,
                            const py::sequence &then) {
                        std::vector<Ref> refs;
                        for (auto item : buffers)
                            refs.push_back(ref_from(p, item));
                        std::vector<Loop> loops {{reinterpret_cast<LoopFunction>(address), std::move(args), work, grain}};
                        for (auto item : then) {
                            auto [next, numbers, items, least] =
                                    item.cast<std::tuple<size_t, std::vector<int64_t>, int64_t, int64_t>>();
                            loops.push_back({reinterpret_cast<LoopFunction>(next), std::move(numbers), items, least});
                        }
                        p.add_step(std::make_unique<LoopStep>(
                                name, std::move(loops), std::move(owner), std::move(refs), scratch, std::move(deferred)));
                    },
                    py::arg("name"), py::arg("address"), py::arg("owner"), py::arg("buffers"),
                    py::arg("args") = std::vector<int64_t> {}, py::arg("work") = 1, py::arg("grain") = 1,
                    py::arg("scratch_bytes") = 0, py::arg("deferred") = py::none(), py::arg("then") = py::tuple())
            .def("deferred_loops",
                    [](const Program &p) {
                        py::list found;
                        for (size_t i = 0; i < p.steps().size(); ++i)
                            if (auto loop = dynamic_cast<const LoopStep *>(p.steps()[i].get()); loop && !loop->deferred().is_none())
                                found.append(py::make_tuple(i, loop->deferred()));
                        return found;
                    })
            .def("replace_loop",
                    // Replaces all loops of a step by one.  Returns False and changes nothing if it needs more scratch memory.
                    [](Program &p, size_t step, size_t address, std::vector<int64_t> args, int64_t work, int64_t grain,
                            int64_t scratch) {
                        LoopStep &loop = p.loop_step(step);
                        if (!loop.fits(scratch)) return false;
                        loop.replace({{reinterpret_cast<LoopFunction>(address), std::move(args), work, grain}});
                        return true;
                    },
                    py::arg("step"), py::arg("address"), py::arg("args"), py::arg("work"), py::arg("grain"), py::arg("scratch"))
            .def("add_host",
                    [](Program &p, const std::string &name, py::object function, const py::sequence &inputs,
                            const py::sequence &outputs, bool into) {
                        p.add_step(std::make_unique<HostStep>(name, std::move(function), operands_from(p, inputs),
                                operands_from(p, outputs), into, p.keep()));
                    },
                    py::arg("name"), py::arg("function"), py::arg("inputs"), py::arg("outputs"), py::arg("into") = false)
            .def("begin_branch",
                    [](Program &p, const std::string &name, const py::object &condition) {
                        p.begin_branch(name, ref_from(p, condition));
                    },
                    py::arg("name"), py::arg("condition"))
            .def("begin_other", &Program::begin_other, py::arg("name"))
            .def("end_branch", &Program::end_branch, py::arg("name"))
            .def("begin_loop",
                    [](Program &p, const std::string &name, const py::object &counter, const py::object &bound,
                            const py::object &going, bool sure, int64_t most) {
                        Trips trips {ref_from(p, counter), {}, {}, sure, most};
                        if (!bound.is_none()) trips.bound.push_back(ref_from(p, bound));
                        if (!going.is_none()) trips.going.push_back(ref_from(p, going));
                        p.begin_loop(name, trips);
                    },
                    py::arg("name"), py::arg("counter"), py::arg("bound"), py::arg("going"), py::arg("sure"),
                    py::arg("most"))
            .def("end_loop", &Program::end_loop, py::arg("name"))
            .def("vary",
                    [](Program &p, const std::vector<std::tuple<int64_t, size_t, size_t, size_t, size_t>> &places) {
                        std::vector<Varying> found;
                        for (auto [kind, of, part, at, number] : places)
                            found.push_back({static_cast<Varying::Kind>(kind), of, part, at, number});
                        p.vary(std::move(found));
                    },
                    py::arg("places"))
            .def("assign", &Program::assign, py::arg("numbers"))
            .def("finish", &Program::finish, py::arg("touch") = true)
            .def("run", &Program::run, py::arg("inputs"), py::arg("outputs"), py::arg("arena") = 0)
            .def("run_arrays", &Program::run_arrays, py::arg("inputs"))
            .def("time", &Program::time, py::arg("inputs"), py::arg("runs") = 20, py::arg("warmup") = 3)
            .def("prepare_single", &Program::prepare_single, py::call_guard<py::gil_scoped_release>())
            .def_property_readonly("name", &Program::name)
            .def_property_readonly("arena_bytes", &Program::arena_bytes)
            .def_property_readonly("scratch_bytes", &Program::scratch_bytes)
            .def_property_readonly("frames", &Program::frames)
            .def_property_readonly("step_names",
                    [](const Program &p) {
                        std::vector<std::string> names;
                        for (auto &step : p.steps())
                            names.push_back(step->name);
                        return names;
                    })
            .def_property_readonly("step_kinds", [](const Program &p) {
                std::vector<std::string> kinds;
                for (auto &step : p.steps())
                    kinds.push_back(step->kind());
                return kinds;
            });
}

} // namespace mgx
