// Communicators: how they come to be and end.

#include <string.h>

#include "shim.h"

// configure fills in as much as the library knows. A number that a library
// does not know is not read by it.
static ncclConfig_t configure(void) {
    int version = 0;
    nccl.ncclGetVersion(&version);
    ncclConfig_t c = {
        .size = version < 21700   ? offsetof(ncclConfig_t, blocking) + 2 * sizeof(int)
                : version < 21800 ? offsetof(ncclConfig_t, splitShare)
                                  : sizeof c,
        .magic = NCCL_CONFIG_MAGIC,
        .version = version < CONFIG_VERSION ? version : CONFIG_VERSION,
        .blocking = 0,
        .cgaClusterSize = NCCL_UNDEFINED,
        .minCTAs = NCCL_UNDEFINED,
        .maxCTAs = NCCL_UNDEFINED,
        .netName = NULL,
        .splitShare = NCCL_UNDEFINED,
    };
    return c;
}

static int started(char *err, const char *what, ncclResult_t r, ncclComm_t comm) {
    return r == ncclSuccess || r == ncclInProgress ? DONE : drun_fail_nccl(err, what, r, comm);
}

int drun_unique_id(device *d, char *id, char *err) {
    cuda.cuCtxSetCurrent(d->context);
    ncclUniqueId made;
    ncclResult_t r = nccl.ncclGetUniqueId(&made);
    if (r != ncclSuccess) return drun_fail_nccl(err, "ncclGetUniqueId", r, NULL);
    memcpy(id, made.internal, ID_SIZE);
    return DONE;
}

int drun_comm(device *d, const char *id, int ranks, int rank, ncclComm_t *comm, char *err) {
    CUresult r = cuda.cuCtxSetCurrent(d->context); // NCCL takes the current device
    if (r != CUDA_SUCCESS) return drun_fail_cuda(err, "cuCtxSetCurrent", r);
    ncclUniqueId meeting;
    memcpy(meeting.internal, id, ID_SIZE);
    ncclConfig_t config = configure();
    return started(err, "ncclCommInitRankConfig", nccl.ncclCommInitRankConfig(comm, ranks, meeting, rank, &config), NULL);
}

int drun_comm_split(device *d, ncclComm_t parent, int color, int key, ncclComm_t *comm, char *err) {
    cuda.cuCtxSetCurrent(d->context);
    ncclConfig_t config = configure();
    return started(err, "ncclCommSplit", nccl.ncclCommSplit(parent, color, key, comm, &config), parent);
}

int drun_comm_state(ncclComm_t comm, const char *what, char *err) {
    ncclResult_t state = ncclSuccess, r = nccl.ncclCommGetAsyncError(comm, &state);
    if (r != ncclSuccess) return drun_fail_nccl(err, "ncclCommGetAsyncError", r, comm);
    if (state == ncclInProgress) return PENDING;
    return state == ncclSuccess ? DONE : drun_fail_nccl(err, what, state, comm);
}

int drun_comm_finalize(device *d, ncclComm_t comm, char *err) {
    cuda.cuCtxSetCurrent(d->context);
    return started(err, "ncclCommFinalize", nccl.ncclCommFinalize(comm), comm);
}

int drun_comm_destroy(device *d, ncclComm_t comm, char *err) {
    cuda.cuCtxSetCurrent(d->context);
    ncclResult_t r = nccl.ncclCommDestroy(comm);
    return r == ncclSuccess ? DONE : drun_fail_nccl(err, "ncclCommDestroy", r, NULL);
}

int drun_comm_abort(device *d, ncclComm_t comm, char *err) {
    cuda.cuCtxSetCurrent(d->context);
    ncclResult_t r = nccl.ncclCommAbort(comm);
    return r == ncclSuccess ? DONE : drun_fail_nccl(err, "ncclCommAbort", r, NULL);
}
