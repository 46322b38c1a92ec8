// What drun knows of OpenCL's binary interface: its own declarations of the types, numbers and functions of OpenCL 1.2,
// so that drun is built without OpenCL's headers and runs without its library.
#ifndef DRUN_OPENCL_ABI_H
#define DRUN_OPENCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bitfield;
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_INVALID_BUFFER_SIZE = -61,
    CL_PLATFORM_NOT_FOUND = -1001, // of the loader, when no driver is installed

    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,

    CL_MEM_READ_WRITE = 1,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3, // negative: an error
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFull
#define CL_DEVICE_TYPE_GPU 4ull
#define CL_FP_DENORM 1ull
#define CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT 0x80ull

// Each: the result, the symbol, its parameters.
#define OPENCL_FUNCTIONS(X) \
    X(cl_int, clGetPlatformIDs, (cl_uint room, cl_platform_id *platforms, cl_uint *count)) \
    X(cl_int, clGetPlatformInfo, (cl_platform_id platform, cl_uint what, size_t room, void *value, size_t *size)) \
    X(cl_int, clGetDeviceIDs, (cl_platform_id platform, cl_bitfield type, cl_uint room, cl_device_id *devices, cl_uint *count)) \
    X(cl_int, clGetDeviceInfo, (cl_device_id device, cl_uint what, size_t room, void *value, size_t *size)) \
    X(cl_context, clCreateContext, (const intptr_t *properties, cl_uint count, const cl_device_id *devices, \
        void (*notify)(const char *, const void *, size_t, void *), void *data, cl_int *error)) \
    X(cl_int, clReleaseContext, (cl_context context)) \
    X(cl_command_queue, clCreateCommandQueue, (cl_context context, cl_device_id device, cl_bitfield properties, cl_int *error)) \
    X(cl_int, clReleaseCommandQueue, (cl_command_queue queue)) \
    X(cl_mem, clCreateBuffer, (cl_context context, cl_bitfield flags, size_t bytes, void *host, cl_int *error)) \
    X(cl_int, clReleaseMemObject, (cl_mem memory)) \
    X(cl_program, clCreateProgramWithSource, (cl_context context, cl_uint count, const char **texts, const size_t *lengths, cl_int *error)) \
    X(cl_program, clCreateProgramWithBinary, (cl_context context, cl_uint count, const cl_device_id *devices, const size_t *lengths, \
        const unsigned char **binaries, cl_int *status, cl_int *error)) \
    X(cl_int, clBuildProgram, (cl_program program, cl_uint count, const cl_device_id *devices, const char *options, \
        void (*notify)(cl_program, void *), void *data)) \
    X(cl_int, clGetProgramBuildInfo, (cl_program program, cl_device_id device, cl_uint what, size_t room, void *value, size_t *size)) \
    X(cl_int, clGetProgramInfo, (cl_program program, cl_uint what, size_t room, void *value, size_t *size)) \
    X(cl_int, clReleaseProgram, (cl_program program)) \
    X(cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *error)) \
    X(cl_int, clReleaseKernel, (cl_kernel kernel)) \
    X(cl_int, clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t size, const void *value)) \
    X(cl_int, clEnqueueNDRangeKernel, (cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, \
        const size_t *global, const size_t *local, cl_uint waits, const void *wait, cl_event *event)) \
    X(cl_int, clGetEventInfo, (cl_event event, cl_uint what, size_t room, void *value, size_t *size)) \
    X(cl_int, clReleaseEvent, (cl_event event)) \
    X(cl_int, clEnqueueReadBuffer, (cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset, size_t bytes, void *to, \
        cl_uint waits, const void *wait, void *event)) \
    X(cl_int, clEnqueueWriteBuffer, (cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset, size_t bytes, const void *from, \
        cl_uint waits, const void *wait, void *event)) \
    X(cl_int, clEnqueueCopyBuffer, (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t bytes, \
        cl_uint waits, const void *wait, void *event)) \
    X(cl_int, clFlush, (cl_command_queue queue)) \
    X(cl_int, clFinish, (cl_command_queue queue))

#endif
