/* Faults of each kind that the checks of memory look for, by name in argv[1]; nothing else uses this program. */
#include <migraphx/migraphx.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv)
{
    const char* fault = argc > 1 ? argv[1] : "";
    migraphx_shape_t shape = NULL;
    size_t* lengths = malloc(2 * sizeof *lengths);
    volatile size_t read = 0;
    if (strcmp(fault, "unwritten")) lengths[0] = 2, lengths[1] = 3; /* otherwise what the library reads was never written */
    if (migraphx_shape_create(&shape, migraphx_shape_float_type, lengths, 2) != migraphx_status_success) return 2;
    if (!strcmp(fault, "beyond")) read = lengths[2];
    if (strcmp(fault, "lost")) free(lengths);
    if (!strcmp(fault, "freed")) read = lengths[1];
    lengths = NULL;
    (void) read;
    return migraphx_shape_destroy(shape) == migraphx_status_success ? 0 : 3;
}
