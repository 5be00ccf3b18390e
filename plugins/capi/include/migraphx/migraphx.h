/* C API of mgx, source-compatible with MIGraphX's.

   Handles are opaque.  A handle stored through a first parameter of type `migraphx_NAME_t*` is owned by the caller, who releases it with
   migraphx_NAME_destroy.  One stored through a `const_migraphx_NAME_t*` is owned by the handle it was obtained from and is valid as long
   as that.  Every function returns a status; mgx_last_error() returns the message of the calling thread's last failure.  All functions
   may be called from any thread. */
#ifndef MGX_C_MIGRAPHX_H
#define MGX_C_MIGRAPHX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef MIGRAPHX_C_EXPORT
#define MIGRAPHX_C_EXPORT __attribute__((visibility("default")))
#endif

/* X-macro over the element types and their C++ types. */
#define MIGRAPHX_SHAPE_VISIT_TYPES(m)                                                                                  \
    m(bool_type, bool) m(half_type, half) m(float_type, float) m(double_type, double) m(uint8_type, uint8_t)           \
        m(int8_type, int8_t) m(uint16_type, uint16_t) m(int16_type, int16_t) m(int32_type, int32_t)                    \
            m(int64_type, int64_t) m(uint32_type, uint32_t) m(uint64_type, uint64_t)                                   \
                m(fp8e4m3fnuz_type, migraphx::fp8::fp8e4m3fnuz) m(fp8e4m3fn_type, migraphx::fp8::fp8e4m3fn)            \
                    m(fp8e5m2_type, migraphx::fp8::fp8e5m2) m(bf16_type, bf16)                                         \
                        m(fp8e5m2fnuz_type, migraphx::fp8::fp8e5m2fnuz)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    migraphx_status_success = 0,
    migraphx_status_bad_param = 1,
    migraphx_status_unknown_target = 3,
    migraphx_status_unknown_error = 4
} migraphx_status;

typedef enum {
    migraphx_compile_mode_eager = 0,
    migraphx_compile_mode_balanced = 50,
    migraphx_compile_mode_max = 100
} migraphx_compile_mode;

typedef enum {
    migraphx_program_verify_mode_outputs = 0,
    migraphx_program_verify_mode_instructions = 1,
    migraphx_program_verify_mode_reduce = 2,
    migraphx_program_verify_mode_bisect = 3,
    migraphx_program_verify_mode_layerwise = 4
} migraphx_program_verify_mode;

typedef enum {
    migraphx_program_verify_precision_fp32 = 0,
    migraphx_program_verify_precision_fp16 = 1,
    migraphx_program_verify_precision_bf16 = 2
} migraphx_program_verify_precision;

typedef enum {
    migraphx_shape_tuple_type = 0,
    migraphx_shape_fp4x2_type = 1,
    migraphx_shape_bool_type = 2,
    migraphx_shape_half_type = 3,
    migraphx_shape_float_type = 4,
    migraphx_shape_double_type = 5,
    migraphx_shape_uint8_type = 6,
    migraphx_shape_int8_type = 7,
    migraphx_shape_uint16_type = 8,
    migraphx_shape_int16_type = 9,
    migraphx_shape_int32_type = 10,
    migraphx_shape_int64_type = 11,
    migraphx_shape_uint32_type = 12,
    migraphx_shape_uint64_type = 13,
    migraphx_shape_fp8e4m3fnuz_type = 14,
    migraphx_shape_fp8e4m3fn_type = 15,
    migraphx_shape_fp8e5m2_type = 16,
    migraphx_shape_bf16_type = 17,
    migraphx_shape_fp8e5m2fnuz_type = 18
} migraphx_shape_datatype_t;

