// The worker pool: threads that take tiles of one job at a time. It is started by the
// first job that uses more than one thread. Callers that find it busy run their tiles themselves, so
// any number of threads may call kernels at once; results do not depend on who runs a tile.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "internal.h"

static struct {
    atomic_int threads;        // wanted, including the caller
    int started;               // workers that exist; guarded by busy
    atomic_flag busy;          // one job at a time
    void (*run)(void *, int64_t);
    void *ctx;
    int64_t n;
    atomic_llong next;         // the next tile to take
    atomic_ullong state;       // generation << 32 | open << 31 | workers that joined
    atomic_int left;           // workers that joined and have finished
    atomic_int sleeping;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} pool = {.threads = 1, .busy = ATOMIC_FLAG_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

enum { SPINS = 4000 };
#define OPEN (1ull << 31)
#define JOINED(s) ((int)((s) & (OPEN - 1)))

static inline void pause_cpu(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void take_tiles(void) {
    int64_t i;
    while ((i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < pool.n) pool.run(pool.ctx, i);
}

// Joining is one compare-and-swap on a state that names the job, so a late worker can never touch a job
// whose caller has returned.
static int join(unsigned long long seen) {
    while (seen & OPEN && JOINED(seen) < atomic_load(&pool.threads) - 1)
        if (atomic_compare_exchange_weak(&pool.state, &seen, seen + 1)) return 1;
    return 0;
}

static void *work(void *spin_for) {
    unsigned long long done = 0;
    for (;;) {
        unsigned long long s = atomic_load(&pool.state);
        for (int i = 0; i < (int)(intptr_t)spin_for && s >> 32 == done; i++) {
            pause_cpu();
            s = atomic_load_explicit(&pool.state, memory_order_acquire);
        }
        if (s >> 32 == done) {
            pthread_mutex_lock(&pool.mutex);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((s = atomic_load(&pool.state)) >> 32 == done) pthread_cond_wait(&pool.wake, &pool.mutex);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.mutex);
        }
        done = s >> 32;
        if (join(s)) {
            take_tiles();
            atomic_fetch_add_explicit(&pool.left, 1, memory_order_release);
        }
    }
    return NULL;
}

// Workers block all signals: those belong to Go's threads.
static void start_workers(int wanted) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    intptr_t spin = wanted < sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
    while (pool.started < wanted) {
        pthread_t t;
        if (pthread_create(&t, NULL, work, (void *)spin)) break;
        pthread_detach(t);
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void parallel_for(int64_t n, void (*run)(void *, int64_t), void *ctx) {
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (n < 2 || threads < 2 || atomic_flag_test_and_set(&pool.busy)) {
        for (int64_t i = 0; i < n; i++) run(ctx, i);
        return;
    }
    if (pool.started < threads - 1) start_workers(threads - 1);
    pool.run = run;
    pool.ctx = ctx;
    pool.n = n;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.left, 0);
    unsigned long long s = ((atomic_load(&pool.state) >> 32) + 1) << 32 | OPEN;
    atomic_store(&pool.state, s);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
    take_tiles();
    int joined = JOINED(atomic_fetch_and(&pool.state, ~OPEN));
    for (int i = 0; atomic_load_explicit(&pool.left, memory_order_acquire) < joined; i++)
        if (i < SPINS) pause_cpu();
        else sched_yield();
    atomic_flag_clear(&pool.busy);
}

struct range {
    int64_t n, part;
    void (*run)(void *, int64_t, int64_t);
    void *ctx;
};

static void run_range(void *ctx, int64_t i) {
    struct range *r = ctx;
    int64_t from = i * r->part, to = from + r->part;
    r->run(r->ctx, from, to < r->n ? to : r->n);
}

void parallel_range(int64_t n, int64_t grain, void (*run)(void *, int64_t, int64_t), void *ctx) {
    int64_t threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (n <= grain || threads < 2) {
        if (n > 0) run(ctx, 0, n);
        return;
    }
    int64_t parts = n / grain < 4 * threads ? n / grain : 4 * threads;
    int64_t part = (n + parts - 1) / parts;
    struct range r = {n, grain < 64 ? part : (part + 63) / 64 * 64, run, ctx};
    parallel_for((n + r.part - 1) / r.part, run_range, &r);
}

void drun_set_threads(int n) { atomic_store(&pool.threads, n < 1 ? 1 : n); }
int drun_threads(void) { return atomic_load(&pool.threads); }

// A free list of scratch blocks, 64-byte aligned; the header holds size and link.
static struct block {
    size_t bytes;
    struct block *next;
    char pad[48];
} *free_blocks;
static pthread_mutex_t scratch_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_ullong failures, missing;

// If no free block is large enough, one that is too small is freed, so that there are never more
// blocks than were once in use together.
void *scratch_take(size_t bytes) {
    bytes = (bytes + 4095) / 4096 * 4096;
    pthread_mutex_lock(&scratch_mutex);
    struct block **best = free_blocks ? &free_blocks : NULL;
    for (struct block **b = best; b && *b; b = &(*b)->next)
        if ((*b)->bytes >= bytes && ((*best)->bytes < bytes || (*b)->bytes < (*best)->bytes)) best = b;
    struct block *found = best ? *best : NULL;
    if (found) *best = found->next;
    pthread_mutex_unlock(&scratch_mutex);
    if (found && found->bytes >= bytes) return found + 1;
    free(found);
    void *p;
    if (posix_memalign(&p, 4096, bytes + sizeof *found)) {
        atomic_store(&missing, bytes);
        atomic_fetch_add(&failures, 1);
        return NULL;
    }
    found = p;
    found->bytes = bytes;
    return found + 1;
}

void scratch_give(void *p) {
    struct block *b = (struct block *)p - 1;
    pthread_mutex_lock(&scratch_mutex);
    b->next = free_blocks;
    free_blocks = b;
    pthread_mutex_unlock(&scratch_mutex);
}

uint64_t scratch_failures(void) { return atomic_load_explicit(&failures, memory_order_relaxed); }
int64_t scratch_missing(void) { return (int64_t)atomic_load(&missing); }
