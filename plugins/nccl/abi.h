// What the shim knows of the CUDA driver's and NCCL's binary interfaces: our
// own declarations of their types, numbers and functions, so that drun can be
// built without their headers. Both interfaces are stable: the numbers
// are fixed, and the configuration of a communicator says its own size.
#ifndef DRUN_NCCL_ABI_H
#define DRUN_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

// The CUDA driver.

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMHOSTREGISTER_DEVICEMAP = 2,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
};

// Each: the symbol, and its parameters.
#define CUDA_FUNCTIONS(X) \
    X(cuInit, (unsigned flags)) \
    X(cuDriverGetVersion, (int *version)) \
    X(cuGetErrorName, (CUresult error, const char **name)) \
    X(cuGetErrorString, (CUresult error, const char **text)) \
    X(cuDeviceGetCount, (int *count)) \
    X(cuDeviceGet, (CUdevice *device, int ordinal)) \
    X(cuDeviceGetName, (char *name, int bytes, CUdevice device)) \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
    X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(cuCtxSetCurrent, (CUcontext context)) \
    X(cuMemAlloc_v2, (CUdeviceptr *memory, size_t bytes)) \
    X(cuMemFree_v2, (CUdeviceptr memory)) \
    X(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags)) \
    X(cuMemFreeHost, (void *memory)) \
    X(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags)) \
    X(cuMemHostUnregister, (void *memory)) \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuStreamCreate, (CUstream * stream, unsigned flags)) \
    X(cuStreamDestroy_v2, (CUstream stream)) \
    X(cuStreamQuery, (CUstream stream)) \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(cuEventCreate, (CUevent * event, unsigned flags)) \
    X(cuEventDestroy_v2, (CUevent event)) \
    X(cuEventRecord, (CUevent event, CUstream stream)) \
    X(cuEventQuery, (CUevent event))

// NCCL.

typedef int ncclResult_t;
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
};

enum {
    ncclInt8 = 0, ncclUint8 = 1, ncclInt32 = 2, ncclUint32 = 3, ncclInt64 = 4, ncclUint64 = 5,
    ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9,
};

enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_UNDEFINED INT32_MIN
#define NCCL_SPLIT_NOCOLOR (-1)

// A communicator's configuration as of version 2.18. Libraries since then take
// it as it is; for older ones size and version say how much of it they know.
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking; // since 2.14
    int cgaClusterSize; // since 2.17
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare; // since 2.18
} ncclConfig_t;

// The newest of NCCL's versions whose configuration this is, and the oldest
// that communicators can be made with without blocking.
enum { CONFIG_VERSION = 21800, OLDEST_NCCL = 21400 };

#define NCCL_FUNCTIONS(X) \
    X(ncclGetVersion, (int *version)) \
    X(ncclGetUniqueId, (ncclUniqueId * id)) \
    X(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)) \
    X(ncclCommFinalize, (ncclComm_t comm)) \
    X(ncclCommDestroy, (ncclComm_t comm)) \
    X(ncclCommAbort, (ncclComm_t comm)) \
    X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error)) \
    X(ncclGroupStart, (void)) \
    X(ncclGroupEnd, (void)) \
    X(ncclBroadcast, (const void *send, void *recv, size_t n, int type, int root, ncclComm_t comm, CUstream stream)) \
    X(ncclReduce, (const void *send, void *recv, size_t n, int type, int op, int root, ncclComm_t comm, CUstream stream)) \
    X(ncclAllReduce, (const void *send, void *recv, size_t n, int type, int op, ncclComm_t comm, CUstream stream)) \
    X(ncclAllGather, (const void *send, void *recv, size_t n, int type, ncclComm_t comm, CUstream stream)) \
    X(ncclReduceScatter, (const void *send, void *recv, size_t n, int type, int op, ncclComm_t comm, CUstream stream)) \
    X(ncclSend, (const void *send, size_t n, int type, int peer, ncclComm_t comm, CUstream stream)) \
    X(ncclRecv, (void *recv, size_t n, int type, int peer, ncclComm_t comm, CUstream stream))

// Functions that not every version has: the first is since 2.18, the others since 2.28.
#define NEWER_NCCL_FUNCTIONS(X) \
    X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config)) \
    X(ncclGather, (const void *send, void *recv, size_t n, int type, int root, ncclComm_t comm, CUstream stream)) \
    X(ncclScatter, (const void *send, void *recv, size_t n, int type, int root, ncclComm_t comm, CUstream stream))

#define FUNCTION_POINTER(name, parameters) int(*name) parameters;

struct cuda {
    CUDA_FUNCTIONS(FUNCTION_POINTER)
};

struct nccl {
    NCCL_FUNCTIONS(FUNCTION_POINTER)
    NEWER_NCCL_FUNCTIONS(FUNCTION_POINTER)
    const char *(*ncclGetErrorString)(ncclResult_t error);
    const char *(*ncclGetLastError)(ncclComm_t comm);
};

#endif
