// A GPU: its context, and host memory for DMA.

#include <stdlib.h>

#include "shim.h"

#define CHECK(call, what) \
    do { \
        CUresult r_ = (call); \
        if (r_ != CUDA_SUCCESS) { \
            drun_fail_cuda(err, what, r_); \
            goto failed; \
        } \
    } while (0)

device *drun_device(int ordinal, char *err) {
    device *d = calloc(1, sizeof *d);
    CHECK(cuda.cuDeviceGet(&d->number, ordinal), "cuDeviceGet");
    CHECK(cuda.cuDeviceGetName(d->name, NAME_SIZE, d->number), "cuDeviceGetName");
    CHECK(cuda.cuDeviceGetAttribute(&d->addressesHost, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, d->number),
          "cuDeviceGetAttribute");
    CHECK(cuda.cuDevicePrimaryCtxRetain(&d->context, d->number), "cuDevicePrimaryCtxRetain");
    CHECK(cuda.cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
    return d;
failed:
    drun_device_free(d);
    return NULL;
}

void drun_device_free(device *d) {
    if (d->context) cuda.cuDevicePrimaryCtxRelease_v2(d->number);
    free(d);
}

int drun_register(device *d, uintptr_t memory, size_t bytes, char *err) {
    CHECK(cuda.cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
    CHECK(cuda.cuMemHostRegister_v2((void *)memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
          "cuMemHostRegister");
    return DONE;
failed:
    return FAILED;
}

void drun_unregister(device *d, uintptr_t memory) {
    cuda.cuCtxSetCurrent(d->context);
    cuda.cuMemHostUnregister((void *)memory);
}

lane *drun_lane(device *d, size_t room, char *err) {
    lane *l = calloc(1, sizeof *l);
    l->device = d;
    CHECK(cuda.cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
    CHECK(cuda.cuStreamCreate(&l->in, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    CHECK(cuda.cuStreamCreate(&l->work, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    CHECK(cuda.cuStreamCreate(&l->out, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &l->slots[i];
        CHECK(cuda.cuMemAlloc_v2(&s->room, room), "cuMemAlloc");
        CHECK(cuda.cuEventCreate(&s->arrived, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        CHECK(cuda.cuEventCreate(&s->computed, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        CHECK(cuda.cuEventCreate(&s->done, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        // Where no more memory may be locked, copies from any memory work too.
        s->pinned = cuda.cuMemHostAlloc(&s->bounce, room, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS;
        if (!s->pinned) s->bounce = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
        if (!s->bounce) CHECK(CUDA_ERROR_OUT_OF_MEMORY, "aligned_alloc");
    }
    return l;
failed:
    drun_lane_free(l);
    return NULL;
}

void drun_lane_free(lane *l) {
    cuda.cuCtxSetCurrent(l->device->context);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &l->slots[i];
        if (s->done) cuda.cuEventDestroy_v2(s->done);
        if (s->computed) cuda.cuEventDestroy_v2(s->computed);
        if (s->arrived) cuda.cuEventDestroy_v2(s->arrived);
        if (s->pinned) cuda.cuMemFreeHost(s->bounce);
        else free(s->bounce);
        if (s->room) cuda.cuMemFree_v2(s->room);
    }
    if (l->out) cuda.cuStreamDestroy_v2(l->out);
    if (l->work) cuda.cuStreamDestroy_v2(l->work);
    if (l->in) cuda.cuStreamDestroy_v2(l->in);
    free(l);
}
