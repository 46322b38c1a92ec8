// The fake of libnccl: communicators.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "region.h"

static __thread char last[256];

ncclResult_t fake_say(ncclResult_t result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last, sizeof last, format, args);
    va_end(args);
    const char *level = getenv("NCCL_DEBUG");
    if (level && (!strcmp(level, "WARN") || !strcmp(level, "INFO"))) {
        printf("NCCL WARN fake: %s\n", last);
        fflush(stdout);
    }
    return result;
}

EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = FAKE_VERSION;
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t error) {
    static const char *const text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                       "invalid argument", "invalid usage", "remote process exited", "in progress"};
    return error >= 0 && error < 8 ? text[error] : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) { return last; }

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    INJECT(ncclGetUniqueId);
    static atomic_int made;
    const char *folder = getenv("FAKE_NCCL_DIR");
    memset(id, 0, sizeof *id);
    // The time, since a process that was killed may have left the file of another with its number.
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int n = snprintf(id->internal, sizeof id->internal, "%s/fake-nccl-%lld%09ld-%d-%d", folder ? folder : "/tmp", (long long)now.tv_sec, now.tv_nsec, getpid(), atomic_fetch_add(&made, 1));
    if (n >= (int)sizeof id->internal - 32) fake_die("FAKE_NCCL_DIR is too long");
    return ncclSuccess;
}

void fake_comm_check(ncclComm_t c, const char *function) {
    if (!c || c->magic != COMM_LIVE) fake_die("%s: no communicator, or one that is gone", function);
    if (c->finalized) fake_die("%s: the communicator is finalized", function);
    if (atomic_load(&c->state) == ncclInProgress) fake_die("%s was called while the communicator is busy", function);
}

