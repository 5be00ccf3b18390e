#include "primitive.h"

#include <cstdint>

#include <pybind11/stl.h>

#include "memory.h"
#include "threads.h"

namespace py = pybind11;

namespace mgx {

dnnl::engine &cpu_engine() {
    static auto *engine = new dnnl::engine(dnnl::engine::kind::cpu, 0); // never destroyed: primitives may outlive static objects
    return *engine;
}

dnnl::stream &cpu_stream() {
    thread_local dnnl::stream stream(cpu_engine());
    return stream;
}

namespace {

// True if the implementation may synchronize its threads with barriers: oneDNN's gemm does, and so do its callers; gradients of weights
// add the parts of several threads.  Verified for the version that the package depends on; for any other version the answer is
// conservatively true.
bool may_wait_inside(const std::string &kind, const std::string &implementation) {
    const dnnl_version_t *version = dnnl_version();
    if (version->major != 3 || version->minor != 2) return true;
    if (kind == "convolution_weights") return true;
    if (implementation.find("brg") != std::string::npos) return false;
    const bool recurrent = kind == "lstm" || kind == "gru" || kind == "lbr_gru" || kind == "vanilla_rnn";
    return recurrent || (implementation.find("gemm") != std::string::npos && kind != "convolution");
}

// True if the implementation writes past the end of its result.  oneDNN 3.2's 1x1 AMX convolution does for sources with a zero
// point and 33 to 48 pixels: it stores a fourth tile of rows, which does not exist.
bool writes_past_its_end(const dnnl::primitive_desc_base &pd, bool source_zero) {
    if (!source_zero || std::string(pd.impl_info_str()) != "jit_1x1:avx512_core_amx") return false;
    int64_t pixels = 1;
    const auto dims = pd.query_md(dnnl::query::exec_arg_md, DNNL_ARG_DST).get_dims();
    for (size_t axis = 2; axis < dims.size(); ++axis)
        pixels *= dims[axis];
    return pixels > 32 && pixels <= 48;
}

// True if a primitive has the implementation, layouts and scratchpad size of a descriptor.
bool matches(dnnl_primitive_t primitive, const dnnl::primitive_desc_base &described, const std::vector<int> &slots) {
    const_dnnl_primitive_desc_t own = nullptr;
    check(dnnl_primitive_get_primitive_desc(primitive, &own), "primitive");
    const_dnnl_memory_desc_t scratch = dnnl_primitive_desc_query_md(own, dnnl_query_scratchpad_md, 0);
    const char *name = nullptr;
    check(dnnl_primitive_desc_query(own, dnnl_query_impl_info_str, 0, &name), "primitive");
    if (std::string(name) != described.impl_info_str()) return false;
    if (dnnl_memory_desc_get_size(scratch) != described.scratchpad_desc().get_size()) return false;
    for (int slot : slots) {
        auto layout = described.query_md(dnnl::query::exec_arg_md, slot);
        if (!dnnl_memory_desc_equal(dnnl_primitive_desc_query_md(own, dnnl_query_exec_arg_md, slot), layout.get()))
            return false;
    }
    return true;
}

// Creates a primitive with oneDNN's primitive cache disabled.  The cache key ignores the strides of axes of one element, but the
// choice of an implementation depends on them: two descriptors with different choices may get the same cached primitive.
dnnl_primitive_t create_uncached(const_dnnl_primitive_desc_t described, const std::string &kind) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    int capacity = 0;
    check(dnnl_get_primitive_cache_capacity(&capacity), kind);
    check(dnnl_set_primitive_cache_capacity(0), kind);
    dnnl_primitive_t primitive = nullptr;
    const dnnl_status_t made = dnnl_primitive_create(&primitive, described);
    check(dnnl_set_primitive_cache_capacity(capacity), kind);
    check(made, kind);
    return primitive;
}

} // namespace

Primitive::Primitive(std::string kind, std::vector<int> slots, std::vector<MemoryDesc> descs, Attributes attributes,
        Maker make, int threads)
    : kind_(std::move(kind))
    , slots_(std::move(slots))
    , descs_(std::move(descs))
    , attributes_(std::move(attributes))
    , make_(std::move(make))
    , threads_(threads > 0 ? threads : thread_count()) {
    if (!attributes_.deferred) describe();
}

