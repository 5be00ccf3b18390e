/* Commits the memory errors named in argv, one function each, to test that the memory checkers detect them. */
#include <migraphx/migraphx.h>
#include <stdlib.h>
#include <string.h>

#define FAULT __attribute__((noinline)) static int

/* Creates and destroys a shape of two lengths; returns 0 on success. */
static int shape_of(size_t* lengths)
{
    migraphx_shape_t shape = NULL;
    if (migraphx_shape_create(&shape, migraphx_shape_float_type, lengths, 2) != migraphx_status_success) return 2;
    return migraphx_shape_destroy(shape) == migraphx_status_success ? 0 : 3;
}

static size_t* two_lengths(void)
{
    size_t* lengths = malloc(2 * sizeof *lengths);
    lengths[0] = 2, lengths[1] = 3;
    return lengths;
}

FAULT none(void)
{
    size_t* lengths = two_lengths();
    int status = shape_of(lengths);
    free(lengths);
    return status;
}

FAULT beyond(void)
{
    size_t* lengths = two_lengths();
    int status = shape_of(lengths);
    volatile size_t read = lengths[2];
    free(lengths);
    return (void) read, status;
}

FAULT freed(void)
{
    size_t* lengths = two_lengths();
    int status = shape_of(lengths);
    free(lengths);
    volatile size_t read = lengths[1];
    return (void) read, status;
}

FAULT lost(void) { return shape_of(two_lengths()); }

FAULT unwritten(void)
{
    size_t* lengths = malloc(2 * sizeof *lengths); /* the library reads uninitialized memory */
    shape_of(lengths); /* the status depends on it: lengths that are too large are refused */
    free(lengths);
    return 0;
}

int main(int argc, char** argv)
{
    const char* names[] = {"none", "beyond", "freed", "lost", "unwritten"};
    int (*faults[])(void) = {none, beyond, freed, lost, unwritten};
    int status = 0;
    for (int n = 1; n < argc; ++n)
        for (int k = 0; k < 5; ++k)
            if (!strcmp(argv[n], names[k])) status |= faults[k]();
    return status;
}
