// The fake of libcuda: devices, contexts, streams, events.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define INJECT(name) \
    do { \
        int code_ = fake_inject(#name); \
        if (code_) return code_; \
    } while (0)

enum { MOST_DEVICES = 16, LIVE = 0x6c697665, DEAD = 0x64656164 };

static struct CUctx_st contexts[MOST_DEVICES];
static atomic_int initialized;
static __thread CUcontext current;

static int devices(void) {
    const char *n = getenv("FAKE_CUDA_DEVICES");
    return n ? atoi(n) : MOST_DEVICES;
}

EXPORT CUcontext fake_current(void) { return current; }

EXPORT void fake_synchronize(CUcontext context, atomic_int *stop) {
    if (!getenv("FAKE_SYNC")) return;
    for (int turn = 0; atomic_load(&context->pending) && !(stop && atomic_load(stop));) fake_pause(&turn);
}

EXPORT CUresult cuInit(unsigned flags) {
    INJECT(cuInit);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    atomic_store(&initialized, 1);
    return devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    INJECT(cuDriverGetVersion);
    *version = 12080;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    static __thread char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", error);
    *name = text;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an injected error";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    INJECT(cuDeviceGetCount);
    if (!atomic_load(&initialized)) return CUDA_ERROR_NOT_INITIALIZED;
    *count = devices();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    INJECT(cuDeviceGet);
    if (!atomic_load(&initialized)) return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    INJECT(cuDeviceGetName);
    snprintf(name, bytes, "fake GPU %d", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    INJECT(cuDeviceGetAttribute);
    if (attribute != CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) return CUDA_ERROR_INVALID_VALUE;
    *value = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    INJECT(cuDevicePrimaryCtxRetain);
    *context = &contexts[device];
    (*context)->device = device;
    atomic_fetch_add(&(*context)->users, 1);
    fake_track("contexts", 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    INJECT(cuDevicePrimaryCtxRelease_v2);
    if (atomic_fetch_sub(&contexts[device].users, 1) < 1) fake_die("the context of device %d was released too often", device);
    fake_track("contexts", -1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    INJECT(cuCtxSetCurrent);
    if (context && !atomic_load(&context->users)) fake_die("a context was used after its release");
    current = context;
    return CUDA_SUCCESS;
}

#define NEED_CONTEXT(function) \
    if (!current) fake_die(#function " was called by a thread without a context")

static void *serve(void *argument) {
    CUstream s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->ending) pthread_cond_wait(&s->changed, &s->lock);
        task *t = s->first;
        if (!t) break;
        if (!(s->first = t->next)) s->last = &s->first;
        s->running = 1;
        pthread_mutex_unlock(&s->lock);
        fake_dawdle();
        t->run(t->argument);
        free(t);
        atomic_fetch_sub(&s->context->pending, 1);
        pthread_mutex_lock(&s->lock);
        s->running = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void check_stream(CUstream s, const char *what) {
    if (!s || s->magic != LIVE) fake_die("%s: no stream", what);
}

EXPORT void fake_enqueue(CUstream s, void (*run)(void *), void *argument) {
    task *t = calloc(1, sizeof *t);
    *t = (task){.run = run, .argument = argument};
    atomic_fetch_add(&s->context->pending, 1);
    pthread_mutex_lock(&s->lock);
    *s->last = t;
    s->last = &t->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    INJECT(cuStreamCreate);
    NEED_CONTEXT(cuStreamCreate);
    if (flags != CU_STREAM_NON_BLOCKING) fake_die("a stream that waits for the default stream");
    CUstream s = calloc(1, sizeof *s);
    s->magic = LIVE;
    s->context = current;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, serve, s);
    fake_track("streams", 1);
    *stream = s;
    return CUDA_SUCCESS;
}

static int busy(CUstream s) {
    pthread_mutex_lock(&s->lock);
    int busy = s->first || s->running;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

EXPORT CUresult cuStreamQuery(CUstream s) {
    INJECT(cuStreamQuery);
    check_stream(s, "cuStreamQuery");
    return busy(s) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
    INJECT(cuStreamDestroy_v2);
    check_stream(s, "cuStreamDestroy");
    if (busy(s)) fake_die("a stream was destroyed while work was on it");
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->magic = DEAD; // and not freed: a later use is noticed
    fake_track("streams", -1);
    return CUDA_SUCCESS;
}

struct CUevent_st {
    int magic;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, passed;
};

typedef struct {
    CUevent event;
    uint64_t turn;
} moment;

static moment *moment_of(CUevent e) {
    moment *m = malloc(sizeof *m);
    *m = (moment){e, e->recorded};
    return m;
}

static void pass(void *argument) {
    moment *m = argument;
    pthread_mutex_lock(&m->event->lock);
    if (m->event->passed < m->turn) m->event->passed = m->turn;
    pthread_cond_broadcast(&m->event->changed);
    pthread_mutex_unlock(&m->event->lock);
    free(m);
}

static void await(void *argument) {
    moment *m = argument;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->passed < m->turn) pthread_cond_wait(&m->event->changed, &m->event->lock);
    pthread_mutex_unlock(&m->event->lock);
    free(m);
}

static void check_event(CUevent e, const char *what) {
    if (!e || e->magic != LIVE) fake_die("%s: no event", what);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    INJECT(cuEventCreate);
    NEED_CONTEXT(cuEventCreate);
    CUevent e = calloc(1, sizeof *e);
    e->magic = LIVE;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    fake_track("events", 1);
    *event = e;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent e) {
    INJECT(cuEventDestroy_v2);
    check_event(e, "cuEventDestroy");
    e->magic = DEAD;
    fake_track("events", -1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
    INJECT(cuEventRecord);
    NEED_CONTEXT(cuEventRecord);
    check_event(e, "cuEventRecord");
    check_stream(s, "cuEventRecord");
    if (s->context != current) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&e->lock);
    e->recorded++;
    moment *m = moment_of(e);
    pthread_mutex_unlock(&e->lock);
    fake_enqueue(s, pass, m);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    INJECT(cuStreamWaitEvent);
    check_event(e, "cuStreamWaitEvent");
    check_stream(s, "cuStreamWaitEvent");
    pthread_mutex_lock(&e->lock);
    moment *m = moment_of(e);
    pthread_mutex_unlock(&e->lock);
    fake_enqueue(s, await, m);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent e) {
    INJECT(cuEventQuery);
    check_event(e, "cuEventQuery");
    pthread_mutex_lock(&e->lock);
    int over = e->passed >= e->recorded;
    pthread_mutex_unlock(&e->lock);
    return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