Primitive::~Primitive() {
    if (!recipe) return;
    if (!Py_IsInitialized()) {
        recipe.release(); // the interpreter has shut down: leak the reference
        return;
    }
    py::gil_scoped_acquire gil;
    recipe = py::object();
}

void Primitive::describe() {
    std::call_once(described_, [this] {
        TeamSize team(threads_);
        dnnl_primitive_desc_t made = nullptr;
        check(make_(&made, descs_, attributes_.attr.get()), kind_);
        pd_.reset(made);
        const bool source_zero = attributes_.masks.count(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC) > 0;
        while (writes_past_its_end(pd_, source_zero))
            if (dnnl_primitive_desc_next_impl(pd_.get()) != dnnl_success) check(dnnl_unimplemented, kind_);
        waits_inside_ = may_wait_inside(kind_, implementation());
        descs_.clear();
    });
}

void Primitive::prepare() {
    describe();
    std::call_once(prepared_, [this] {
        TeamSize team(threads_);
        dnnl_primitive_t primitive = nullptr;
        check(dnnl_primitive_create(&primitive, pd_.get()), kind_);
        primitive_.reset(primitive);
        if (!matches(primitive, pd_, slots_)) primitive_.reset(create_uncached(pd_.get(), kind_));
    });
}

MemoryDesc Primitive::desc(int arg) const {
    if (arg == DNNL_ARG_SCRATCHPAD) return MemoryDesc(pd_.scratchpad_desc());
    auto masked = attributes_.masks.find(arg);
    if (masked != attributes_.masks.end()) return masked_desc(arg, masked->second);
    return MemoryDesc(pd_.query_md(dnnl::query::exec_arg_md, arg));
}

MemoryDesc Primitive::masked_desc(int arg, int mask) const {
    bool scales = arg & DNNL_ARG_ATTR_SCALES;
    auto of = pd_.query_md(dnnl::query::exec_arg_md, arg & ~(scales ? DNNL_ARG_ATTR_SCALES : DNNL_ARG_ATTR_ZERO_POINTS));
    dnnl::memory::dim count = 1;
    auto dims = of.get_dims();
    for (size_t axis = 0; axis < dims.size(); ++axis)
        if (mask & (1 << axis)) count *= dims[axis];
    return MemoryDesc(dnnl::memory::desc({count}, scales ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::s32, {1}));
}

size_t Primitive::scratchpad_bytes() const { return pd_.scratchpad_desc().get_size(); }

std::shared_ptr<Primitive> Primitive::single() {
    std::call_once(once_, [this] {
        if (is_single_) return;
        std::vector<MemoryDesc> chosen;
        for (int slot : slots_)
            chosen.push_back(desc(slot));
        try {
            Attributes own = attributes_;
            own.deferred = false;
            auto twin = std::make_shared<Primitive>(kind_, slots_, chosen, own, make_, 1);
            twin->prepare();
            bool reference = twin->implementation().rfind("ref", 0) == 0 && implementation().rfind("ref", 0) != 0;
            if (!reference) single_ = std::move(twin);
        } catch (const Failure &) { // no implementation for one thread supports these layouts
        }
        if (single_) single_->is_single_ = true;
    });
    return single_;
}

void Primitive::execute_at(const std::vector<std::pair<int, size_t>> &addresses) {
    prepare();
    TeamSize team(threads_);
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> args;
    AlignedBuffer scratch(scratchpad_bytes());
    auto add = [&](int arg, void *address) {
        memories.emplace_back(desc(arg).desc, cpu_engine(), address);
        args.push_back({arg, memories.back().get()});
    };
    memories.reserve(addresses.size() + 1);
    for (auto [arg, address] : addresses)
        add(arg, reinterpret_cast<void *>(address));
    add(DNNL_ARG_SCRATCHPAD, scratch.data());
    execute(args);
}