typedef struct migraphx_optimals* migraphx_optimals_t;
typedef const struct migraphx_optimals* const_migraphx_optimals_t;
typedef struct migraphx_dynamic_dimension* migraphx_dynamic_dimension_t;
typedef const struct migraphx_dynamic_dimension* const_migraphx_dynamic_dimension_t;
typedef struct migraphx_dynamic_dimensions* migraphx_dynamic_dimensions_t;
typedef const struct migraphx_dynamic_dimensions* const_migraphx_dynamic_dimensions_t;
typedef struct migraphx_shape* migraphx_shape_t;
typedef const struct migraphx_shape* const_migraphx_shape_t;
typedef struct migraphx_argument* migraphx_argument_t;
typedef const struct migraphx_argument* const_migraphx_argument_t;
typedef struct migraphx_target* migraphx_target_t;
typedef const struct migraphx_target* const_migraphx_target_t;
typedef struct migraphx_program_parameter_shapes* migraphx_program_parameter_shapes_t;
typedef const struct migraphx_program_parameter_shapes* const_migraphx_program_parameter_shapes_t;
typedef struct migraphx_program_parameters* migraphx_program_parameters_t;
typedef const struct migraphx_program_parameters* const_migraphx_program_parameters_t;
typedef struct migraphx_arguments* migraphx_arguments_t;
typedef const struct migraphx_arguments* const_migraphx_arguments_t;
typedef struct migraphx_shapes* migraphx_shapes_t;
typedef const struct migraphx_shapes* const_migraphx_shapes_t;
typedef struct migraphx_instruction* migraphx_instruction_t;
typedef const struct migraphx_instruction* const_migraphx_instruction_t;
typedef struct migraphx_instructions* migraphx_instructions_t;
typedef const struct migraphx_instructions* const_migraphx_instructions_t;
typedef struct migraphx_modules* migraphx_modules_t;
typedef const struct migraphx_modules* const_migraphx_modules_t;
typedef struct migraphx_module* migraphx_module_t;
typedef const struct migraphx_module* const_migraphx_module_t;
typedef struct migraphx_trace_info* migraphx_trace_info_t;
typedef const struct migraphx_trace_info* const_migraphx_trace_info_t;
typedef struct migraphx_program* migraphx_program_t;
typedef const struct migraphx_program* const_migraphx_program_t;
typedef struct migraphx_operation* migraphx_operation_t;
typedef const struct migraphx_operation* const_migraphx_operation_t;
typedef struct migraphx_onnx_options* migraphx_onnx_options_t;
typedef const struct migraphx_onnx_options* const_migraphx_onnx_options_t;
typedef struct migraphx_file_options* migraphx_file_options_t;
typedef const struct migraphx_file_options* const_migraphx_file_options_t;
typedef struct migraphx_compile_options* migraphx_compile_options_t;
typedef const struct migraphx_compile_options* const_migraphx_compile_options_t;
typedef struct migraphx_program_verify_options* migraphx_program_verify_options_t;
typedef const struct migraphx_program_verify_options* const_migraphx_program_verify_options_t;
typedef struct migraphx_program_verify_layer* migraphx_program_verify_layer_t;
typedef const struct migraphx_program_verify_layer* const_migraphx_program_verify_layer_t;
typedef struct migraphx_program_verify_result* migraphx_program_verify_result_t;
typedef const struct migraphx_program_verify_result* const_migraphx_program_verify_result_t;
typedef struct migraphx_tf_options* migraphx_tf_options_t;
typedef const struct migraphx_tf_options* const_migraphx_tf_options_t;
typedef struct migraphx_quantize_op_names* migraphx_quantize_op_names_t;
typedef const struct migraphx_quantize_op_names* const_migraphx_quantize_op_names_t;
typedef struct migraphx_quantize_int8_options* migraphx_quantize_int8_options_t;
typedef const struct migraphx_quantize_int8_options* const_migraphx_quantize_int8_options_t;
typedef struct migraphx_quantize_fp8_options* migraphx_quantize_fp8_options_t;
typedef const struct migraphx_quantize_fp8_options* const_migraphx_quantize_fp8_options_t;
typedef struct migraphx_context* migraphx_context_t;
typedef const struct migraphx_context* const_migraphx_context_t;
typedef struct migraphx_experimental_custom_op* migraphx_experimental_custom_op_t;
typedef const struct migraphx_experimental_custom_op* const_migraphx_experimental_custom_op_t;