static void *work(void *argument) {
    ncclComm_t c = argument;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->first && !c->ending) pthread_cond_wait(&c->changed, &c->lock);
        job *j = c->first;
        if (!j) break;
        if (!(c->first = j->next)) c->last = &c->first;
        pthread_mutex_unlock(&c->lock);
        fake_dawdle();
        j->run(c, j->argument);
        free(j);
        pthread_mutex_lock(&c->lock);
        atomic_store(&c->state, ncclSuccess);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void fake_comm_begin(ncclComm_t c, void (*run)(ncclComm_t, void *), void *argument) {
    job *j = calloc(1, sizeof *j);
    *j = (job){.run = run, .argument = argument};
    atomic_store(&c->state, ncclInProgress);
    pthread_mutex_lock(&c->lock);
    *c->last = j;
    c->last = &j->next;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static ncclComm_t create(const char *path, int ranks, int rank) {
    ncclComm_t c = calloc(1, sizeof *c);
    c->magic = COMM_LIVE;
    c->ranks = ranks;
    c->rank = rank;
    c->context = fake_current();
    c->device = c->context->device;
    snprintf(c->path, sizeof c->path, "%s", path);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->last = &c->first;
    pthread_create(&c->thread, NULL, work, c);
    fake_track("communicators", 1);
    return c;
}

// until waits for a condition on a seat of every rank, or an abort.
#define UNTIL(c, condition) \
    for (int turn_ = 0, r = 0; r < (c)->ranks && !atomic_load(&(c)->abort);) { \
        seat *s = &(c)->shared->seats[r]; \
        if (condition) r++; \
        else fake_pause(&turn_); \
    }

// join meets the other ranks in a file, which loses its name when all are there.
static void join(ncclComm_t c, void *unused) {
    fake_synchronize(c->context, &c->abort);
    c->bytes = sizeof(region) + sizeof(channel) * c->ranks * c->ranks;
    int fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, c->bytes)) fake_die("cannot open %s", c->path);
    c->shared = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    int expected = 0;
    if (!atomic_compare_exchange_strong(&c->shared->ranks, &expected, c->ranks) && expected != c->ranks)
        fake_die("ranks differ about how many they are: %d and %d", expected, c->ranks);
    seat *mine = &c->shared->seats[c->rank];
    const char *host = getenv("NCCL_HOSTID");
    snprintf(mine->host, sizeof mine->host, "%s", host ? host : "here");
    mine->device = c->device;
    if (atomic_exchange(&mine->here, 1)) fake_die("two ranks %d in one communicator", c->rank);
    UNTIL(c, atomic_load(&s->here));
    const char *many = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    for (int r = 0; r < c->ranks && !atomic_load(&c->abort); r++) {
        seat *s = &c->shared->seats[r];
        if (r != c->rank && s->device == c->device && !strcmp(s->host, mine->host) && !(FAKE_VERSION >= 23000 && many && *many == '1'))
            atomic_store(&c->error, fake_say(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", c->rank, r, c->device));
    }
    atomic_store(&mine->checked, 1);
    UNTIL(c, atomic_load(&s->checked));
    if (c->rank == 0 && !atomic_load(&c->abort)) unlink(c->path);
}

static ncclResult_t check_config(const ncclConfig_t *g) {
    static const struct { unsigned since; size_t size; } layouts[] = {{21800, 48}, {21700, 40}, {21400, 24}};
    if (g->magic != 0xcafebeef) return fake_say(ncclInvalidArgument, "ncclConfig_t argument not initialized");
    if (g->version > FAKE_VERSION) return fake_say(ncclInvalidArgument, "the configuration is of a later version");
    for (int i = 0; i < 3; i++) {
        if (g->version < layouts[i].since) continue;
        if (g->size != layouts[i].size) fake_die("a configuration of version %u has %zu bytes, not %zu", g->version, g->size, layouts[i].size);
        break;
    }
    if (g->blocking != 0) fake_die("a communicator whose calls block");
    if (g->version >= 21700 && g->maxCTAs != INT32_MIN && g->maxCTAs <= 0) return fake_say(ncclInvalidArgument, "Invalid config max channels");
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    INJECT(ncclCommInitRankConfig);
    if (!fake_current()) fake_die("ncclCommInitRankConfig was called by a thread without a context");
    if (rank < 0 || rank >= ranks || ranks > MOST_RANKS) return fake_say(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
    ncclResult_t r = check_config(config);
    if (r != ncclSuccess) return r;
    const char *level = getenv("NCCL_DEBUG");
    if (level && !strcmp(level, "INFO")) {
        printf("NCCL INFO fake: rank %d of %d joins\n", rank, ranks);
        fflush(stdout);
    }
    *comm = create(id.internal, ranks, rank);
    int code = fake_inject("async.ncclCommInitRankConfig");
    if (code) atomic_store(&(*comm)->error, fake_say(code, "joining was made to fail"));
    fake_comm_begin(*comm, join, NULL);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
    INJECT(ncclCommGetAsyncError);
    if (!c || c->magic != COMM_LIVE) fake_die("ncclCommGetAsyncError: no communicator, or one that is gone");
    int known = atomic_load(&c->error);
    *error = known ? known : atomic_load(&c->state);
    return ncclSuccess;
}

static void end(ncclComm_t c) {
    pthread_mutex_lock(&c->lock);
    c->ending = 1;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (int turn = 0; atomic_load(&c->pending);) fake_pause(&turn);
    if (c->shared) munmap(c->shared, c->bytes);
    c->magic = COMM_DEAD; // and not freed: a later use is noticed
    fake_track("communicators", -1);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t c) {
    INJECT(ncclCommAbort);
    if (!c || c->magic != COMM_LIVE) fake_die("ncclCommAbort: no communicator, or one that is gone");
    atomic_store(&c->abort, 1);
    ncclComm_t child = c->child;
    if (child) atomic_store(&child->abort, 1);
    end(c);
    if (c->rank == 0 && c->path[0]) unlink(c->path);
    return ncclSuccess;
}

static void quiesce(ncclComm_t c, void *unused) {
    for (int turn = 0; atomic_load(&c->pending) && !atomic_load(&c->abort);) fake_pause(&turn);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c) {
    INJECT(ncclCommFinalize);
    fake_comm_check(c, "ncclCommFinalize");
    c->finalized = 1;
    fake_comm_begin(c, quiesce, NULL);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c) {
    INJECT(ncclCommDestroy);
    if (!c || c->magic != COMM_LIVE) fake_die("ncclCommDestroy: no communicator, or one that is gone");
    if (!c->finalized || atomic_load(&c->state) != ncclSuccess) fake_die("ncclCommDestroy would block: the communicator is not finalized");
    end(c);
    return ncclSuccess;
}

#if FAKE_VERSION >= 21800

typedef struct {
    int color, key;
    ncclComm_t *out;
} splitting;

static void split(ncclComm_t c, void *argument) {
    splitting *p = argument;
    seat *mine = &c->shared->seats[c->rank];
    int turn = ++c->splits;
    mine->color = p->color;
    mine->key = p->key;
    atomic_store(&mine->splits, turn);
    UNTIL(c, atomic_load(&s->splits) >= turn);
    int ranks = 0, rank = 0;
    for (int r = 0; r < c->ranks && p->color >= 0; r++) {
        seat *s = &c->shared->seats[r];
        if (s->color != p->color) continue;
        ranks++;
        rank += s->key < p->key || (s->key == p->key && r < c->rank);
    }
    atomic_store(&mine->read, turn);
    UNTIL(c, atomic_load(&s->read) >= turn);
    if (p->color >= 0 && !atomic_load(&c->abort)) {
        char path[128];
        if (snprintf(path, sizeof path, "%.100s.%d.%d", c->path, turn, p->color) >= (int)sizeof path) fake_die("too many splits");
        // The new communicator becomes known when all is done, not before.
        c->child->rank = rank;
        c->child->ranks = ranks;
        snprintf(c->child->path, sizeof c->child->path, "%s", path);
        join(c->child, NULL);
        if (!atomic_load(&c->abort)) *p->out = c->child;
    }
    c->child = NULL;
    free(p);
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *child, ncclConfig_t *config) {
    INJECT(ncclCommSplit);
    fake_comm_check(c, "ncclCommSplit");
    if (atomic_load(&c->pending)) fake_die("ncclCommSplit: operations are under way");
    if (color < -1) return fake_say(ncclInvalidArgument, "Invalid color %d", color);
    ncclResult_t r = check_config(config);
    if (r != ncclSuccess) return r;
    *child = NULL;
    if (color >= 0) c->child = create("", 0, 0);
    splitting *p = malloc(sizeof *p);
    *p = (splitting){color, key, child};
    fake_comm_begin(c, split, p);
    return ncclInProgress;
}

#endif