void bind_primitive(py::module_ &module) {
    py::class_<Primitive, std::shared_ptr<Primitive>>(module, "Primitive")
            .def_property_readonly("kind", &Primitive::kind)
            .def_property_readonly("impl", &Primitive::implementation)
            .def_property_readonly("is_reference",
                    [](const Primitive &p) { return p.implementation().rfind("ref", 0) == 0; })
            .def_property_readonly("threads", &Primitive::threads)
            .def_property_readonly("scratchpad_size", &Primitive::scratchpad_bytes)
            .def_property_readonly("args", [](const Primitive &p) { return py::tuple(py::cast(p.slots())); })
            .def_property_readonly("post_op_args", [](const Primitive &p) { return py::tuple(py::cast(p.post_op_args())); })
            .def("md", &Primitive::desc, py::arg("arg"))
            .def_property_readonly("src", [](const Primitive &p) { return p.desc(DNNL_ARG_SRC); })
            .def_property_readonly("weights", [](const Primitive &p) { return p.desc(DNNL_ARG_WEIGHTS); })
            .def_property_readonly("bias", [](const Primitive &p) { return p.desc(DNNL_ARG_BIAS); })
            .def_property_readonly("dst", [](const Primitive &p) { return p.desc(DNNL_ARG_DST); })
            .def_property_readonly("recipe", [](const Primitive &p) { return p.recipe ? p.recipe : py::none(); })
            .def("single", &Primitive::single, py::call_guard<py::gil_scoped_release>())
            .def("execute",
                    [](Primitive &p, const std::map<int, size_t> &addresses) {
                        std::vector<std::pair<int, size_t>> list(addresses.begin(), addresses.end());
                        py::gil_scoped_release nogil;
                        p.execute_at(list);
                    },
                    py::arg("addresses"))
            .def("__repr__", [](const Primitive &p) { return "Primitive(" + p.kind() + ", " + p.implementation() + ")"; });

    module.def("prepare",
            [](const std::vector<std::shared_ptr<Primitive>> &primitives) {
                py::gil_scoped_release nogil;
                run_concurrently(primitives.size(), [&](size_t i) { primitives[i]->prepare(); });
            },
            py::arg("primitives"));

    struct Named {
        const char *name;
        int value;
    };
    for (auto [name, value] : {Named {"ARG_SRC", DNNL_ARG_SRC}, {"ARG_DST", DNNL_ARG_DST},
                 {"ARG_WEIGHTS", DNNL_ARG_WEIGHTS}, {"ARG_BIAS", DNNL_ARG_BIAS},
                 {"ARG_DIFF_WEIGHTS", DNNL_ARG_DIFF_WEIGHTS}, {"ARG_DIFF_DST", DNNL_ARG_DIFF_DST},
                 {"ARG_ATTR_SCALES", DNNL_ARG_ATTR_SCALES}, {"ARG_ATTR_ZERO_POINTS", DNNL_ARG_ATTR_ZERO_POINTS},
                 {"ARG_SRC_LAYER", DNNL_ARG_SRC_LAYER}, {"ARG_SRC_ITER", DNNL_ARG_SRC_ITER},
                 {"ARG_SRC_ITER_C", DNNL_ARG_SRC_ITER_C}, {"ARG_WEIGHTS_LAYER", DNNL_ARG_WEIGHTS_LAYER},
                 {"ARG_WEIGHTS_ITER", DNNL_ARG_WEIGHTS_ITER}, {"ARG_DST_LAYER", DNNL_ARG_DST_LAYER},
                 {"ARG_DST_ITER", DNNL_ARG_DST_ITER}, {"ARG_DST_ITER_C", DNNL_ARG_DST_ITER_C}})
        module.attr(name) = value;
}

void record_recipes(py::module_ &module) {
    for (const char *name : {"convolution", "convolution_weights", "deconvolution", "pooling", "matmul", "reorder", "lstm",
                 "gru", "lbr_gru", "vanilla_rnn"}) {
        py::object build = module.attr(name);
        module.attr(name) = py::cpp_function(
                [name, build](const py::args &args, const py::kwargs &keywords) {
                    py::object made = build(*args, **keywords);
                    made.cast<Primitive &>().recipe = py::make_tuple(name, args, keywords);
                    return made;
                },
                py::name(name), py::doc("Builds a primitive and records the arguments as its recipe."));
    }
}

} // namespace mgx
