// An OpenCL library for tests: it forwards every call to the real one, but for the n-th call of one function, which it fails, never
// answers, or answers falsely. FAULT says which: clEnqueueNDRangeKernel:100:fail, hang or lie; a lie changes one bit of what is read.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../abi.h"

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

// What happens to a call of name: 0 nothing, else the first letter of the fault.
static char fault(const char *name) {
    static int calls;
    const char *text = getenv("FAULT");
    size_t length = strlen(name);
    if (!text || strncmp(text, name, length) || text[length] != ':') return 0;
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) != atoi(text + length + 1)) return 0;
    return strchr(text + length + 1, ':')[1];
}

#define FORWARD(result, name, parameters, arguments) \
    result name parameters {                         \
        static result(*next) parameters;             \
        if (!next) next = real(#name);               \
        char f = fault(#name);                       \
        if (f == 'h') for (;;) pause();              \
        if (f == 'f') return (result)-2;             \
        return next arguments;                       \
    }
FORWARD(cl_int, clGetPlatformIDs, (cl_uint room, cl_platform_id *platforms, cl_uint *count), (room, platforms, count))
FORWARD(cl_int, clGetPlatformInfo, (cl_platform_id p, cl_uint what, size_t room, void *value, size_t *size), (p, what, room, value, size))
FORWARD(cl_int, clGetDeviceIDs, (cl_platform_id p, cl_bitfield type, cl_uint room, cl_device_id *devices, cl_uint *count), (p, type, room, devices, count))
FORWARD(cl_int, clGetDeviceInfo, (cl_device_id d, cl_uint what, size_t room, void *value, size_t *size), (d, what, room, value, size))
FORWARD(cl_int, clReleaseContext, (cl_context c), (c))
FORWARD(cl_int, clReleaseCommandQueue, (cl_command_queue q), (q))
FORWARD(cl_int, clReleaseMemObject, (cl_mem m), (m))
FORWARD(cl_int, clBuildProgram, (cl_program p, cl_uint n, const cl_device_id *d, const char *o, void (*then)(cl_program, void *), void *x), (p, n, d, o, then, x))
FORWARD(cl_int, clGetProgramBuildInfo, (cl_program p, cl_device_id d, cl_uint what, size_t room, void *value, size_t *size), (p, d, what, room, value, size))
FORWARD(cl_int, clGetProgramInfo, (cl_program p, cl_uint what, size_t room, void *value, size_t *size), (p, what, room, value, size))
FORWARD(cl_int, clReleaseProgram, (cl_program p), (p))
FORWARD(cl_int, clReleaseKernel, (cl_kernel k), (k))
FORWARD(cl_int, clSetKernelArg, (cl_kernel k, cl_uint i, size_t size, const void *value), (k, i, size, value))
FORWARD(cl_int, clEnqueueNDRangeKernel, (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *o, const size_t *g, const size_t *l, cl_uint waits, const void *wait, cl_event *event),
        (q, k, n, o, g, l, waits, wait, event))
FORWARD(cl_int, clGetEventInfo, (cl_event e, cl_uint what, size_t room, void *value, size_t *size), (e, what, room, value, size))
FORWARD(cl_int, clReleaseEvent, (cl_event e), (e))
FORWARD(cl_int, clEnqueueWriteBuffer, (cl_command_queue q, cl_mem m, cl_uint b, size_t o, size_t n, const void *from, cl_uint waits, const void *wait, void *event),
        (q, m, b, o, n, from, waits, wait, event))
FORWARD(cl_int, clEnqueueCopyBuffer, (cl_command_queue q, cl_mem a, cl_mem b, size_t i, size_t j, size_t n, cl_uint waits, const void *wait, void *event),
        (q, a, b, i, j, n, waits, wait, event))
FORWARD(cl_int, clFlush, (cl_command_queue q), (q))
FORWARD(cl_int, clFinish, (cl_command_queue q), (q))

cl_int clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_uint b, size_t o, size_t n, void *to, cl_uint waits, const void *wait, void *event) {
    cl_int (*next)(cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const void *, void *) = real("clEnqueueReadBuffer");
    char f = fault("clEnqueueReadBuffer");
    if (f == 'h') for (;;) pause();
    if (f == 'f') return -2;
    cl_int error = next(q, m, b, o, n, to, waits, wait, event);
    if (f == 'l' && n) ((char *)to)[n / 2] ^= 1;
    return error;
}

// Those that return what they make.
#define MAKES(result, name, parameters, arguments)   \
    result name parameters {                         \
        result(*next) parameters = real(#name);      \
        char f = fault(#name);                       \
        if (f == 'h') for (;;) pause();              \
        if (f == 'f') return *error = -2, NULL;      \
        return next arguments;                       \
    }
MAKES(cl_context, clCreateContext, (const intptr_t *p, cl_uint n, const cl_device_id *d, void (*then)(const char *, const void *, size_t, void *), void *x, cl_int *error), (p, n, d, then, x, error))
MAKES(cl_command_queue, clCreateCommandQueue, (cl_context c, cl_device_id d, cl_bitfield p, cl_int *error), (c, d, p, error))
MAKES(cl_mem, clCreateBuffer, (cl_context c, cl_bitfield flags, size_t n, void *host, cl_int *error), (c, flags, n, host, error))
MAKES(cl_program, clCreateProgramWithSource, (cl_context c, cl_uint n, const char **t, const size_t *l, cl_int *error), (c, n, t, l, error))
MAKES(cl_program, clCreateProgramWithBinary, (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *s, cl_int *error), (c, n, d, l, b, s, error))
MAKES(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *error), (p, name, error))
