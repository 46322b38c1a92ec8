// Rounds of a pipeline on a lane. With three streams the copies of one round
// overlap the operations of another.

#include "shim.h"

#define CHECK(call, what) \
    do { \
        CUresult r_ = (call); \
        if (r_ != CUDA_SUCCESS) return drun_fail_cuda(err, what, r_); \
    } while (0)

void drun_lane_stop(lane *l) { atomic_store(&l->stop, 1); }

static ncclResult_t begin(const operation *o, ncclComm_t comm, CUstream s) {
    void *send = (void *)(uintptr_t)o->send, *recv = (void *)(uintptr_t)o->recv;
    size_t n = o->count;
    switch (o->kind) {
    case BROADCAST: return nccl.ncclBroadcast(send, recv, n, o->type, o->peer, comm, s);
    case REDUCE: return nccl.ncclReduce(send, recv, n, o->type, o->op, o->peer, comm, s);
    case ALL_REDUCE: return nccl.ncclAllReduce(send, recv, n, o->type, o->op, comm, s);
    case ALL_GATHER: return nccl.ncclAllGather(send, recv, n, o->type, comm, s);
    case REDUCE_SCATTER: return nccl.ncclReduceScatter(send, recv, n, o->type, o->op, comm, s);
    case SEND: return nccl.ncclSend(send, n, o->type, o->peer, comm, s);
    case RECV: return nccl.ncclRecv(recv, n, o->type, o->peer, comm, s);
    case GATHER: return nccl.ncclGather(send, recv, n, o->type, o->peer, comm, s);
    case SCATTER: return nccl.ncclScatter(send, recv, n, o->type, o->peer, comm, s);
    }
    return ncclInvalidArgument;
}

static const char *const names[OPERATIONS] = {
    "ncclBroadcast", "ncclReduce", "ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
    "ncclSend", "ncclRecv", "ncclGather", "ncclScatter",
};

// ready waits until what was asked of the communicator is on its stream: only
// then can an event be recorded after it.
static int ready(lane *l, ncclComm_t comm, const char *what, char *err) {
    for (int turn = 0;; drun_pause(&turn)) {
        if (atomic_load(&l->stop)) return STOPPED;
        int state = drun_comm_state(comm, what, err);
        if (state != PENDING) return state;
    }
}

static int operate(lane *l, ncclComm_t comm, const operation *ops, int n, char *err) {
    if (n == 0) return DONE;
    ncclResult_t r = nccl.ncclGroupStart();
    if (r != ncclSuccess) return drun_fail_nccl(err, "ncclGroupStart", r, comm);
    for (int i = 0; i < n; i++) {
        r = begin(&ops[i], comm, l->work);
        if (r == ncclSuccess || r == ncclInProgress) continue;
        drun_fail_nccl(err, names[ops[i].kind], r, comm);
        nccl.ncclGroupEnd(); // the group must not stay open
        return FAILED;
    }
    r = nccl.ncclGroupEnd();
    if (r != ncclSuccess && r != ncclInProgress) return drun_fail_nccl(err, names[ops[0].kind], r, comm);
    return ready(l, comm, names[ops[0].kind], err);
}

int drun_round(lane *l, int number, ncclComm_t comm, int alone, const piece *in, int ins, const operation *ops, int operations,
               const piece *out, int outs, char *err) {
    slot *s = &l->slots[number];
    // A round without others to overlap with is faster on one stream.
    CUstream arriving = alone ? l->work : l->in, leaving = alone ? l->work : l->out;
    if (atomic_load(&l->stop)) return STOPPED;
    CHECK(cuda.cuCtxSetCurrent(l->device->context), "cuCtxSetCurrent");
    for (int i = 0; i < ins; i++)
        CHECK(cuda.cuMemcpyHtoDAsync_v2(in[i].device, (void *)in[i].host, in[i].bytes, arriving), "cuMemcpyHtoDAsync");
    if (!alone) {
        CHECK(cuda.cuEventRecord(s->arrived, arriving), "cuEventRecord");
        CHECK(cuda.cuStreamWaitEvent(l->work, s->arrived, 0), "cuStreamWaitEvent");
    }
    int rc = operate(l, comm, ops, operations, err);
    if (rc != DONE) return rc;
    if (!alone) {
        CHECK(cuda.cuEventRecord(s->computed, l->work), "cuEventRecord");
        CHECK(cuda.cuStreamWaitEvent(leaving, s->computed, 0), "cuStreamWaitEvent");
    }
    if (outs > 0 && !s->pinned) {
        // A copy to memory that is not pinned may block: not before there is
        // something to copy.
        CHECK(cuda.cuEventRecord(s->done, l->work), "cuEventRecord");
        if ((rc = drun_wait(l, number, comm, err)) != DONE) return rc;
    }
    for (int i = 0; i < outs; i++)
        CHECK(cuda.cuMemcpyDtoHAsync_v2((void *)out[i].host, out[i].device, out[i].bytes, leaving), "cuMemcpyDtoHAsync");
    CHECK(cuda.cuEventRecord(s->done, leaving), "cuEventRecord");
    return DONE;
}

int drun_wait(lane *l, int number, ncclComm_t comm, char *err) {
    CHECK(cuda.cuCtxSetCurrent(l->device->context), "cuCtxSetCurrent");
    for (int turn = 0;; drun_pause(&turn)) {
        if (atomic_load(&l->stop)) return STOPPED;
        CUresult done = cuda.cuEventQuery(l->slots[number].done);
        if (done == CUDA_SUCCESS) return DONE;
        if (done != CUDA_ERROR_NOT_READY) return drun_fail_cuda(err, "the work on the GPU", done);
        if (drun_comm_state(comm, "a collective under way", err) == FAILED) return FAILED;
    }
}

// busy reports whether something still runs on the lane's streams.
int drun_lane_busy(lane *l) {
    cuda.cuCtxSetCurrent(l->device->context);
    return cuda.cuStreamQuery(l->in) == CUDA_ERROR_NOT_READY || cuda.cuStreamQuery(l->work) == CUDA_ERROR_NOT_READY ||
           cuda.cuStreamQuery(l->out) == CUDA_ERROR_NOT_READY;
}