typedef migraphx_status (*migraphx_trace_callback_t)(migraphx_trace_info_t info, void* data);

/* Callbacks of a custom operator.  On failure they write a null-terminated message to exception_msg. */
typedef migraphx_status (*migraphx_experimental_custom_op_compute)(
    migraphx_argument_t out, void* obj, char* exception_msg, size_t exception_msg_size, migraphx_context_t ctx,
    migraphx_shape_t output, migraphx_arguments_t inputs);
typedef migraphx_status (*migraphx_experimental_custom_op_compute_shape)(
    migraphx_shape_t out, void* obj, char* exception_msg, size_t exception_msg_size, migraphx_shapes_t inputs);
typedef migraphx_status (*migraphx_experimental_custom_op_output_alias)(
    size_t* out, size_t* out_size, void* obj, char* exception_msg, size_t exception_msg_size, migraphx_shapes_t inputs);
typedef migraphx_status (*migraphx_experimental_custom_op_runs_on_offload_target)(
    bool* out, void* obj, char* exception_msg, size_t exception_msg_size);
typedef migraphx_status (*migraphx_experimental_custom_op_copy)(void** out, void* input);
typedef migraphx_status (*migraphx_experimental_custom_op_delete)(void* input);

/* Returns the message of the last failure in the calling thread, empty if there was none.  Valid until the thread's next call. */
MIGRAPHX_C_EXPORT const char* mgx_last_error(void);

