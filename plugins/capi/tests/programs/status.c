/* Tests of status codes and messages for handles that are null, destroyed or of another kind. */
#include <migraphx/migraphx.h>
#include <stdio.h>
#include <string.h>

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, mgx_last_error());                             \
            ++failed;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(void)
{
    int failed = 0;
    char name[16];
    migraphx_operation_t op = NULL;
    CHECK(migraphx_operation_create(&op, "add", 0) == migraphx_status_success);
    CHECK(migraphx_operation_name(name, sizeof name, op) == migraphx_status_success && strcmp(name, "add") == 0);
    CHECK(migraphx_operation_name(name, 3, op) == migraphx_status_success && strcmp(name, "ad") == 0);
    CHECK(migraphx_operation_destroy(op) == migraphx_status_success);
    CHECK(migraphx_operation_destroy(op) == migraphx_status_bad_param);
    CHECK(strstr(mgx_last_error(), "destroyed") != NULL);
    CHECK(migraphx_operation_name(name, sizeof name, op) == migraphx_status_bad_param);
    CHECK(migraphx_operation_name(name, sizeof name, NULL) == migraphx_status_bad_param);
    CHECK(strstr(mgx_last_error(), "null") != NULL);

    size_t lengths[] = {2, 3}, count = 0;
    migraphx_shape_t shape = NULL;
    CHECK(migraphx_shape_create(&shape, migraphx_shape_float_type, lengths, 2) == migraphx_status_success);
    CHECK(migraphx_shape_create(NULL, migraphx_shape_float_type, lengths, 2) == migraphx_status_bad_param);
    CHECK(migraphx_shape_create(&shape, migraphx_shape_float_type, NULL, 2) == migraphx_status_bad_param);
    CHECK(migraphx_shape_create(&shape, migraphx_shape_tuple_type, lengths, 2) == migraphx_status_unknown_error);
    CHECK(migraphx_shape_ndim(&count, (migraphx_shape_t) (void*) &count) == migraphx_status_bad_param);
    const size_t* strides = NULL;
    CHECK(migraphx_shape_strides(&strides, &count, shape) == migraphx_status_success && count == 2 && strides[0] == 3);
    migraphx_program_t program = NULL;
    CHECK(migraphx_program_create(&program) == migraphx_status_success);
    CHECK(migraphx_program_run(NULL, program, NULL) == migraphx_status_bad_param);
    CHECK(migraphx_shape_ndim(&count, (const_migraphx_shape_t) (void*) program) == migraphx_status_bad_param);
    CHECK(strstr(mgx_last_error(), "program") != NULL);
    migraphx_target_t target = NULL;
    CHECK(migraphx_target_create(&target, "nowhere") == migraphx_status_unknown_target);
    CHECK(migraphx_target_create(&target, "ref") == migraphx_status_success);
    CHECK(migraphx_parse_onnx(&program, "no such file.onnx", NULL) == migraphx_status_bad_param);
    migraphx_onnx_options_t options = NULL;
    CHECK(migraphx_onnx_options_create(&options) == migraphx_status_success);
    CHECK(migraphx_parse_onnx(&program, "no such file.onnx", options) == migraphx_status_unknown_error);
    CHECK(strstr(mgx_last_error(), "no such file.onnx") != NULL);

    migraphx_module_t module = NULL, again = NULL;
    CHECK(migraphx_program_get_main_module(&module, program) == migraphx_status_success);
    CHECK(migraphx_program_get_main_module(&again, program) == migraphx_status_success && again == module);
    CHECK(migraphx_program_destroy(program) == migraphx_status_success);
    CHECK(migraphx_module_print(module) == migraphx_status_bad_param); /* it was owned by the program */
    migraphx_onnx_options_destroy(options);
    migraphx_target_destroy(target);
    migraphx_shape_destroy(shape);
    return failed ? 1 : 0;
}
