// The C face of CUDA and NCCL, as cgo sees it. Functions that can fail return
// FAILED and write what happened into err, ERR_SIZE bytes.
#ifndef DRUN_NCCL_SHIM_H
#define DRUN_NCCL_SHIM_H

#include <stdatomic.h>

#include "abi.h"

enum { ERR_SIZE = 1024, NAME_SIZE = 256, ID_SIZE = sizeof(ncclUniqueId), SLOTS = 2 };

enum { DONE = 0, PENDING = 1, STOPPED = 2, FAILED = -1 };

extern struct cuda cuda;
extern struct nccl nccl;

// Loading. A library is loaded once in a process, and stays.
int drun_load_cuda(const char *path, char *err);
int drun_load_nccl(const char *path, char *err);
int drun_has(const char *function);
void drun_version(int *version);

int drun_devices(int *count, int *driver, char *err);

// device is a GPU's primary context, as NCCL uses it too.
typedef struct {
    CUdevice number;
    CUcontext context;
    int addressesHost; // kernels can use the address of registered memory
    char name[NAME_SIZE];
} device;

device *drun_device(int ordinal, char *err);
void drun_device_free(device *d);
// registering makes host memory ready for DMA.
int drun_register(device *d, uintptr_t memory, size_t bytes, char *err);
void drun_unregister(device *d, uintptr_t memory);

// Communicators. They are made without blocking: until state gives DONE they
// can only be asked for it, or aborted.
int drun_unique_id(device *d, char *id, char *err);
int drun_comm(device *d, const char *id, int ranks, int rank, ncclComm_t *comm, char *err);
int drun_comm_split(device *d, ncclComm_t parent, int color, int key, ncclComm_t *comm, char *err);
// state says what went wrong as the failure of what.
int drun_comm_state(ncclComm_t comm, const char *what, char *err);
int drun_comm_finalize(device *d, ncclComm_t comm, char *err);
int drun_comm_destroy(device *d, ncclComm_t comm, char *err);
int drun_comm_abort(device *d, ncclComm_t comm, char *err);

// A slot is where one round of a pipeline is staged: device memory, and host
// memory of the same size for what cannot be copied directly.
typedef struct {
    CUdeviceptr room;
    void *bounce;
    int pinned;
    CUevent arrived, computed, done;
} slot;

// A lane is what one thread of collectives needs: streams and slots.
typedef struct {
    device *device;
    CUstream in, work, out;
    slot slots[SLOTS];
    atomic_int stop;
} lane;

lane *drun_lane(device *d, size_t room, char *err);
void drun_lane_stop(lane *l);
int drun_lane_busy(lane *l);
void drun_lane_free(lane *l);

// A round: copies in, operations as one group, copies out.
typedef struct {
    uintptr_t host;
    CUdeviceptr device;
    size_t bytes;
} piece;

enum {
    BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV, GATHER, SCATTER, OPERATIONS
};

typedef struct {
    int kind, type, op, peer; // peer is also the root
    CUdeviceptr send, recv;
    size_t count;
} operation;

int drun_round(lane *l, int slot, ncclComm_t comm, int alone, const piece *in, int ins, const operation *ops, int operations,
               const piece *out, int outs, char *err);
// wait returns when the slot's round is over.
int drun_wait(lane *l, int slot, ncclComm_t comm, char *err);

// Shared by the parts of the shim.
int drun_fail_cuda(char *err, const char *what, CUresult result);
int drun_fail_nccl(char *err, const char *what, ncclResult_t result, ncclComm_t comm);
void drun_pause(int *turn);

#endif
