// What the parts of the fake of libnccl share: communicators, and the memory
// through which their ranks meet and move data, be they threads or processes.
#ifndef FAKE_REGION_H
#define FAKE_REGION_H

#include "fake.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 23203
#endif

enum { MOST_RANKS = 16, RING = 1 << 14 };

// A channel carries bytes from one rank to another.
typedef struct {
    _Atomic uint64_t written, taken;
    char ring[RING];
} channel;

typedef struct {
    atomic_int here, checked, splits, read;
    int device, color, key;
    char host[128];
} seat;

typedef struct {
    atomic_int ranks;
    seat seats[MOST_RANKS];
    channel channels[]; // from * ranks + to
} region;

typedef struct job {
    struct job *next;
    void (*run)(ncclComm_t, void *);
    void *argument;
} job;

enum { COMM_LIVE = 0x636f6d6d, COMM_DEAD = 0x646f6f6d };

struct ncclComm {
    int magic, ranks, rank, device, finalized, splits;
    CUcontext context;
    char path[128];
    region *shared;
    size_t bytes;
    atomic_int abort;
    atomic_int state; // ncclInProgress while a job is under way
    atomic_int error;
    atomic_int pending; // operations on streams
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job *first, **last;
    int ending;
    struct ncclComm *child; // that is being split off
};

// check lets only a live communicator pass, and only one that is not busy.
void fake_comm_check(ncclComm_t c, const char *function);
// begin makes the communicator busy until the job has run in its thread.
void fake_comm_begin(ncclComm_t c, void (*run)(ncclComm_t, void *), void *argument);
// say notes what went wrong, for ncclGetLastError, and returns result.
ncclResult_t fake_say(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define INJECT(name) \
    do { \
        int code_ = fake_inject(#name); \
        if (code_) return fake_say(code_, #name " was made to fail"); \
    } while (0)

#endif
