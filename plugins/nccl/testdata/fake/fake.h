// Fakes of libcuda and libnccl, for tests on machines without a GPU. They keep
// the interfaces' rules more strictly than the real ones: whoever breaks one is
// told so, and the process dies. Work is done by threads, one a stream, so that
// a missing wait shows; device memory cannot be touched but through copies.
//
// FAKE_FAIL=NAME:N:CODE,... makes the N-th call of a function fail with CODE, or
// hang with the code "hang"; "async.NAME" lets the call begin and its work fail.
// FAKE_SYNC=1 has calls that take memory wait until the GPU is idle, as the real
// ones may. FAKE_REPORT=FOLDER has each process note there what it holds.
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../../abi.h"

#define EXPORT __attribute__((visibility("default")))

// die says which rule was broken.
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
// inject gives the code with which a call is to fail, or 0.
int fake_inject(const char *name);
// dawdle yields or sleeps now and then, so that things happen in any order.
void fake_dawdle(void);
// pause waits between two looks at what another thread or process does.
void fake_pause(int *turn);

struct CUctx_st {
    int device;
    atomic_int users;
    atomic_int pending; // tasks on its streams
};

// A stream runs its tasks one after the other.
typedef struct task {
    struct task *next;
    void (*run)(void *);
    void *argument;
} task;

struct CUstream_st {
    int magic;
    CUcontext context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first, **last;
    int running, ending;
};

CUcontext fake_current(void);
// synchronize waits, with FAKE_SYNC=1, until nothing runs on the GPU, or stop is set.
void fake_synchronize(CUcontext context, atomic_int *stop);
void fake_enqueue(CUstream stream, void (*run)(void *), void *argument);
// view gives the bytes of device memory, which must be allocated.
void *fake_view(const void *address, size_t bytes, const char *what);
// track counts what must be given back.
void fake_track(const char *what, int change);

#endif
