// OpenCL as Go sees it. What can fail returns OpenCL's error number, 0 for none.
#ifndef DRUN_OPENCL_SHIM_H
#define DRUN_OPENCL_SHIM_H

#include "abi.h"

enum { TEXT_SIZE = 256, MOST_DEVICES = 64, RECENT = 128 };

// Loads the library, once in a process; on failure why has the reason, TEXT_SIZE bytes.
int drun_cl_load(const char *path, char *why);

typedef struct {
    cl_device_id id;
    cl_platform_id platform;
    char platform_name[TEXT_SIZE], name[TEXT_SIZE], driver[TEXT_SIZE], version[TEXT_SIZE];
    uint64_t type, memory, largest, local, float64, float32, group;
    int usable; // it is available, and has a compiler
} cl_found;

// Lists at most MOST_DEVICES devices of all platforms.
int drun_cl_list(cl_found *found, int *count);

typedef struct {
    cl_context context;
    cl_command_queue queue;
    cl_device_id id;
    cl_event recent[RECENT]; // of the latest kernels; NULL: none yet
    int next;                // of recent
} cl_open;

int drun_cl_open(cl_open *d, cl_device_id id);
void drun_cl_close(cl_open *d);

cl_mem drun_cl_buffer(cl_open *d, size_t bytes, int *error);
void drun_cl_release(cl_mem memory);

// Builds a program from its text, or, with binary, from what drun_cl_binary gave for the same device.
cl_program drun_cl_build(cl_open *d, const char *text, size_t length, int binary, const char *options, int *error);
size_t drun_cl_log(cl_open *d, cl_program program, char *log, size_t room);
size_t drun_cl_binary(cl_program program, unsigned char *binary, size_t room);
void drun_cl_release_program(cl_program program);
cl_kernel drun_cl_kernel(cl_program program, const char *name, int *error);

// Puts a kernel into the queue. Argument i is sizes[i] bytes of words, from the next multiple of 8 on.
int drun_cl_launch(cl_open *d, cl_kernel kernel, int arguments, const uint16_t *sizes, const uint64_t *words, int dimensions,
                   const size_t *global, const size_t *local);

// The index in `recent` of the first of the latest kernels that failed, and its error; -1: none has.
int drun_cl_failed(cl_open *d, int *error);
int drun_cl_read(cl_open *d, cl_mem memory, size_t offset, size_t bytes, char *to);
int drun_cl_write(cl_open *d, cl_mem memory, size_t offset, size_t bytes, const char *from);
int drun_cl_finish(cl_open *d);

#endif
