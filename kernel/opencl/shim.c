// Calls into OpenCL's library, which is loaded by dlopen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define POINTER(result, name, parameters) result(*name) parameters;
static struct {
    OPENCL_FUNCTIONS(POINTER)
} cl;

#define FIND(result, name, parameters)                                                          \
    if (!(*(void **)&cl.name = dlsym(library, #name))) {                                        \
        snprintf(why, TEXT_SIZE, "%s has no function %s: it is not an OpenCL library", path, #name); \
        return -1;                                                                              \
    }

int drun_cl_load(const char *path, char *why) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, TEXT_SIZE, "%s", dlerror());
        return -1;
    }
    OPENCL_FUNCTIONS(FIND)
    return 0;
}

static void ask(cl_device_id id, cl_uint what, void *value, size_t room) {
    if (cl.clGetDeviceInfo(id, what, room, value, NULL)) memset(value, 0, room);
}

static void ask_text(cl_device_id id, cl_uint what, char *text) {
    if (cl.clGetDeviceInfo(id, what, TEXT_SIZE, text, NULL)) *text = 0;
    text[TEXT_SIZE - 1] = 0;
}

int drun_cl_list(cl_found *found, int *count) {
    cl_platform_id platforms[MOST_DEVICES];
    cl_uint n = 0;
    *count = 0;
    cl_int error = cl.clGetPlatformIDs(MOST_DEVICES, platforms, &n);
    if (error == CL_PLATFORM_NOT_FOUND) return 0;
    if (error) return error;
    for (cl_uint p = 0; p < n && p < MOST_DEVICES; p++) {
        cl_device_id ids[MOST_DEVICES];
        cl_uint devices = 0;
        if (cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST_DEVICES, ids, &devices)) continue; // it has none
        for (cl_uint i = 0; i < devices && i < MOST_DEVICES && *count < MOST_DEVICES; i++) {
            cl_found *f = found + (*count)++;
            memset(f, 0, sizeof *f);
            f->id = ids[i], f->platform = platforms[p];
            if (cl.clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, TEXT_SIZE, f->platform_name, NULL)) *f->platform_name = 0;
            ask_text(ids[i], CL_DEVICE_NAME, f->name);
            ask_text(ids[i], CL_DRIVER_VERSION, f->driver);
            ask_text(ids[i], CL_DEVICE_VERSION, f->version);
            ask(ids[i], CL_DEVICE_TYPE, &f->type, 8);
            ask(ids[i], CL_DEVICE_GLOBAL_MEM_SIZE, &f->memory, 8);
            ask(ids[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE, &f->largest, 8);
            ask(ids[i], CL_DEVICE_LOCAL_MEM_SIZE, &f->local, 8);
            ask(ids[i], CL_DEVICE_DOUBLE_FP_CONFIG, &f->float64, 8);
            ask(ids[i], CL_DEVICE_SINGLE_FP_CONFIG, &f->float32, 8);
            ask(ids[i], CL_DEVICE_MAX_WORK_GROUP_SIZE, &f->group, 8);
            cl_uint available = 0, compiler = 0;
            ask(ids[i], CL_DEVICE_AVAILABLE, &available, 4);
            ask(ids[i], CL_DEVICE_COMPILER_AVAILABLE, &compiler, 4);
            f->usable = available && compiler;
        }
    }
    return 0;
}

int drun_cl_open(cl_open *d, cl_device_id id) {
    cl_int error = 0;
    d->id = id;
    d->context = cl.clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    if (error) return error;
    d->queue = cl.clCreateCommandQueue(d->context, id, 0, &error);
    if (error) cl.clReleaseContext(d->context);
    return error;
}

void drun_cl_close(cl_open *d) {
    cl.clReleaseCommandQueue(d->queue);
    cl.clReleaseContext(d->context);
}

cl_mem drun_cl_buffer(cl_open *d, size_t bytes, int *error) {
    return cl.clCreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, error);
}
void drun_cl_release(cl_mem memory) { cl.clReleaseMemObject(memory); }

cl_program drun_cl_build(cl_open *d, const char *text, size_t length, int binary, const char *options, int *error) {
    const unsigned char *bytes = (const unsigned char *)text;
    cl_program program = binary ? cl.clCreateProgramWithBinary(d->context, 1, &d->id, &length, &bytes, NULL, error)
                                : cl.clCreateProgramWithSource(d->context, 1, &text, &length, error);
    if (!*error) *error = cl.clBuildProgram(program, 1, &d->id, options, NULL, NULL);
    return program;
}

size_t drun_cl_log(cl_open *d, cl_program program, char *log, size_t room) {
    size_t size = 0;
    if (!program || cl.clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size)) return 0;
    if (log && size <= room) cl.clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, room, log, NULL);
    return size;
}

size_t drun_cl_binary(cl_program program, unsigned char *binary, size_t room) {
    size_t size = 0;
    if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL)) return 0;
    if (binary && size <= room && cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL)) return 0;
    return size;
}

void drun_cl_release_program(cl_program program) {
    if (program) cl.clReleaseProgram(program);
}

cl_kernel drun_cl_kernel(cl_program program, const char *name, int *error) { return cl.clCreateKernel(program, name, error); }

int drun_cl_launch(cl_open *d, cl_kernel kernel, int arguments, const uint16_t *sizes, const uint64_t *words, int dimensions,
                   const size_t *global, const size_t *local) {
    for (int i = 0; i < arguments; i++) {
        cl_int error = cl.clSetKernelArg(kernel, i, sizes[i], words);
        if (error) return error;
        words += (sizes[i] + 7) / 8;
    }
    cl_event event = NULL;
    cl_int error = cl.clEnqueueNDRangeKernel(d->queue, kernel, dimensions, NULL, global, local, 0, NULL, &event);
    if (error) return error;
    if (d->recent[d->next]) cl.clReleaseEvent(d->recent[d->next]);
    d->recent[d->next] = event;
    d->next = (d->next + 1) % RECENT;
    return 0;
}

int drun_cl_failed(cl_open *d, int *error) {
    for (int i = 0; i < RECENT; i++) {
        int at = (d->next + i) % RECENT;
        cl_int status = 0;
        if (!d->recent[at] || cl.clGetEventInfo(d->recent[at], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) || status >= 0) continue;
        *error = status;
        return at;
    }
    return -1;
}

int drun_cl_read(cl_open *d, cl_mem memory, size_t offset, size_t bytes, char *to) {
    return cl.clEnqueueReadBuffer(d->queue, memory, 1, offset, bytes, to, 0, NULL, NULL);
}
int drun_cl_write(cl_open *d, cl_mem memory, size_t offset, size_t bytes, const char *from) {
    return cl.clEnqueueWriteBuffer(d->queue, memory, 1, offset, bytes, from, 0, NULL, NULL);
}
int drun_cl_finish(cl_open *d) { return cl.clFinish(d->queue); }
