// The fake of libcuda: memory and copies. Device memory is mapped twice: at the
// address that is given out nobody may touch it, as the host cannot touch that
// of a GPU; the streams' threads use the other one.

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define INJECT(name) \
    do { \
        int code_ = fake_inject(#name); \
        if (code_) return code_; \
    } while (0)
#define NEED_CONTEXT(function) \
    if (!fake_current()) fake_die(#function " was called by a thread without a context")

typedef struct range {
    struct range *next;
    char *start;
    size_t bytes;
    char *view; // of device memory
    int copies; // under way, to or from host memory
} range;

static range *device_memory, *registered, *allocated;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static range *find(range *list, const void *at, size_t bytes) {
    for (; list; list = list->next)
        if ((char *)at >= list->start && (char *)at + bytes <= list->start + list->bytes) return list;
    return NULL;
}

static range *overlapping(range *list, const void *at, size_t bytes) {
    for (; list; list = list->next)
        if ((char *)at < list->start + list->bytes && (char *)at + bytes > list->start) return list;
    return NULL;
}

static void add(range **list, range r) {
    range *n = malloc(sizeof *n);
    *n = r;
    pthread_mutex_lock(&lock);
    n->next = *list;
    *list = n;
    pthread_mutex_unlock(&lock);
}

// removed takes the range that starts there out of a list.
static int removed(range **list, const void *start, range *out) {
    int ok = 0;
    pthread_mutex_lock(&lock);
    for (; *list; list = &(*list)->next)
        if ((*list)->start == start) {
            range *r = *list;
            if (r->copies) fake_die("memory is given back while a copy uses it");
            *out = *r;
            *list = r->next;
            free(r);
            ok = 1;
            break;
        }
    pthread_mutex_unlock(&lock);
    return ok;
}

EXPORT void *fake_view(const void *address, size_t bytes, const char *what) {
    pthread_mutex_lock(&lock);
    range *r = find(device_memory, address, bytes);
    char *view = r ? r->view + ((char *)address - r->start) : NULL;
    // Kernels may use the host's memory where all of it is registered.
    const char *at = address, *end = at + bytes;
    for (range *h; !r && at < end && (h = overlapping(registered, at, 1)); at = h->start + h->bytes) continue;
    if (!r && at >= end) view = (char *)address;
    pthread_mutex_unlock(&lock);
    if (!view) fake_die("%s: %zu bytes at %p are not device memory", what, bytes, address);
    return view;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    INJECT(cuMemAlloc_v2);
    NEED_CONTEXT(cuMemAlloc);
    fake_synchronize(fake_current(), NULL);
    int fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    char *start = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    char *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (start == MAP_FAILED || view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    add(&device_memory, (range){.start = start, .bytes = bytes, .view = view});
    fake_track("device memory", 1);
    *memory = (uintptr_t)start;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr memory) {
    INJECT(cuMemFree_v2);
    range r;
    if (!removed(&device_memory, (void *)(uintptr_t)memory, &r)) return CUDA_ERROR_INVALID_VALUE;
    munmap(r.start, r.bytes);
    munmap(r.view, r.bytes);
    fake_track("device memory", -1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    INJECT(cuMemHostAlloc);
    NEED_CONTEXT(cuMemHostAlloc);
    fake_synchronize(fake_current(), NULL);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    add(&allocated, (range){.start = p, .bytes = bytes});
    fake_track("host memory", 1);
    *memory = p;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *memory) {
    INJECT(cuMemFreeHost);
    range r;
    if (!removed(&allocated, memory, &r)) return CUDA_ERROR_INVALID_VALUE;
    munmap(r.start, r.bytes);
    fake_track("host memory", -1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    INJECT(cuMemHostRegister_v2);
    NEED_CONTEXT(cuMemHostRegister);
    fake_synchronize(fake_current(), NULL);
    if (!bytes || !(flags & CU_MEMHOSTREGISTER_PORTABLE)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int known = overlapping(registered, memory, bytes) != NULL;
    pthread_mutex_unlock(&lock);
    if (known) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    add(&registered, (range){.start = memory, .bytes = bytes});
    fake_track("registrations", 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *memory) {
    INJECT(cuMemHostUnregister);
    range r;
    if (!removed(&registered, memory, &r)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    fake_track("registrations", -1);
    return CUDA_SUCCESS;
}

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    range *pinned;
    void *snapshot;
    CUdeviceptr device;
    int out;
    atomic_int *over;
} copy;

static void transfer(void *argument) {
    copy *c = argument;
    void *device = fake_view((void *)(uintptr_t)c->device, c->bytes, "a copy");
    if (c->out) memcpy(c->to, device, c->bytes);
    else memcpy(device, c->snapshot ? c->snapshot : c->from, c->bytes);
    free(c->snapshot);
    pthread_mutex_lock(&lock);
    if (c->pinned) c->pinned->copies--;
    pthread_mutex_unlock(&lock);
    if (c->over) atomic_store(c->over, 1);
    free(c);
}

// pin finds out how host memory can be copied: directly from one range that is
// locked, or, where none is, as any memory. A range must not end within it.
static CUresult pin(const void *host, size_t bytes, range **pinned) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    *pinned = find(registered, host, bytes);
    if (!*pinned) *pinned = find(allocated, host, bytes);
    if (*pinned) (*pinned)->copies++;
    else if (overlapping(registered, host, bytes)) result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    INJECT(cuMemcpyHtoDAsync_v2);
    NEED_CONTEXT(cuMemcpyHtoDAsync);
    copy *c = calloc(1, sizeof *c);
    *c = (copy){.device = to, .from = from, .bytes = bytes};
    CUresult r = pin(from, bytes, &c->pinned);
    if (r != CUDA_SUCCESS) return free(c), r;
    fake_view((void *)(uintptr_t)to, bytes, "cuMemcpyHtoDAsync");
    if (!c->pinned) c->snapshot = memcpy(malloc(bytes), from, bytes);
    fake_enqueue(stream, transfer, c);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    INJECT(cuMemcpyDtoHAsync_v2);
    NEED_CONTEXT(cuMemcpyDtoHAsync);
    copy *c = calloc(1, sizeof *c);
    *c = (copy){.device = from, .to = to, .bytes = bytes, .out = 1};
    CUresult r = pin(to, bytes, &c->pinned);
    if (r != CUDA_SUCCESS) return free(c), r;
    fake_view((void *)(uintptr_t)from, bytes, "cuMemcpyDtoHAsync");
    atomic_int over = 0;
    int pageable = !c->pinned;
    if (pageable) c->over = &over;
    fake_enqueue(stream, transfer, c);
    for (int turn = 0; pageable && !atomic_load(&over);) fake_pause(&turn);
    return CUDA_SUCCESS;
}
