/* Forks before and after the first call of the library; loads it with dlopen if argv[1] is its path. */
#include <dlfcn.h>
#include <migraphx/migraphx.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef migraphx_status (*Create)(migraphx_target_t*, const char*);

static int child(Create create)
{
    pid_t pid = fork();
    if (pid == 0) {
        migraphx_target_t target = NULL;
        _exit(create(&target, "ref") == migraphx_status_success ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

int main(int argc, char** argv)
{
    void* library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    Create create = (Create) dlsym(library, "migraphx_target_create");
    if (child(create) != 0) return 3;
    migraphx_target_t target = NULL;
    if (create(&target, "ref") != migraphx_status_success) return 4;
    if (child(create) != 0) return 5;
    return create(&target, "cpu") == migraphx_status_success ? 0 : 6;
}
