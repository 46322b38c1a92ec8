// Loading the libraries, and saying what went wrong in them.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "shim.h"

struct cuda cuda;
struct nccl nccl;

static int missing(char *err, const char *path, const char *name) {
    snprintf(err, ERR_SIZE, "%s has no function %s: it is too old, or something else", path, name);
    return FAILED;
}

#define NEEDED(name, parameters) \
    if (!(*(void **)&found.name = dlsym(library, #name))) return missing(err, path, #name);
#define OPTIONAL(name, parameters) *(void **)&found.name = dlsym(library, #name);

int drun_load_cuda(const char *path, char *err) {
    struct cuda found;
    // Global, so that NCCL finds the same one however it looks for it.
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        snprintf(err, ERR_SIZE, "%s", dlerror());
        return FAILED;
    }
    CUDA_FUNCTIONS(NEEDED)
    cuda = found;
    return DONE;
}

int drun_load_nccl(const char *path, char *err) {
    struct nccl found;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(err, ERR_SIZE, "%s", dlerror());
        return FAILED;
    }
    NCCL_FUNCTIONS(NEEDED)
    NEEDED(ncclGetErrorString, )
    NEEDED(ncclGetLastError, )
    NEWER_NCCL_FUNCTIONS(OPTIONAL)
    nccl = found;
    return DONE;
}

int drun_has(const char *function) {
#define ASK(name, parameters) \
    if (!strcmp(function, #name)) return nccl.name != NULL;
    NEWER_NCCL_FUNCTIONS(ASK)
    return 0;
}

int drun_fail_cuda(char *err, const char *what, CUresult result) {
    const char *name = NULL, *text = NULL;
    cuda.cuGetErrorName(result, &name);
    cuda.cuGetErrorString(result, &text);
    snprintf(err, ERR_SIZE, "%s failed: %s (%s)", what, text ? text : "unknown error", name ? name : "no name");
    return FAILED;
}

int drun_fail_nccl(char *err, const char *what, ncclResult_t result, ncclComm_t comm) {
    const char *last = nccl.ncclGetLastError(comm);
    int n = snprintf(err, ERR_SIZE, "%s failed: %s", what, nccl.ncclGetErrorString(result));
    if (last && *last && n < ERR_SIZE) snprintf(err + n, ERR_SIZE - n, "; NCCL says: %s", last);
    return FAILED;
}

int drun_devices(int *count, int *driver, char *err) {
    CUresult r = cuda.cuInit(0);
    if (r == CUDA_ERROR_NO_DEVICE) return *count = 0, DONE;
    if (r != CUDA_SUCCESS) return drun_fail_cuda(err, "cuInit", r);
    if ((r = cuda.cuDriverGetVersion(driver)) != CUDA_SUCCESS) return drun_fail_cuda(err, "cuDriverGetVersion", r);
    if ((r = cuda.cuDeviceGetCount(count)) != CUDA_SUCCESS) return drun_fail_cuda(err, "cuDeviceGetCount", r);
    return DONE;
}

// pause waits between two looks: hardly at first, then letting others run, then
// long enough to cost nothing.
void drun_pause(int *turn) {
    if (++*turn < 200) return;
    if (*turn < 2000) {
        sched_yield();
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

void drun_version(int *version) { nccl.ncclGetVersion(version); }
