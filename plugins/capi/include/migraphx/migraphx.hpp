/* C++ API of mgx: header-only wrappers of migraphx.h, for C++14 and later.

   Objects hold shared handles: copies refer to the same handle, and the last one destroys it.  Failures throw std::runtime_error with
   the library's message. */
#ifndef MGX_C_MIGRAPHX_HPP
#define MGX_C_MIGRAPHX_HPP

#include <migraphx/migraphx.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace migraphx {
inline namespace api {

/* Tag that orders overloads: rank<1> is preferred to rank<0>. */
template <int N>
struct rank : rank<N - 1> {};
template <>
struct rank<0> {};

/* Calls a function of the C API.  Throws std::runtime_error with the library's message if it fails. */
template <class Function, class... Arguments>
void call(Function function, Arguments&&... arguments)
{
    if (function(std::forward<Arguments>(arguments)...) != migraphx_status_success)
        throw std::runtime_error(mgx_last_error());
}

/* Calls a function of the C API and returns what it stores through its first parameter. */
template <class Result, class Function, class... Arguments>
Result value_of(Function function, Arguments&&... arguments)
{
    Result result{};
    call(function, &result, std::forward<Arguments>(arguments)...);
    return result;
}

/* Ownership of a handle: owned, borrowed, or a part of another handle that is kept alive. */
struct own {};
struct borrow {};
template <class Raw>
struct share {
    explicit share(std::shared_ptr<Raw> p) : owner(std::move(p)) {}
    std::shared_ptr<Raw> owner;
};

/* Traits of a handle type: its wrapper class, and its destroy and assign functions. */
template <class Raw>
struct handle_traits;

template <class T>
using as_handle = typename handle_traits<std::remove_cv_t<std::remove_pointer_t<T>>>::type;

#define MGX_C_HANDLE(name)                                                                                             \
    class name;                                                                                                        \
    template <>                                                                                                        \
    struct handle_traits<migraphx_##name> {                                                                            \
        using type = name;                                                                                             \
        static void destroy(const migraphx_##name* p) { migraphx_##name##_destroy(const_cast<migraphx_##name*>(p)); }  \
        static void assign(migraphx_##name* to, const migraphx_##name* from)                                           \
        {                                                                                                              \
            call(&migraphx_##name##_assign_to, to, from);                                                              \
        }                                                                                                              \
    };
MGX_C_HANDLE(optimals)
MGX_C_HANDLE(dynamic_dimension)
MGX_C_HANDLE(dynamic_dimensions)
MGX_C_HANDLE(shape)
MGX_C_HANDLE(argument)
MGX_C_HANDLE(target)
MGX_C_HANDLE(program_parameter_shapes)
MGX_C_HANDLE(program_parameters)
MGX_C_HANDLE(arguments)
MGX_C_HANDLE(shapes)
MGX_C_HANDLE(instruction)
MGX_C_HANDLE(instructions)
MGX_C_HANDLE(modules)
MGX_C_HANDLE(trace_info)
MGX_C_HANDLE(program)
MGX_C_HANDLE(operation)
MGX_C_HANDLE(onnx_options)
MGX_C_HANDLE(file_options)
MGX_C_HANDLE(compile_options)
MGX_C_HANDLE(program_verify_options)
MGX_C_HANDLE(program_verify_layer)
MGX_C_HANDLE(program_verify_result)
MGX_C_HANDLE(tf_options)
MGX_C_HANDLE(quantize_op_names)
MGX_C_HANDLE(quantize_int8_options)
MGX_C_HANDLE(quantize_fp8_options)
MGX_C_HANDLE(experimental_custom_op)
#undef MGX_C_HANDLE

/* Base of the wrappers: a shared handle.  Raw is const for immutable objects. */
template <class Raw>
class handle_base {
public:
    using handle_type = Raw;

    handle_base() = default;
    handle_base(Raw* p, own) : handle_(p, [](Raw* q) { handle_traits<std::remove_cv_t<Raw>>::destroy(q); }) {}
    handle_base(Raw* p, borrow) : handle_(p, [](Raw*) {}) {}
    template <class Owner>
    handle_base(Raw* p, share<Owner> owner) : handle_(std::move(owner.owner), p)
    {
    }

    Raw* get_handle_ptr() const
    {
        if (!handle_) throw std::runtime_error("the object has no value: it was default-constructed and never assigned");
        return handle_.get();
    }
    const std::shared_ptr<Raw>& get_handle() const { return handle_; }
    share<Raw> share_handle() const { return share<Raw>{handle_}; }
    void assign_to_handle(std::remove_cv_t<Raw>* to) const
    {
        handle_traits<std::remove_cv_t<Raw>>::assign(to, get_handle_ptr());
    }

protected:
    template <class Function, class... Arguments>
    void make_handle(Function function, Arguments&&... arguments)
    {
        auto* made = value_of<std::remove_cv_t<Raw>*>(function, std::forward<Arguments>(arguments)...);
        handle_ = handle_base(made, own{}).handle_;
    }

private:
    std::shared_ptr<Raw> handle_;
};

/* CRTP base that adds iterators to a class with size() and operator[]. */
template <class Derived>
class array_base {
    const Derived& self() const { return static_cast<const Derived&>(*this); }

public:
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using difference_type = std::ptrdiff_t;
        using value_type = void;
        using pointer = void;
        using reference = void;

        iterator(const Derived* of, size_t at) : of_(of), at_(at) {}
        auto operator*() const { return (*of_)[at_]; }
        iterator& operator++() { return ++at_, *this; }
        iterator operator++(int) { return {of_, at_++}; }
        friend bool operator==(const iterator& x, const iterator& y) { return x.at_ == y.at_; }
        friend bool operator!=(const iterator& x, const iterator& y) { return x.at_ != y.at_; }

    private:
        const Derived* of_;
        size_t at_;
    };

    bool empty() const { return self().size() == 0; }
    auto front() const { return self()[0]; }
    auto back() const { return self()[self().size() - 1]; }
    iterator begin() const { return {&self(), 0}; }
    iterator end() const { return {&self(), self().size()}; }
};

/* True if every T is convertible to U. */
template <class U, class... Ts>
struct all_convert;
template <class U>
struct all_convert<U> : std::true_type {};
template <class U, class T, class... Ts>
struct all_convert<U, T, Ts...>
    : std::integral_constant<bool, std::is_convertible<T, U>::value && all_convert<U, Ts...>::value> {};

class optimals : public handle_base<migraphx_optimals> {
public:
    using handle_base::handle_base;
    optimals(std::initializer_list<size_t> values) : optimals(std::vector<size_t>(values)) {}
    explicit optimals(const std::vector<size_t>& values)
    {
        make_handle(&migraphx_optimals_create, values.data(), values.size());
    }
};

/* Extent of a dynamic axis: a range, or a symbolic expression with the range of each name. */
class dynamic_dimension : public handle_base<const migraphx_dynamic_dimension> {
public:
    using handle_base::handle_base;
    dynamic_dimension(size_t min, size_t max) { make_handle(&migraphx_dynamic_dimension_create_min_max, min, max); }
    dynamic_dimension(size_t min, size_t max, const optimals& preferred)
    {
        make_handle(&migraphx_dynamic_dimension_create_min_max_optimals, min, max, preferred.get_handle_ptr());
    }
    /* A symbolic extent: "n * 3" with {"n", {1, 8}}, or with the ranges in the expression: "n({[1..8]}, {2, 4}) * 3". */
    explicit dynamic_dimension(const std::string& expression) : dynamic_dimension(expression, named_ranges()) {}
    dynamic_dimension(const std::string& expression, const std::vector<std::pair<std::string, dynamic_dimension>>& ranges)
    {
        std::vector<const char*> names;
        std::vector<const_migraphx_dynamic_dimension_t> all;
        for (const auto& range : ranges) {
            names.push_back(range.first.c_str());
            all.push_back(range.second.get_handle_ptr());
        }
        make_handle(&migraphx_dynamic_dimension_create_symbolic, expression.c_str(), names.data(), names.size(), all.data(),
                    all.size());
    }
    bool is_symbolic() const { return value_of<bool>(&migraphx_dynamic_dimension_is_symbolic, get_handle_ptr()); }
    bool is_fixed() const { return value_of<bool>(&migraphx_dynamic_dimension_is_fixed, get_handle_ptr()); }
    friend bool operator==(const dynamic_dimension& x, const dynamic_dimension& y)
    {
        return value_of<bool>(&migraphx_dynamic_dimension_equal, x.get_handle_ptr(), y.get_handle_ptr());
    }
    friend bool operator!=(const dynamic_dimension& x, const dynamic_dimension& y) { return !(x == y); }

private:
    using named_ranges = std::vector<std::pair<std::string, dynamic_dimension>>;
};

class dynamic_dimensions : public handle_base<migraphx_dynamic_dimensions>, public array_base<dynamic_dimensions> {
public:
    using handle_base::handle_base;
    template <class... Ts, class = std::enable_if_t<(sizeof...(Ts) > 0) && all_convert<dynamic_dimension, Ts...>::value>>
    dynamic_dimensions(Ts... dimensions)
    {
        std::array<const_migraphx_dynamic_dimension_t, sizeof...(Ts)> all{{dimensions.get_handle_ptr()...}};
        make_handle(&migraphx_dynamic_dimensions_create, all.data(), all.size());
    }
    explicit dynamic_dimensions(const std::vector<dynamic_dimension>& dimensions)
    {
        std::vector<const_migraphx_dynamic_dimension_t> all;
        for (const auto& d : dimensions) all.push_back(d.get_handle_ptr());
        make_handle(&migraphx_dynamic_dimensions_create, all.data(), all.size());
    }
    size_t size() const { return value_of<size_t>(&migraphx_dynamic_dimensions_size, get_handle_ptr()); }
    dynamic_dimension operator[](size_t index) const
    {
        return {value_of<const_migraphx_dynamic_dimension_t>(&migraphx_dynamic_dimensions_get, get_handle_ptr(), index),
                share_handle()};
    }
};

/* Element type, extents and strides of a tensor. */
class shape : public handle_base<const migraphx_shape> {
    std::vector<size_t> numbers(migraphx_status (*function)(const size_t**, size_t*, const_migraphx_shape_t)) const
    {
        const size_t* first = nullptr;
        size_t count = 0;
        call(function, &first, &count, get_handle_ptr());
        return {first, first + count};
    }

public:
    using handle_base::handle_base;
    shape() = default;
    shape(migraphx_shape_datatype_t type) { make_handle(&migraphx_shape_create_scalar, type); }
    shape(migraphx_shape_datatype_t type, std::vector<size_t> lengths)
    {
        make_handle(&migraphx_shape_create, type, lengths.data(), lengths.size());
    }
    shape(migraphx_shape_datatype_t type, std::initializer_list<size_t> lengths) : shape(type, std::vector<size_t>(lengths))
    {
    }
    shape(migraphx_shape_datatype_t type, std::vector<size_t> lengths, std::vector<size_t> strides)
    {
        make_handle(&migraphx_shape_create_with_strides, type, lengths.data(), lengths.size(), strides.data(), strides.size());
    }
    shape(migraphx_shape_datatype_t type, const dynamic_dimensions& dimensions)
    {
        make_handle(&migraphx_shape_create_dynamic, type, dimensions.get_handle_ptr());
    }
    /* From symbolic extents, and optionally strides, as expressions: {"n({[1..8]}, {2, 4})", "3"}. */
    shape(migraphx_shape_datatype_t type, std::initializer_list<std::string> expressions,
          std::initializer_list<std::string> strides = {})
    {
        std::vector<const char*> dims, steps;
        for (const auto& text : expressions) dims.push_back(text.c_str());
        for (const auto& text : strides) steps.push_back(text.c_str());
        make_handle(&migraphx_shape_create_symbolic, type, dims.data(), dims.size(), steps.data(), steps.size());
    }

    std::vector<size_t> lengths() const { return numbers(&migraphx_shape_lengths); }
    std::vector<size_t> strides() const { return numbers(&migraphx_shape_strides); }
    dynamic_dimensions dyn_dims() const
    {
        return {value_of<migraphx_dynamic_dimensions_t>(&migraphx_shape_dyn_dims, get_handle_ptr()), own{}};
    }
    migraphx_shape_datatype_t type() const
    {
        return value_of<migraphx_shape_datatype_t>(&migraphx_shape_type, get_handle_ptr());
    }
    size_t elements() const { return value_of<size_t>(&migraphx_shape_elements, get_handle_ptr()); }
    size_t bytes() const { return value_of<size_t>(&migraphx_shape_bytes, get_handle_ptr()); }
    size_t ndim() const { return value_of<size_t>(&migraphx_shape_ndim, get_handle_ptr()); }
    bool standard() const { return value_of<bool>(&migraphx_shape_standard, get_handle_ptr()); }
    bool dynamic() const { return value_of<bool>(&migraphx_shape_dynamic, get_handle_ptr()); }
    size_t index(size_t i) const { return value_of<size_t>(&migraphx_shape_index, get_handle_ptr(), i); }

    friend bool operator==(const shape& x, const shape& y)
    {
        return value_of<bool>(&migraphx_shape_equal, x.get_handle_ptr(), y.get_handle_ptr());
    }
    friend bool operator!=(const shape& x, const shape& y) { return !(x == y); }
};

/* Data with a shape.  Constructed from a pointer it borrows the memory; constructed from a shape alone it allocates and owns it. */
class argument : public handle_base<const migraphx_argument> {
public:
    using handle_base::handle_base;
    argument() = default;
    argument(const shape& of, void* buffer) { make_handle(&migraphx_argument_create, of.get_handle_ptr(), buffer); }
    explicit argument(const shape& of) { make_handle(&migraphx_argument_create_empty, of.get_handle_ptr()); }

    static argument generate(const shape& of, size_t seed = 0)
    {
        return {value_of<migraphx_argument_t>(&migraphx_argument_generate, of.get_handle_ptr(), seed), own{}};
    }
    shape get_shape() const
    {
        return {value_of<const_migraphx_shape_t>(&migraphx_argument_shape, get_handle_ptr()), share_handle()};
    }
    char* data() const { return value_of<char*>(&migraphx_argument_buffer, get_handle_ptr()); }

    /* Returns the elements in row-major order, independently of the strides.  T must have the size of an element. */
    template <class T>
    std::vector<T> as_vector() const
    {
        shape of = get_shape();
        size_t count = of.elements();
        if (count && of.bytes() && sizeof(T) * count > of.bytes() && of.standard())
            throw std::runtime_error("as_vector: the vector's elements are larger than the argument's; use a type of their size");
        std::vector<T> all(count);
        const T* first = reinterpret_cast<const T*>(data());
        if (of.standard())
            std::copy(first, first + count, all.begin());
        else
            for (size_t i = 0; i < count; ++i) all[i] = first[of.index(i)];
        return all;
    }

    friend bool operator==(const argument& x, const argument& y)
    {
        return value_of<bool>(&migraphx_argument_equal, x.get_handle_ptr(), y.get_handle_ptr());
    }
    friend bool operator!=(const argument& x, const argument& y) { return !(x == y); }
};

inline void save_argument(const argument& a, const std::string& filename)
{
    call(&migraphx_argument_save, a.get_handle_ptr(), filename.c_str());
}
inline argument load_argument(const std::string& filename)
{
    return {value_of<migraphx_argument_t>(&migraphx_argument_load, filename.c_str()), own{}};
}

class target : public handle_base<migraphx_target> {
public:
    using handle_base::handle_base;
    target() = default;
    target(const char* name) { make_handle(&migraphx_target_create, name); }
};

/* Shapes of a program's parameters by name. */
class program_parameter_shapes : public handle_base<migraphx_program_parameter_shapes> {
public:
    using handle_base::handle_base;
    size_t size() const { return value_of<size_t>(&migraphx_program_parameter_shapes_size, get_handle_ptr()); }
    shape operator[](const char* name) const
    {
        return {value_of<const_migraphx_shape_t>(&migraphx_program_parameter_shapes_get, get_handle_ptr(), name),
                share_handle()};
    }
    std::vector<const char*> names() const
    {
        std::vector<const char*> all(size());
        if (!all.empty()) call(&migraphx_program_parameter_shapes_names, all.data(), get_handle_ptr());
        return all;
    }
};

/* Values for a program's parameters by name. */
class program_parameters : public handle_base<migraphx_program_parameters> {
public:
    using handle_base::handle_base;
    program_parameters() { make_handle(&migraphx_program_parameters_create); }
    program_parameters(std::initializer_list<std::pair<std::string, argument>> values) : program_parameters()
    {
        for (const auto& value : values) add(value.first.c_str(), value.second);
    }
    void add(const char* name, const argument& value) const
    {
        call(&migraphx_program_parameters_add, get_handle_ptr(), name, value.get_handle_ptr());
    }
};

class arguments : public handle_base<migraphx_arguments>, public array_base<arguments> {
public:
    using handle_base::handle_base;
    size_t size() const { return value_of<size_t>(&migraphx_arguments_size, get_handle_ptr()); }
    argument operator[](size_t index) const
    {
        return {value_of<const_migraphx_argument_t>(&migraphx_arguments_get, get_handle_ptr(), index), share_handle()};
    }
};

class shapes : public handle_base<migraphx_shapes>, public array_base<shapes> {
public:
    using handle_base::handle_base;
    size_t size() const { return value_of<size_t>(&migraphx_shapes_size, get_handle_ptr()); }
    shape operator[](size_t index) const
    {
        return {value_of<const_migraphx_shape_t>(&migraphx_shapes_get, get_handle_ptr(), index), share_handle()};
    }
};

/* An op with attributes: operation("reduce_mean", "{axes: [%d]}", 1). */
class operation : public handle_base<migraphx_operation> {
public:
    using handle_base::handle_base;
    template <class... Ts>
    operation(const char* name, const char* attributes = nullptr, Ts... values)
    {
        make_handle(&migraphx_operation_create, name, attributes, values...);
    }
    std::string name() const
    {
        std::array<char, 1024> text{};
        call(&migraphx_operation_name, text.data(), text.size(), get_handle_ptr());
        return text.data();
    }
};

class instruction : public handle_base<const migraphx_instruction> {
public:
    using handle_base::handle_base;
};

class instructions : public handle_base<migraphx_instructions> {
public:
    using handle_base::handle_base;
    template <class... Ts, class = std::enable_if_t<all_convert<instruction, Ts...>::value>>
    instructions(Ts... all)
    {
        std::array<const_migraphx_instruction_t, sizeof...(Ts)> handles{{all.get_handle_ptr()...}};
        make_handle(&migraphx_instructions_create, handles.data(), handles.size());
    }
};

/* A list of instructions, owned by its program, which it keeps alive. */
class module {
public:
    module(migraphx_module* p, borrow) : handle_(p, [](migraphx_module*) {}) {}
    template <class Owner>
    module(migraphx_module* p, share<Owner> owner) : handle_(std::move(owner.owner), p)
    {
    }

    migraphx_module_t get_handle_ptr() const { return handle_.get(); }
    void print() const { call(&migraphx_module_print, get_handle_ptr()); }
    instruction add_instruction(const operation& op, const instructions& args) const
    {
        return made(&migraphx_module_add_instruction, op.get_handle_ptr(), args.get_handle_ptr());
    }
    instruction add_instruction(const operation& op, const instructions& args, const modules& bodies) const;
    template <class T>
    instruction add_literal(const shape& of, const T* buffer) const
    {
        return made(&migraphx_module_add_literal, of.get_handle_ptr(), reinterpret_cast<const char*>(buffer));
    }
    instruction add_parameter(const std::string& name, const shape& of) const
    {
        return made(&migraphx_module_add_parameter, name.c_str(), of.get_handle_ptr());
    }
    instruction add_return(const instructions& args) const { return made(&migraphx_module_add_return, args.get_handle_ptr()); }
    instruction add_allocation(const shape& of) const { return made(&migraphx_module_add_allocation, of.get_handle_ptr()); }

private:
    template <class Function, class... Arguments>
    instruction made(Function function, Arguments... arguments) const
    {
        return {value_of<migraphx_instruction_t>(function, get_handle_ptr(), arguments...), own{}};
    }
    std::shared_ptr<migraphx_module> handle_;
};

class modules : public handle_base<migraphx_modules> {
public:
    using handle_base::handle_base;
    template <class... Ts, class = std::enable_if_t<(sizeof...(Ts) > 0) && all_convert<module, Ts...>::value>>
    modules(Ts... all)
    {
        std::array<migraphx_module_t, sizeof...(Ts)> handles{{all.get_handle_ptr()...}};
        make_handle(&migraphx_modules_create, handles.data(), handles.size());
    }
};

inline instruction module::add_instruction(const operation& op, const instructions& args, const modules& bodies) const
{
    return made(&migraphx_module_add_instruction_with_mod_args, op.get_handle_ptr(), args.get_handle_ptr(),
                bodies.get_handle_ptr());
}

/* Execution context of a target. */
class context {
public:
    context(migraphx_context* p, borrow) : handle_(p, [](migraphx_context*) {}) {}
    template <class Owner>
    context(migraphx_context* p, share<Owner> owner) : handle_(std::move(owner.owner), p)
    {
    }
    void finish() const { call(&migraphx_context_finish, handle_.get()); }

    /* Returns the stream as the target's own type; null for targets without streams. */
    template <class T>
    T get_queue() const
    {
        return reinterpret_cast<T>(value_of<void*>(&migraphx_context_get_queue, handle_.get()));
    }

private:
    std::shared_ptr<migraphx_context> handle_;
};

class compile_options : public handle_base<migraphx_compile_options> {
public:
    using handle_base::handle_base;
    compile_options() { make_handle(&migraphx_compile_options_create); }

    /* If true, parameters and results are in host memory and the program copies them to the device and back. */
    void set_offload_copy(bool value = true) { call(&migraphx_compile_options_set_offload_copy, get_handle_ptr(), value); }
    void set_fast_math(bool value = true) { call(&migraphx_compile_options_set_fast_math, get_handle_ptr(), value); }
    void set_exhaustive_tune_flag(bool value = true)
    {
        call(&migraphx_compile_options_set_exhaustive_tune_flag, get_handle_ptr(), value);
    }
    /* `value` is a migraphx_compile_mode; other values are rounded to the nearest. */
    void set_compile_mode(int value) { call(&migraphx_compile_options_set_compile_mode, get_handle_ptr(), value); }
};

/* One instruction of a traced run; valid only during the callback. */
class trace_info : public handle_base<const migraphx_trace_info> {
public:
    using handle_base::handle_base;
    size_t get_index() const { return value_of<size_t>(&migraphx_trace_info_get_index, get_handle_ptr()); }
    std::string get_name() const { return value_of<const char*>(&migraphx_trace_info_get_name, get_handle_ptr()); }
    argument get_result() const
    {
        return {value_of<const_migraphx_argument_t>(&migraphx_trace_info_get_result, get_handle_ptr()), share_handle()};
    }
};

/* Options of program::verify; see migraphx.h for the defaults. */
class program_verify_options : public handle_base<migraphx_program_verify_options> {
public:
    using handle_base::handle_base;
    program_verify_options() { make_handle(&migraphx_program_verify_options_create); }

    void set_compile_options(const compile_options& options)
    {
        call(&migraphx_program_verify_options_set_compile_options, get_handle_ptr(), options.get_handle_ptr());
    }
    void set_rms_tolerance(double value)
    {
        call(&migraphx_program_verify_options_set_rms_tolerance, get_handle_ptr(), value);
    }
    void set_absolute_tolerance(double value)
    {
        call(&migraphx_program_verify_options_set_absolute_tolerance, get_handle_ptr(), value);
    }
    void set_relative_tolerance(double value)
    {
        call(&migraphx_program_verify_options_set_relative_tolerance, get_handle_ptr(), value);
    }
    void set_precision(migraphx_program_verify_precision value)
    {
        call(&migraphx_program_verify_options_set_precision, get_handle_ptr(), value);
    }
    void set_ref_use_double(bool value = true)
    {
        call(&migraphx_program_verify_options_set_ref_use_double, get_handle_ptr(), value);
    }
    void set_compiled_model(const std::string& filename)
    {
        call(&migraphx_program_verify_options_set_compiled_model, get_handle_ptr(), filename.c_str());
    }
    void set_name(const std::string& name)
    {
        call(&migraphx_program_verify_options_set_name, get_handle_ptr(), name.c_str());
    }
};

/* One comparison of a verification. */
class program_verify_layer : public handle_base<const migraphx_program_verify_layer> {
public:
    using handle_base::handle_base;
    std::string get_name() const { return value_of<const char*>(&migraphx_program_verify_layer_get_name, get_handle_ptr()); }
    std::string get_operator() const
    {
        return value_of<const char*>(&migraphx_program_verify_layer_get_operator, get_handle_ptr());
    }
    std::string get_message() const
    {
        return value_of<const char*>(&migraphx_program_verify_layer_get_message, get_handle_ptr());
    }
    size_t get_index() const { return value_of<size_t>(&migraphx_program_verify_layer_get_index, get_handle_ptr()); }
    double get_rms_error() const { return value_of<double>(&migraphx_program_verify_layer_get_rms_error, get_handle_ptr()); }
    bool passed() const { return value_of<bool>(&migraphx_program_verify_layer_passed, get_handle_ptr()); }
    bool threw_exception() const
    {
        return value_of<bool>(&migraphx_program_verify_layer_threw_exception, get_handle_ptr());
    }
};

/* All comparisons of one call of program::verify. */
class program_verify_result : public handle_base<migraphx_program_verify_result>, public array_base<program_verify_result> {
public:
    using handle_base::handle_base;
    bool passed() const { return value_of<bool>(&migraphx_program_verify_result_passed, get_handle_ptr()); }
    migraphx_program_verify_mode get_mode() const
    {
        return value_of<migraphx_program_verify_mode>(&migraphx_program_verify_result_get_mode, get_handle_ptr());
    }
    bool has_failure_step() const
    {
        return value_of<bool>(&migraphx_program_verify_result_has_failure_step, get_handle_ptr());
    }
    /* Returns the first instruction that differs.  Throws if there is none. */
    size_t get_failure_step() const
    {
        return value_of<size_t>(&migraphx_program_verify_result_get_failure_step, get_handle_ptr());
    }
    size_t size() const { return value_of<size_t>(&migraphx_program_verify_result_size, get_handle_ptr()); }
    program_verify_layer operator[](size_t index) const
    {
        return {value_of<const_migraphx_program_verify_layer_t>(&migraphx_program_verify_result_get, get_handle_ptr(), index),
                share_handle()};
    }
};

/* A model: built or parsed, then compiled for a target and run. */
class program : public handle_base<migraphx_program> {
public:
    using handle_base::handle_base;
    program() { make_handle(&migraphx_program_create); }

    void compile(const target& on, const compile_options& options) const
    {
        call(&migraphx_program_compile, get_handle_ptr(), on.get_handle_ptr(), options.get_handle_ptr());
    }
    void compile(const target& on) const { compile(on, compile_options{}); }
    program_parameter_shapes get_parameter_shapes() const
    {
        return {value_of<migraphx_program_parameter_shapes_t>(&migraphx_program_get_parameter_shapes, get_handle_ptr()),
                own{}};
    }
    shapes get_output_shapes() const
    {
        return {value_of<migraphx_shapes_t>(&migraphx_program_get_output_shapes, get_handle_ptr()), own{}};
    }
    arguments eval(const program_parameters& values) const
    {
        return {value_of<migraphx_arguments_t>(&migraphx_program_run, get_handle_ptr(), values.get_handle_ptr()), own{}};
    }

    /* Enqueues a run on the caller's stream.  The results may be read after synchronizing with the stream. */
    template <class Stream>
    arguments run_async(const program_parameters& values, Stream* stream) const
    {
        return {value_of<migraphx_arguments_t>(&migraphx_program_run_async, get_handle_ptr(), values.get_handle_ptr(),
                                               static_cast<void*>(stream), stream_name<Stream>()),
                own{}};
    }

    /* Runs like eval and calls callback(trace_info) for each instruction in order.  An exception thrown by it ends the run. */
    template <class Callback>
    arguments run_trace(const program_parameters& values, Callback callback) const
    {
        auto called = [](migraphx_trace_info_t info, void* data) -> migraphx_status {
            try {
                (*static_cast<Callback*>(data))(trace_info(info, borrow{}));
                return migraphx_status_success;
            } catch (...) {
                return migraphx_status_unknown_error;
            }
        };
        migraphx_trace_callback_t function = called;
        return {value_of<migraphx_arguments_t>(&migraphx_program_run_trace, get_handle_ptr(), values.get_handle_ptr(),
                                               function, static_cast<void*>(&callback)),
                own{}};
    }

    /* Runs the program on a target and on the reference and compares the results.  Parameters that are not given are random. */
    program_verify_result verify(const target& on,
                                 migraphx_program_verify_mode mode = migraphx_program_verify_mode_outputs,
                                 const program_parameters& values = program_parameters(),
                                 const program_verify_options& options = program_verify_options()) const
    {
        return {value_of<migraphx_program_verify_result_t>(&migraphx_program_verify, get_handle_ptr(), on.get_handle_ptr(),
                                                           mode, values.get_handle_ptr(), options.get_handle_ptr()),
                own{}};
    }

    void print() const { call(&migraphx_program_print, get_handle_ptr()); }
    /* Writes the program as an ONNX model for viewers such as Netron. */
    void write_netron_output(const char* filename) const
    {
        call(&migraphx_program_write_netron_output, get_handle_ptr(), filename);
    }
    program sort() const
    {
        call(&migraphx_program_sort, get_handle_ptr());
        return *this;
    }
    module get_main_module() const
    {
        return {value_of<migraphx_module_t>(&migraphx_program_get_main_module, get_handle_ptr()), share_handle()};
    }
    module create_module(const std::string& name) const
    {
        return {value_of<migraphx_module_t>(&migraphx_program_create_module, get_handle_ptr(), name.c_str()), share_handle()};
    }
    context experimental_get_context() const
    {
        return {value_of<migraphx_context_t>(&migraphx_program_experimental_get_context, get_handle_ptr()), share_handle()};
    }

    friend bool operator==(const program& x, const program& y)
    {
        return value_of<bool>(&migraphx_program_equal, x.get_handle_ptr(), y.get_handle_ptr());
    }
    friend bool operator!=(const program& x, const program& y) { return !(x == y); }

private:
    /* Returns the name of the stream's type, extracted from this function's signature: "... [with Stream = ihipStream_t]". */
    template <class Stream>
    static const char* stream_name()
    {
        static const std::string name = [](const std::string& text) {
            const std::string mark = "Stream = ";
            auto first = text.find(mark) + mark.size();
            return text.substr(first, text.find_first_of(";]", first) - first);
        }(__PRETTY_FUNCTION__);
        return name.c_str();
    }
};

/* The format of a program file. */
class file_options : public handle_base<migraphx_file_options> {
public:
    using handle_base::handle_base;
    file_options() { make_handle(&migraphx_file_options_create); }
    void set_file_format(const char* format) { call(&migraphx_file_options_set_file_format, get_handle_ptr(), format); }
};

inline program load(const char* filename, const file_options& options = {})
{
    return {value_of<migraphx_program_t>(&migraphx_load, filename, options.get_handle_ptr()), own{}};
}
inline void save(const program& p, const char* filename, const file_options& options = {})
{
    call(&migraphx_save, p.get_handle_ptr(), filename, options.get_handle_ptr());
}

/* Options of the ONNX parser. */
class onnx_options : public handle_base<migraphx_onnx_options> {
public:
    using handle_base::handle_base;
    onnx_options() { make_handle(&migraphx_onnx_options_create); }
    void set_input_parameter_shape(const std::string& name, std::vector<size_t> lengths)
    {
        call(&migraphx_onnx_options_set_input_parameter_shape, get_handle_ptr(), name.c_str(), lengths.data(), lengths.size());
    }
    void set_dyn_input_parameter_shape(const std::string& name, const dynamic_dimensions& dimensions)
    {
        call(&migraphx_onnx_options_set_dyn_input_parameter_shape, get_handle_ptr(), name.c_str(),
             dimensions.get_handle_ptr());
    }
    void set_default_dim_value(unsigned int value)
    {
        call(&migraphx_onnx_options_set_default_dim_value, get_handle_ptr(), value);
    }
    void set_default_dyn_dim_value(const dynamic_dimension& value)
    {
        call(&migraphx_onnx_options_set_default_dyn_dim_value, get_handle_ptr(), value.get_handle_ptr());
    }
    void set_default_loop_iterations(int64_t value)
    {
        call(&migraphx_onnx_options_set_default_loop_iterations, get_handle_ptr(), value);
    }
    void set_limit_loop_iterations(int64_t value)
    {
        call(&migraphx_onnx_options_set_limit_loop_iterations, get_handle_ptr(), value);
    }
    void set_external_data_path(const std::string& path)
    {
        call(&migraphx_onnx_options_set_external_data_path, get_handle_ptr(), path.c_str());
    }
    void set_use_debug_symbols(bool value = true)
    {
        call(&migraphx_onnx_options_set_use_debug_symbols, get_handle_ptr(), value);
    }
};

inline program parse_onnx(const char* filename, const onnx_options& options = {})
{
    return {value_of<migraphx_program_t>(&migraphx_parse_onnx, filename, options.get_handle_ptr()), own{}};
}
inline program parse_onnx_buffer(const void* data, size_t size, const onnx_options& options = {})
{
    return {value_of<migraphx_program_t>(&migraphx_parse_onnx_buffer, data, size, options.get_handle_ptr()), own{}};
}
inline program parse_onnx_buffer(const std::string& buffer, const onnx_options& options = {})
{
    return parse_onnx_buffer(buffer.data(), buffer.size(), options);
}

/* Options of the TensorFlow parser. */
class tf_options : public handle_base<migraphx_tf_options> {
public:
    using handle_base::handle_base;
    tf_options() { make_handle(&migraphx_tf_options_create); }
    void set_nhwc(bool is_nhwc = true) { call(&migraphx_tf_options_set_nhwc, get_handle_ptr(), is_nhwc); }
    void set_input_parameter_shape(const std::string& name, std::vector<size_t> lengths)
    {
        call(&migraphx_tf_options_set_input_parameter_shape, get_handle_ptr(), name.c_str(), lengths.data(), lengths.size());
    }
    void set_default_dim_value(unsigned int value)
    {
        call(&migraphx_tf_options_set_default_dim_value, get_handle_ptr(), value);
    }
    void set_output_names(std::vector<const char*> names)
    {
        call(&migraphx_tf_options_set_output_names, get_handle_ptr(), names.data(), names.size());
    }
};

inline program parse_tf(const char* filename, const tf_options& options = {})
{
    return {value_of<migraphx_program_t>(&migraphx_parse_tf, filename, options.get_handle_ptr()), own{}};
}
inline program parse_tf_buffer(const void* data, size_t size, const tf_options& options = {})
{
    return {value_of<migraphx_program_t>(&migraphx_parse_tf_buffer, data, size, options.get_handle_ptr()), own{}};
}
inline program parse_tf_buffer(const std::string& buffer, const tf_options& options = {})
{
    return parse_tf_buffer(buffer.data(), buffer.size(), options);
}

/* Names of the ops to quantize. */
class quantize_op_names : public handle_base<migraphx_quantize_op_names> {
public:
    using handle_base::handle_base;
    quantize_op_names() { make_handle(&migraphx_quantize_op_names_create); }
    void add(const std::string& name) { call(&migraphx_quantize_op_names_add, get_handle_ptr(), name.c_str()); }
};

inline void quantize_fp16(const program& p) { call(&migraphx_quantize_fp16, p.get_handle_ptr()); }
inline void quantize_fp16(const program& p, const quantize_op_names& names)
{
    call(&migraphx_quantize_fp16_with_op_names, p.get_handle_ptr(), names.get_handle_ptr());
}
inline void quantize_bf16(const program& p) { call(&migraphx_quantize_bf16, p.get_handle_ptr()); }
inline void quantize_bf16(const program& p, const quantize_op_names& names)
{
    call(&migraphx_quantize_bf16_with_op_names, p.get_handle_ptr(), names.get_handle_ptr());
}

class quantize_int8_options : public handle_base<migraphx_quantize_int8_options> {
public:
    using handle_base::handle_base;
    quantize_int8_options() { make_handle(&migraphx_quantize_int8_options_create); }
    void add_op_name(const std::string& name)
    {
        call(&migraphx_quantize_int8_options_add_op_name, get_handle_ptr(), name.c_str());
    }
    void add_calibration_data(const program_parameters& values)
    {
        call(&migraphx_quantize_int8_options_add_calibration_data, get_handle_ptr(), values.get_handle_ptr());
    }
};

inline void quantize_int8(const program& p, const target& on, const quantize_int8_options& options)
{
    call(&migraphx_quantize_int8, p.get_handle_ptr(), on.get_handle_ptr(), options.get_handle_ptr());
}

class quantize_fp8_options : public handle_base<migraphx_quantize_fp8_options> {
public:
    using handle_base::handle_base;
    quantize_fp8_options() { make_handle(&migraphx_quantize_fp8_options_create); }
    void add_calibration_data(const program_parameters& values)
    {
        call(&migraphx_quantize_fp8_options_add_calibration_data, get_handle_ptr(), values.get_handle_ptr());
    }
};

inline void quantize_fp8(const program& p, const target& on, const quantize_fp8_options& options)
{
    call(&migraphx_quantize_fp8, p.get_handle_ptr(), on.get_handle_ptr(), options.get_handle_ptr());
}

inline std::vector<std::string> get_onnx_operators()
{
    std::vector<std::string> all(value_of<size_t>(&migraphx_get_onnx_operators_size));
    for (size_t i = 0; i < all.size(); ++i) all[i] = value_of<char*>(&migraphx_get_onnx_operator_name_at_index, i);
    return all;
}

/* Base of user-defined operators: derive a final, copyable class and register an instance. */
struct experimental_custom_op_base {
    virtual ~experimental_custom_op_base() = default;
    virtual std::string name() const = 0;
    virtual argument compute(context ctx, shape output, arguments inputs) const = 0;
    virtual shape compute_shape(shapes inputs) const = 0;

    /* Returns the indices of the inputs that the result aliases. */
    virtual std::vector<size_t> output_alias(shapes) const { return {}; }
    /* Returns true if compute works on device memory; otherwise values are copied to the host and back. */
    virtual bool runs_on_offload_target() const { return true; }
};

class experimental_custom_op : public handle_base<migraphx_experimental_custom_op> {
public:
    template <class T>
    explicit experimental_custom_op(T& op)
    {
        make_handle(&migraphx_experimental_custom_op_create, static_cast<void*>(&op), &copy<T>, &destroy<T>,
                    typeid_of<T>(), op.name().c_str());
        auto* self = get_handle_ptr();
        call(&migraphx_experimental_custom_op_set_compute, self, &compute<T>);
        call(&migraphx_experimental_custom_op_set_compute_shape, self, &compute_shape<T>);
        call(&migraphx_experimental_custom_op_set_output_alias, self, &output_alias<T>);
        call(&migraphx_experimental_custom_op_set_runs_on_offload_target, self, &runs_on_offload_target<T>);
    }
    void register_op() const { call(&migraphx_experimental_custom_op_register, get_handle_ptr()); }

private:
    template <class Function>
    static migraphx_status guarded(char* message, size_t room, Function function)
    {
        try {
            function();
            return migraphx_status_success;
        } catch (const std::exception& error) {
            if (message && room) std::snprintf(message, room, "%s", error.what());
        } catch (...) {
        }
        return migraphx_status_unknown_error;
    }
    template <class T>
    static const char* typeid_of()
    {
        return __PRETTY_FUNCTION__;
    }
    template <class T>
    static migraphx_status copy(void** out, void* from)
    {
        return guarded(nullptr, 0, [&] { *out = new T(*static_cast<T*>(from)); });
    }
    template <class T>
    static migraphx_status destroy(void* op)
    {
        return guarded(nullptr, 0, [&] { delete static_cast<T*>(op); });
    }
    template <class T>
    static migraphx_status compute(migraphx_argument_t out, void* op, char* message, size_t room, migraphx_context_t ctx,
                                   migraphx_shape_t output, migraphx_arguments_t inputs)
    {
        return guarded(message, room, [&] {
            static_cast<T*>(op)
                ->compute(context(ctx, borrow{}), shape(output, borrow{}), arguments(inputs, borrow{}))
                .assign_to_handle(out);
        });
    }
    template <class T>
    static migraphx_status compute_shape(migraphx_shape_t out, void* op, char* message, size_t room, migraphx_shapes_t inputs)
    {
        return guarded(message, room, [&] {
            static_cast<T*>(op)->compute_shape(shapes(inputs, borrow{})).assign_to_handle(out);
        });
    }
    template <class T>
    static migraphx_status output_alias(size_t* out, size_t* size, void* op, char* message, size_t room,
                                        migraphx_shapes_t inputs)
    {
        return guarded(message, room, [&] {
            auto all = static_cast<T*>(op)->output_alias(shapes(inputs, borrow{}));
            *size = all.size();
            std::copy(all.begin(), all.end(), out);
        });
    }
    template <class T>
    static migraphx_status runs_on_offload_target(bool* out, void* op, char* message, size_t room)
    {
        return guarded(message, room, [&] { *out = static_cast<T*>(op)->runs_on_offload_target(); });
    }
};

template <class T>
using require_custom_op = std::enable_if_t<std::is_base_of<experimental_custom_op_base, T>::value &&
                                           std::is_copy_constructible<T>::value && std::is_final<T>::value>;

/* Registers the operator under its name, for operation(). */
template <class T, class = require_custom_op<T>>
void register_experimental_custom_op(T& op)
{
    experimental_custom_op(op).register_op();
}

} // namespace api
} // namespace migraphx

#endif