/* Preferred extents of a dynamic dimension. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_optimals_destroy(migraphx_optimals_t optimals);
MIGRAPHX_C_EXPORT migraphx_status migraphx_optimals_assign_to(
    migraphx_optimals_t output, const_migraphx_optimals_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_optimals_create(
    migraphx_optimals_t* optimals, const size_t* ptr, size_t size);

/* Range of the extent of one axis. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_destroy(migraphx_dynamic_dimension_t dynamic_dimension);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_assign_to(
    migraphx_dynamic_dimension_t output, const_migraphx_dynamic_dimension_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_create_min_max(
    migraphx_dynamic_dimension_t* dynamic_dimension, size_t min, size_t max);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_create_min_max_optimals(
    migraphx_dynamic_dimension_t* dynamic_dimension, size_t min, size_t max, migraphx_optimals_t optimals);
/* Creates a symbolic extent from an expression and the range of each name in it: "n * 3" with n from 1 to 8.  Ranges and optimal values
   may also be part of the expression: "n({[1..8]}, {2, 4})". */
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_create_symbolic(
    migraphx_dynamic_dimension_t* dynamic_dimension, const char* expression, const char** names, size_t names_size,
    const const_migraphx_dynamic_dimension_t* ranges, size_t ranges_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_is_symbolic(
    bool* out, const_migraphx_dynamic_dimension_t dynamic_dimension);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_is_fixed(
    bool* out, const_migraphx_dynamic_dimension_t dynamic_dimension);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimension_equal(
    bool* out, const_migraphx_dynamic_dimension_t dynamic_dimension, const_migraphx_dynamic_dimension_t x);

/* Ranges of all axes of a shape. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimensions_destroy(migraphx_dynamic_dimensions_t dynamic_dimensions);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimensions_assign_to(
    migraphx_dynamic_dimensions_t output, const_migraphx_dynamic_dimensions_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimensions_create(
    migraphx_dynamic_dimensions_t* dynamic_dimensions, const const_migraphx_dynamic_dimension_t* ptr, size_t size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimensions_size(
    size_t* out, migraphx_dynamic_dimensions_t dynamic_dimensions);
MIGRAPHX_C_EXPORT migraphx_status migraphx_dynamic_dimensions_get(
    const_migraphx_dynamic_dimension_t* out, migraphx_dynamic_dimensions_t dynamic_dimensions, size_t idx);

/* Element type, extents and strides.  Returned arrays are valid as long as the shape. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_destroy(migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_assign_to(migraphx_shape_t output, const_migraphx_shape_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_create(
    migraphx_shape_t* shape, migraphx_shape_datatype_t type, size_t* lengths, size_t lengths_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_create_with_strides(
    migraphx_shape_t* shape, migraphx_shape_datatype_t type, size_t* lengths, size_t lengths_size, size_t* strides,
    size_t strides_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_create_scalar(migraphx_shape_t* shape, migraphx_shape_datatype_t type);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_create_dynamic(
    migraphx_shape_t* shape, migraphx_shape_datatype_t type, migraphx_dynamic_dimensions_t dims);
/* Creates a shape from symbolic extents, and optionally strides, as expressions: "n({[1..8]}, {2, 4})". */
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_create_symbolic(
    migraphx_shape_t* shape, migraphx_shape_datatype_t type, const char** dims, size_t dims_size, const char** strides,
    size_t strides_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_lengths(
    const size_t** out, size_t* out_size, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_strides(
    const size_t** out, size_t* out_size, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_dyn_dims(
    migraphx_dynamic_dimensions_t* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_type(migraphx_shape_datatype_t* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_elements(size_t* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_bytes(size_t* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_ndim(size_t* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_equal(
    bool* out, const_migraphx_shape_t shape, const_migraphx_shape_t x);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_standard(bool* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_dynamic(bool* out, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shape_index(size_t* out, const_migraphx_shape_t shape, size_t i);

/* Data with a shape.  `create` borrows the caller's buffer; `create_empty` allocates one. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_destroy(migraphx_argument_t argument);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_assign_to(
    migraphx_argument_t output, const_migraphx_argument_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_create(
    migraphx_argument_t* argument, const_migraphx_shape_t shape, void* buffer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_create_empty(
    migraphx_argument_t* argument, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_shape(
    const_migraphx_shape_t* out, const_migraphx_argument_t argument);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_buffer(char** out, const_migraphx_argument_t argument);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_equal(
    bool* out, const_migraphx_argument_t argument, const_migraphx_argument_t x);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_save(const_migraphx_argument_t a, const char* filename);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_load(migraphx_argument_t* out, const char* filename);
MIGRAPHX_C_EXPORT migraphx_status migraphx_argument_generate(
    migraphx_argument_t* out, const_migraphx_shape_t s, size_t seed);

/* A target, by name: "ref", "cpu", "gpu", or one that another package registers. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_target_destroy(migraphx_target_t target);
MIGRAPHX_C_EXPORT migraphx_status migraphx_target_assign_to(migraphx_target_t output, const_migraphx_target_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_target_create(migraphx_target_t* target, const char* name);

/* Shapes of a program's parameters by name. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameter_shapes_destroy(
    migraphx_program_parameter_shapes_t program_parameter_shapes);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameter_shapes_assign_to(
    migraphx_program_parameter_shapes_t output, const_migraphx_program_parameter_shapes_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameter_shapes_size(
    size_t* out, migraphx_program_parameter_shapes_t program_parameter_shapes);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameter_shapes_get(
    const_migraphx_shape_t* out, migraphx_program_parameter_shapes_t program_parameter_shapes, const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameter_shapes_names(
    const char** out, migraphx_program_parameter_shapes_t program_parameter_shapes);

/* Values for a program's parameters by name. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameters_destroy(migraphx_program_parameters_t program_parameters);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameters_assign_to(
    migraphx_program_parameters_t output, const_migraphx_program_parameters_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameters_create(migraphx_program_parameters_t* program_parameters);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_parameters_add(
    migraphx_program_parameters_t program_parameters, const char* name, const_migraphx_argument_t argument);

/* The results of a run. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_arguments_destroy(migraphx_arguments_t arguments);
MIGRAPHX_C_EXPORT migraphx_status migraphx_arguments_assign_to(
    migraphx_arguments_t output, const_migraphx_arguments_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_arguments_size(size_t* out, migraphx_arguments_t arguments);
MIGRAPHX_C_EXPORT migraphx_status migraphx_arguments_get(
    const_migraphx_argument_t* out, migraphx_arguments_t arguments, size_t idx);

/* A list of shapes. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_shapes_destroy(migraphx_shapes_t shapes);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shapes_assign_to(migraphx_shapes_t output, const_migraphx_shapes_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shapes_size(size_t* out, migraphx_shapes_t shapes);
MIGRAPHX_C_EXPORT migraphx_status migraphx_shapes_get(
    const_migraphx_shape_t* out, migraphx_shapes_t shapes, size_t idx);

/* One instruction of a module. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_instruction_destroy(migraphx_instruction_t instruction);
MIGRAPHX_C_EXPORT migraphx_status migraphx_instruction_assign_to(
    migraphx_instruction_t output, const_migraphx_instruction_t input);

/* Operands of an instruction. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_instructions_destroy(migraphx_instructions_t instructions);
MIGRAPHX_C_EXPORT migraphx_status migraphx_instructions_assign_to(
    migraphx_instructions_t output, const_migraphx_instructions_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_instructions_create(
    migraphx_instructions_t* instructions, const const_migraphx_instruction_t* ptr, size_t size);

/* Modules that an instruction runs, such as branches. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_modules_destroy(migraphx_modules_t modules);
MIGRAPHX_C_EXPORT migraphx_status migraphx_modules_assign_to(migraphx_modules_t output, const_migraphx_modules_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_modules_create(
    migraphx_modules_t* modules, migraphx_module_t* ptr, size_t size);

/* A list of instructions.  Modules are owned by their program; one made by `create` is owned by the library. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_create(migraphx_module_t* module, char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_print(const_migraphx_module_t module);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_instruction(
    migraphx_instruction_t* out, migraphx_module_t module, migraphx_operation_t op, migraphx_instructions_t args);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_instruction_with_mod_args(
    migraphx_instruction_t* out, migraphx_module_t module, migraphx_operation_t op, migraphx_instructions_t args,
    migraphx_modules_t module_refs);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_literal(
    migraphx_instruction_t* out, migraphx_module_t module, const_migraphx_shape_t shape, const char* buffer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_parameter(
    migraphx_instruction_t* out, migraphx_module_t module, const char* name, const_migraphx_shape_t shape);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_return(
    migraphx_instruction_t* out, migraphx_module_t module, migraphx_instructions_t args);
MIGRAPHX_C_EXPORT migraphx_status migraphx_module_add_allocation(
    migraphx_instruction_t* out, migraphx_module_t module, const_migraphx_shape_t s);

/* Passed to the callback of a traced run; valid only during the callback. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_destroy(migraphx_trace_info_t trace_info);
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_assign_to(
    migraphx_trace_info_t output, const_migraphx_trace_info_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_create(migraphx_trace_info_t* trace_info);
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_get_index(size_t* out, const_migraphx_trace_info_t trace_info);
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_get_name(
    const char** out, const_migraphx_trace_info_t trace_info);
MIGRAPHX_C_EXPORT migraphx_status migraphx_trace_info_get_result(
    const_migraphx_argument_t* out, const_migraphx_trace_info_t trace_info);

/* A model: built or parsed, then compiled for a target and run. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_destroy(migraphx_program_t program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_assign_to(migraphx_program_t output, const_migraphx_program_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_create(migraphx_program_t* program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_get_main_module(migraphx_module_t* out, migraphx_program_t program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_create_module(
    migraphx_module_t* out, migraphx_program_t program, const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_compile(
    migraphx_program_t program, migraphx_target_t target, migraphx_compile_options_t options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_get_parameter_shapes(
    migraphx_program_parameter_shapes_t* out, migraphx_program_t program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_get_output_shapes(
    migraphx_shapes_t* out, migraphx_program_t program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_print(const_migraphx_program_t program);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_sort(migraphx_program_t program);
/* Writes the program as an ONNX model for viewers such as Netron. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_write_netron_output(migraphx_program_t program, const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_run(
    migraphx_arguments_t* out, migraphx_program_t program, migraphx_program_parameters_t params);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_run_async(
    migraphx_arguments_t* out, migraphx_program_t program, migraphx_program_parameters_t params, void* s,
    const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_run_trace(
    migraphx_arguments_t* out, migraphx_program_t program, migraphx_program_parameters_t params,
    migraphx_trace_callback_t callback, void* data);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_equal(
    bool* out, const_migraphx_program_t program, const_migraphx_program_t x);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_experimental_get_context(
    migraphx_context_t* out, const_migraphx_program_t program);

/* An op with attributes.  `attributes` is a printf format of relaxed JSON: {axes: [%d, 1], mode: average}. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_operation_destroy(migraphx_operation_t operation);
MIGRAPHX_C_EXPORT migraphx_status migraphx_operation_assign_to(
    migraphx_operation_t output, const_migraphx_operation_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_operation_create(
    migraphx_operation_t* operation, const char* name, const char* attributes, ...);
MIGRAPHX_C_EXPORT migraphx_status migraphx_operation_name(char* out, size_t out_size, migraphx_operation_t operation);

/* Program files. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_load(
    migraphx_program_t* out, const char* name, migraphx_file_options_t options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_save(
    migraphx_program_t p, const char* name, migraphx_file_options_t options);

/* Options of the ONNX parser. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_destroy(migraphx_onnx_options_t onnx_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_assign_to(
    migraphx_onnx_options_t output, const_migraphx_onnx_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_create(migraphx_onnx_options_t* onnx_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_input_parameter_shape(
    migraphx_onnx_options_t onnx_options, const char* name, size_t* dims, size_t dims_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_dyn_input_parameter_shape(
    migraphx_onnx_options_t onnx_options, const char* name, migraphx_dynamic_dimensions_t dims);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_default_dim_value(
    migraphx_onnx_options_t onnx_options, size_t value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_default_dyn_dim_value(
    migraphx_onnx_options_t onnx_options, const_migraphx_dynamic_dimension_t dd);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_default_loop_iterations(
    migraphx_onnx_options_t onnx_options, int64_t value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_limit_loop_iterations(
    migraphx_onnx_options_t onnx_options, int64_t value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_external_data_path(
    migraphx_onnx_options_t onnx_options, const char* external_data_path);
MIGRAPHX_C_EXPORT migraphx_status migraphx_onnx_options_set_use_debug_symbols(
    migraphx_onnx_options_t onnx_options, bool value);

/* The format of a program file: "msgpack" or "json". */
MIGRAPHX_C_EXPORT migraphx_status migraphx_file_options_destroy(migraphx_file_options_t file_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_file_options_assign_to(
    migraphx_file_options_t output, const_migraphx_file_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_file_options_create(migraphx_file_options_t* file_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_file_options_set_file_format(
    migraphx_file_options_t file_options, const char* format);

/* Compile options. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_destroy(migraphx_compile_options_t compile_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_assign_to(
    migraphx_compile_options_t output, const_migraphx_compile_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_create(migraphx_compile_options_t* compile_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_set_offload_copy(
    migraphx_compile_options_t compile_options, bool value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_set_fast_math(
    migraphx_compile_options_t compile_options, bool value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_set_exhaustive_tune_flag(
    migraphx_compile_options_t compile_options, bool value);
/* `value` is a migraphx_compile_mode; other values are rounded to the nearest. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_compile_options_set_compile_mode(
    migraphx_compile_options_t compile_options, int value);

/* ONNX files and buffers. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_parse_onnx(
    migraphx_program_t* out, const char* name, migraphx_onnx_options_t options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_parse_onnx_buffer(
    migraphx_program_t* out, const void* data, size_t size, migraphx_onnx_options_t options);

/* Options for verifying a program against the reference target.  Default tolerances are MIGraphX's: 0.001; with 16-bit floats 0.08 for
   the RMS error and 0.04 for the others.  compiled_model: file of a compiled program whose results are verified instead. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_destroy(
    migraphx_program_verify_options_t program_verify_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_assign_to(
    migraphx_program_verify_options_t output, const_migraphx_program_verify_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_create(
    migraphx_program_verify_options_t* program_verify_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_compile_options(
    migraphx_program_verify_options_t program_verify_options, migraphx_compile_options_t compile_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_rms_tolerance(
    migraphx_program_verify_options_t program_verify_options, double value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_absolute_tolerance(
    migraphx_program_verify_options_t program_verify_options, double value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_relative_tolerance(
    migraphx_program_verify_options_t program_verify_options, double value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_precision(
    migraphx_program_verify_options_t program_verify_options, migraphx_program_verify_precision value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_ref_use_double(
    migraphx_program_verify_options_t program_verify_options, bool value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_compiled_model(
    migraphx_program_verify_options_t program_verify_options, const char* filename);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_options_set_name(
    migraphx_program_verify_options_t program_verify_options, const char* name);

/* Runs a program on a target and on the reference and compares the results.  Parameters that are not given are random. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify(
    migraphx_program_verify_result_t* out, migraphx_program_t program, migraphx_target_t target,
    migraphx_program_verify_mode mode, migraphx_program_parameters_t params, migraphx_program_verify_options_t options);

/* All comparisons of one call.  get_failure_step returns the index of the first instruction that differs, if any. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_destroy(
    migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_assign_to(
    migraphx_program_verify_result_t output, const_migraphx_program_verify_result_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_passed(
    bool* out, const_migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_get_mode(
    migraphx_program_verify_mode* out, const_migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_has_failure_step(
    bool* out, const_migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_get_failure_step(
    size_t* out, const_migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_size(
    size_t* out, const_migraphx_program_verify_result_t program_verify_result);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_result_get(
    const_migraphx_program_verify_layer_t* out, const_migraphx_program_verify_result_t program_verify_result,
    size_t idx);

/* One comparison.  Its strings are valid as long as the handle; the message explains a failure. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_destroy(
    migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_assign_to(
    migraphx_program_verify_layer_t output, const_migraphx_program_verify_layer_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_get_name(
    const char** out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_get_operator(
    const char** out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_get_message(
    const char** out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_get_index(
    size_t* out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_get_rms_error(
    double* out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_passed(
    bool* out, const_migraphx_program_verify_layer_t program_verify_layer);
MIGRAPHX_C_EXPORT migraphx_status migraphx_program_verify_layer_threw_exception(
    bool* out, const_migraphx_program_verify_layer_t program_verify_layer);

/* Options of the TensorFlow parser. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_destroy(migraphx_tf_options_t tf_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_assign_to(
    migraphx_tf_options_t output, const_migraphx_tf_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_create(migraphx_tf_options_t* tf_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_set_nhwc(migraphx_tf_options_t tf_options, bool is_nhwc);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_set_input_parameter_shape(
    migraphx_tf_options_t tf_options, const char* name, size_t* dims, size_t dims_size);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_set_default_dim_value(
    migraphx_tf_options_t tf_options, size_t value);
MIGRAPHX_C_EXPORT migraphx_status migraphx_tf_options_set_output_names(
    migraphx_tf_options_t tf_options, const char** names, size_t names_size);

/* TensorFlow files and buffers. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_parse_tf(
    migraphx_program_t* out, const char* name, migraphx_tf_options_t options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_parse_tf_buffer(
    migraphx_program_t* out, const void* data, size_t size, migraphx_tf_options_t options);

/* Names of the ops to quantize. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_op_names_destroy(migraphx_quantize_op_names_t quantize_op_names);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_op_names_assign_to(
    migraphx_quantize_op_names_t output, const_migraphx_quantize_op_names_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_op_names_create(migraphx_quantize_op_names_t* quantize_op_names);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_op_names_add(
    migraphx_quantize_op_names_t quantize_op_names, const char* name);

/* Quantization and conversion to lower precision. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp16_with_op_names(
    migraphx_program_t prog, migraphx_quantize_op_names_t name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp16(migraphx_program_t prog);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_bf16_with_op_names(
    migraphx_program_t prog, migraphx_quantize_op_names_t name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_bf16(migraphx_program_t prog);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8_options_destroy(
    migraphx_quantize_int8_options_t quantize_int8_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8_options_assign_to(
    migraphx_quantize_int8_options_t output, const_migraphx_quantize_int8_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8_options_create(
    migraphx_quantize_int8_options_t* quantize_int8_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8_options_add_op_name(
    migraphx_quantize_int8_options_t quantize_int8_options, const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8_options_add_calibration_data(
    migraphx_quantize_int8_options_t quantize_int8_options, migraphx_program_parameters_t data);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_int8(
    migraphx_program_t prog, migraphx_target_t target, migraphx_quantize_int8_options_t options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp8_options_destroy(
    migraphx_quantize_fp8_options_t quantize_fp8_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp8_options_assign_to(
    migraphx_quantize_fp8_options_t output, const_migraphx_quantize_fp8_options_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp8_options_create(
    migraphx_quantize_fp8_options_t* quantize_fp8_options);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp8_options_add_calibration_data(
    migraphx_quantize_fp8_options_t quantize_fp8_options, migraphx_program_parameters_t data);
MIGRAPHX_C_EXPORT migraphx_status migraphx_quantize_fp8(
    migraphx_program_t prog, migraphx_target_t target, migraphx_quantize_fp8_options_t options);

/* Operators that the ONNX frontend supports. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_get_onnx_operator_name_at_index(char** out, size_t index);
MIGRAPHX_C_EXPORT migraphx_status migraphx_get_onnx_operators_size(size_t* out);

/* Execution context of a target.  The queue is its stream; null for targets without streams. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_context_finish(const_migraphx_context_t context);
MIGRAPHX_C_EXPORT migraphx_status migraphx_context_get_queue(void** out, migraphx_context_t context);

/* A user-defined operator.  `copy` and `delete` manage `obj`, which is passed to all callbacks. */
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_destroy(
    migraphx_experimental_custom_op_t experimental_custom_op);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_assign_to(
    migraphx_experimental_custom_op_t output, const_migraphx_experimental_custom_op_t input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_create(
    migraphx_experimental_custom_op_t* experimental_custom_op, void* obj, migraphx_experimental_custom_op_copy c,
    migraphx_experimental_custom_op_delete d, const char* obj_typename, const char* name);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_set_compute(
    migraphx_experimental_custom_op_t obj, migraphx_experimental_custom_op_compute input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_set_compute_shape(
    migraphx_experimental_custom_op_t obj, migraphx_experimental_custom_op_compute_shape input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_set_output_alias(
    migraphx_experimental_custom_op_t obj, migraphx_experimental_custom_op_output_alias input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_set_runs_on_offload_target(
    migraphx_experimental_custom_op_t obj, migraphx_experimental_custom_op_runs_on_offload_target input);
MIGRAPHX_C_EXPORT migraphx_status migraphx_experimental_custom_op_register(
    migraphx_experimental_custom_op_t experimental_custom_op);

#ifdef __cplusplus
}
#endif

#endif
