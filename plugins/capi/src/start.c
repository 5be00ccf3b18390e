/* Embeds Python in a C program: initializes an interpreter once and makes the package mgx_c importable.

   If the process already has an interpreter (the library was loaded by an extension module or a Python program), that one is used.
   Otherwise one is started that behaves like `python` of the environment that this library is installed in, or like the interpreter
   that MGX_PYTHON names.  It is never finalized: results may outlive any function that could do so. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <limits.h>
#include <migraphx/migraphx.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "start.h"

extern int py_mgx_start(void);
extern const char* py_mgx_last_error(void);
extern migraphx_status py_migraphx_operation_create(migraphx_operation_t*, const char*, const char*);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int serving = 0;
static char failure[1024] = "";
static _Thread_local PyGILState_STATE forking;

/* Finds the directory that contains the package, three levels above this library: PACKAGES/mgx_c/lib/libmigraphx_c.so.  Returns 0 on
   failure. */
static int packages(char folder[PATH_MAX])
{
    Dl_info info;
    if (!dladdr((void*) &packages, &info) || !realpath(info.dli_fname, folder)) return 0;
    for (int level = 0; level < 3; ++level) {
        char* slash = strrchr(folder, '/');
        if (!slash || slash == folder) return 0;
        *slash = 0;
    }
    return 1;
}

/* Finds the interpreter of the virtual environment that contains `folder`: ENVIRONMENT/bin/python if `folder` is
   ENVIRONMENT/lib/pythonX.Y/site-packages and ENVIRONMENT/pyvenv.cfg exists.  MGX_PYTHON overrides it.  Returns 0 if there is none. */
static int interpreter(const char* folder, char* program, size_t size)
{
    const char* given = getenv("MGX_PYTHON");
    if (given && *given) return snprintf(program, size, "%s", given) < (int) size;
    char environment[PATH_MAX], mark[PATH_MAX + 16];
    snprintf(environment, sizeof environment, "%s", folder);
    for (int level = 0; level < 3; ++level) {
        char* slash = strrchr(environment, '/');
        if (!slash || slash == environment) return 0;
        *slash = 0;
    }
    snprintf(mark, sizeof mark, "%s/pyvenv.cfg", environment);
    if (access(mark, R_OK) != 0) return 0;
    return snprintf(program, size, "%s/bin/python", environment) < (int) size;
}

static void before_fork(void)
{
    forking = PyGILState_Ensure();
    PyOS_BeforeFork();
}

static void after_fork_parent(void)
{
    PyOS_AfterFork_Parent();
    PyGILState_Release(forking);
}

static void after_fork_child(void)
{
    PyOS_AfterFork_Child();
    PyGILState_Release(forking);
}

/* Makes libpython's symbols global.  Extension modules resolve them in the global scope, where they are missing if the program loaded
   this library with RTLD_LOCAL. */
static void show_interpreter(void)
{
    Dl_info info;
    if (dladdr((void*) &Py_InitializeFromConfig, &info)) dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

static int start_interpreter(const char* folder, int located)
{
    char program[PATH_MAX];
    show_interpreter();
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0; /* the host program handles signals */
    config.parse_argv = 0;
    PyStatus status = PyStatus_Ok();
    if (located && interpreter(folder, program, sizeof program))
        status = PyConfig_SetBytesString(&config, &config.program_name, program);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        snprintf(failure, sizeof failure, "Python did not start: %s", status.err_msg ? status.err_msg : "unknown reason");
        return 0;
    }
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    return 1;
}

/* Checks that mgx_c can be imported, after adding this library's own package directory to the path if it cannot. */
static int find_packages(const char* folder)
{
    int found = 0;
    PyObject* module = PyImport_ImportModule("mgx_c.locations");
    if (!module) {
        PyErr_Clear();
        PyObject* site = PyImport_ImportModule("site");
        PyObject* added = site ? PyObject_CallMethod(site, "addsitedir", "s", folder) : NULL;
        Py_XDECREF(added);
        Py_XDECREF(site);
        PyErr_Clear();
        module = PyImport_ImportModule("mgx_c.locations");
    }
    if (module) {
        found = 1;
        Py_DECREF(module);
    } else {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyObject* text = value ? PyObject_Str(value) : NULL;
        const char* said = text ? PyUnicode_AsUTF8(text) : NULL;
        snprintf(failure, sizeof failure,
                 "the Python package mgx_c cannot be imported (%s); searched %s; set MGX_PYTHON to the interpreter of the "
                 "environment that it is installed in",
                 said ? said : "no message", folder);
        Py_XDECREF(text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        PyErr_Clear();
    }
    return found;
}

static void start(void)
{
    char folder[PATH_MAX] = "";
    int located = packages(folder);
    int own = !Py_IsInitialized();
    if (own && !start_interpreter(folder, located)) return;
    PyGILState_STATE state = PyGILState_UNLOCKED;
    if (!own) state = PyGILState_Ensure();
    int found = find_packages(folder);
    if (own)
        PyEval_SaveThread();
    else
        PyGILState_Release(state);
    if (!found) return;
    if (py_mgx_start() == 1)
        atomic_store(&serving, 1);
    else
        snprintf(failure, sizeof failure, "the Python package mgx_c could not be initialized; its traceback was written to stderr");
}

int mgx_started(void)
{
    if (!atomic_load_explicit(&serving, memory_order_acquire)) {
        pthread_once(&once, start);
        if (!atomic_load(&serving)) {
            static atomic_int said = 0;
            if (!atomic_exchange(&said, 1)) fprintf(stderr, "mgx: %s\n", failure);
            return 0;
        }
    }
    return 1;
}

const char* mgx_last_error(void) { return atomic_load(&serving) ? py_mgx_last_error() : failure; }

migraphx_status migraphx_operation_create(migraphx_operation_t* operation, const char* name, const char* attributes, ...)
{
    if (!mgx_started()) return migraphx_status_unknown_error;
    if (!attributes) return py_migraphx_operation_create(operation, name, NULL);
    va_list values, again;
    va_start(values, attributes);
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, attributes, values);
    va_end(values);
    char* text = length < 0 ? NULL : malloc((size_t) length + 1);
    if (text) vsnprintf(text, (size_t) length + 1, attributes, again);
    va_end(again);
    if (!text) return migraphx_status_bad_param;
    migraphx_status status = py_migraphx_operation_create(operation, name, text);
    free(text);
    return status;
}

/* Called by MIGraphX's tests of custom operators.  Does nothing: here errors are always reported by status and message. */
void __attribute__((visibility("default"))) migraphx_test_private_disable_exception_catch(int on) { (void) on; }
