// The fake of libnccl: operations. A group becomes a list of transfers, which go
// on side by side, and of reductions after them. Contributions are reduced from
// the last rank to the first, an order that nobody may count on.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "region.h"

enum { BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV, GATHER, SCATTER, ALL_TO_ALL };

enum { MOST_OPERATIONS = 2 * MOST_RANKS + 2 };

typedef struct {
    int kind, type, op, peer;
    const void *send;
    void *recv;
    size_t count, bytes;
    int fail; // with this, while it is under way
} operation;

typedef struct {
    int n;
    ncclComm_t comm;
    CUstream stream;
    operation operations[MOST_OPERATIONS];
} batch;

static __thread int depth;
static __thread batch *group;

static size_t size_of(int type) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return sizes[type];
}

// transfers

typedef struct {
    int from, to, kind;
    char *data;
    size_t bytes, moved, announced;
} transfer;

typedef struct {
    uint32_t kind;
    uint32_t check;
    uint64_t bytes;
} announcement;

typedef struct {
    int n;
    transfer all[MOST_OPERATIONS * 2 * MOST_RANKS];
} transfers;

static void add(transfers *t, int kind, int from, int to, const void *data, size_t bytes) {
    if (t->n == sizeof t->all / sizeof t->all[0]) fake_die("too many transfers");
    t->all[t->n++] = (transfer){from, to, kind, (char *)data, bytes, 0, 0};
}

static size_t put(channel *c, const char *data, size_t n) {
    uint64_t at = atomic_load(&c->written), room = RING - (at - atomic_load(&c->taken));
    if (n > room) n = room;
    for (size_t i = 0; i < n;) {
        size_t k = RING - (at + i) % RING;
        if (k > n - i) k = n - i;
        memcpy(c->ring + (at + i) % RING, data + i, k);
        i += k;
    }
    atomic_store(&c->written, at + n);
    return n;
}

static size_t take(channel *c, char *data, size_t n) {
    uint64_t at = atomic_load(&c->taken), there = atomic_load(&c->written) - at;
    if (n > there) n = there;
    for (size_t i = 0; i < n;) {
        size_t k = RING - (at + i) % RING;
        if (k > n - i) k = n - i;
        memcpy(data + i, c->ring + (at + i) % RING, k);
        i += k;
    }
    atomic_store(&c->taken, at + n);
    return n;
}

static size_t step_out(ncclComm_t c, transfer *t) {
    channel *ch = &c->shared->channels[t->from * c->ranks + t->to];
    size_t n = 0;
    if (!t->announced) {
        announcement a = {t->kind, 0xfa4e, t->bytes};
        if (RING - (atomic_load(&ch->written) - atomic_load(&ch->taken)) < sizeof a) return 0;
        n = t->announced = put(ch, (char *)&a, sizeof a);
    }
    size_t moved = put(ch, t->data + t->moved, t->bytes - t->moved);
    t->moved += moved;
    return n + moved;
}

static size_t step_in(ncclComm_t c, transfer *t) {
    channel *ch = &c->shared->channels[t->from * c->ranks + t->to];
    size_t n = 0;
    if (!t->announced) {
        announcement a;
        if (atomic_load(&ch->written) - atomic_load(&ch->taken) < sizeof a) return 0;
        n = t->announced = take(ch, (char *)&a, sizeof a);
        if (a.check != 0xfa4e || a.kind != (uint32_t)t->kind || a.bytes != t->bytes)
            fake_die("rank %d sends %llu bytes in operation %u, but rank %d awaits %zu in operation %d", t->from,
                     (unsigned long long)a.bytes, a.kind, t->to, t->bytes, t->kind);
    }
    size_t moved = take(ch, t->data + t->moved, t->bytes - t->moved);
    t->moved += moved;
    return n + moved;
}

// move carries out all transfers. Those over one channel keep their order.
static void move(ncclComm_t c, transfers *out, transfers *in) {
    for (int turn = 0; !atomic_load(&c->abort);) {
        size_t moved = 0;
        int left = 0;
        for (int side = 0; side < 2; side++) {
            transfers *list = side ? in : out;
            char held[MOST_RANKS] = {0};
            for (int i = 0; i < list->n; i++) {
                transfer *t = &list->all[i];
                int peer = side ? t->from : t->to;
                if (t->announced && t->moved == t->bytes) continue;
                if (!held[peer]) moved += side ? step_in(c, t) : step_out(c, t);
                if (!(t->announced && t->moved == t->bytes)) held[peer] = 1, left++;
            }
        }
        if (!left) return;
        if (moved) turn = 0;
        else fake_pause(&turn);
    }
}

// reductions

#define FOLD(T) \
    for (size_t i = 0; i < n; i++) { \
        T a = ((T *)to)[i], b = ((const T *)from)[i]; \
        ((T *)to)[i] = op == ncclSum ? a + b : op == ncclProd ? a * b : op == ncclMax ? (a > b ? a : b) : (a < b ? a : b); \
    } \
    return

static void fold(void *to, const void *from, size_t n, int type, int op) {
    switch (type) {
    case ncclInt8: FOLD(int8_t);
    case ncclUint8: FOLD(uint8_t);
    case ncclInt32: FOLD(int32_t);
    case ncclUint32: FOLD(uint32_t);
    case ncclInt64: FOLD(int64_t);
    case ncclUint64: FOLD(uint64_t);
    case ncclFloat32: FOLD(float);
    case ncclFloat64: FOLD(double);
    }
    fake_die("the fake does not reduce type %d", type);
}

static void lower(ncclComm_t c, operation *o, transfers *out, transfers *in, char **parts) {
    int me = c->rank, n = c->ranks, root = o->peer, k = o->kind;
    size_t b = o->bytes;
    const char *send = o->send;
    char *recv = o->recv;
    switch (k) {
    case BROADCAST:
        if (me != root) add(in, k, root, me, recv, b);
        for (int r = 0; me == root && r < n; r++)
            if (r != me) add(out, k, me, r, send, b);
        if (me == root && recv != send) memmove(recv, send, b);
        return;
    case SEND: add(out, SEND, me, root, send, b); return;
    case RECV: add(in, SEND, root, me, recv, b); return;
    case ALL_GATHER:
        memmove(recv + me * b, send, b);
        for (int r = 0; r < n; r++)
            if (r != me) add(out, k, me, r, recv + me * b, b), add(in, k, r, me, recv + r * b, b);
        return;
    case GATHER:
        if (me != root) add(out, k, me, root, send, b);
        for (int r = 0; me == root && r < n; r++)
            if (r != me) add(in, k, r, me, recv + r * b, b);
            else memmove(recv + r * b, send, b);
        return;
    case SCATTER:
        if (me != root) add(in, k, root, me, recv, b);
        for (int r = 0; me == root && r < n; r++)
            if (r != me) add(out, k, me, r, send + r * b, b);
            else memmove(recv, send + r * b, b);
        return;
    case ALL_TO_ALL:
        for (int r = 0; r < n; r++)
            if (r != me) add(out, k, me, r, send + r * b, b), add(in, k, r, me, recv + r * b, b);
            else memmove(recv + r * b, send + r * b, b);
        return;
    }
    // Reductions gather first: each rank's part for this one.
    int receives = k != REDUCE || me == root;
    size_t mine = k == REDUCE_SCATTER ? me * b : 0;
    if (receives) {
        *parts = malloc(n * b + 1);
        memcpy(*parts + me * b, send + mine, b);
    }
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        if (k != REDUCE || r == root) add(out, k, me, r, k == REDUCE_SCATTER ? send + r * b : send, b);
        if (receives) add(in, k, r, me, *parts + r * b, b);
    }
}

static void run(void *argument) {
    batch *g = argument;
    ncclComm_t c = g->comm;
    transfers *out = calloc(1, sizeof *out), *in = calloc(1, sizeof *in);
    char *parts[MOST_OPERATIONS] = {0};
    int failed = 0;
    for (int i = 0; i < g->n && !failed; i++) failed = g->operations[i].fail;
    if (failed) {
        atomic_store(&c->error, failed);
        for (int turn = 0; !atomic_load(&c->abort);) fake_pause(&turn);
    }
    for (int i = 0; i < g->n; i++) lower(c, &g->operations[i], out, in, &parts[i]);
    move(c, out, in);
    for (int i = 0; i < g->n; i++) {
        operation *o = &g->operations[i];
        if (!parts[i]) continue;
        if (!atomic_load(&c->abort)) {
            char *sum = parts[i] + (c->ranks - 1) * o->bytes;
            for (int r = c->ranks - 2; r >= 0; r--) fold(sum, parts[i] + r * o->bytes, o->count, o->type, o->op);
            memcpy(o->recv, sum, o->bytes);
        }
        free(parts[i]);
    }
    atomic_fetch_sub(&c->pending, 1);
    free(out);
    free(in);
    free(g);
}

static void launch(ncclComm_t c, void *argument) { fake_enqueue(((batch *)argument)->stream, run, argument); }

// groups

EXPORT ncclResult_t ncclGroupStart(void) {
    INJECT(ncclGroupStart);
    if (depth++ == 0) group = calloc(1, sizeof *group);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void) {
    if (depth == 0) fake_die("ncclGroupEnd without ncclGroupStart");
    if (--depth > 0) return ncclSuccess;
    batch *g = group;
    group = NULL;
    int code = fake_inject("ncclGroupEnd");
    if (code || g->n == 0) {
        free(g);
        return code ? fake_say(code, "ncclGroupEnd was made to fail") : ncclSuccess;
    }
    atomic_fetch_add(&g->comm->pending, 1);
    fake_comm_begin(g->comm, launch, g);
    return ncclInProgress;
}

// span checks memory that an operation uses, and returns the address at which the fake can use it.
static void *span(const void *address, size_t bytes, const char *name) { return bytes ? fake_view(address, bytes, name) : NULL; }

static ncclResult_t begin(const char *name, int kind, const void *send, size_t sends, void *recv, size_t receives, size_t count,
                          int type, int op, int peer, ncclComm_t c, CUstream stream) {
    char async[64];
    snprintf(async, sizeof async, "async.%s", name);
    int code = fake_inject(name);
    if (code) return fake_say(code, "%s was made to fail", name);
    fake_comm_check(c, name);
    if (type < 0 || type > ncclBfloat16 || op < 0 || op > ncclAvg) return fake_say(ncclInvalidArgument, "%s : invalid type %d or op %d", name, type, op);
    if (peer < 0 || peer >= c->ranks) return fake_say(ncclInvalidArgument, "%s : invalid root or peer %d", name, peer);
    if (stream->context->device != c->device) fake_die("%s: the stream is of device %d, the communicator of %d", name, stream->context->device, c->device);
    size_t size = size_of(type);
    operation o = {kind, type, op, peer, span(send, sends * size, name), span(recv, receives * size, name), count, count * size,
                   fake_inject(async)};
    int alone = depth == 0;
    if (alone) ncclGroupStart();
    if (group->n && (group->comm != c || group->stream != stream)) fake_die("%s: a group of several communicators or streams", name);
    if (group->n == MOST_OPERATIONS) fake_die("%s: the group is too large", name);
    group->comm = c;
    group->stream = stream;
    group->operations[group->n++] = o;
    return alone ? ncclGroupEnd() : ncclSuccess;
}

#define OPERATION(name, parameters, ...) \
    EXPORT ncclResult_t name parameters { return begin(#name, __VA_ARGS__, comm, stream); }
#define COMMON ncclComm_t comm, CUstream stream
#define BUFFERS const void *send, void *recv, size_t n, int type

OPERATION(ncclBroadcast, (BUFFERS, int root, COMMON), BROADCAST, send, comm->rank == root ? n : 0, recv, n, n, type, 0, root)
OPERATION(ncclReduce, (BUFFERS, int op, int root, COMMON), REDUCE, send, n, recv, comm->rank == root ? n : 0, n, type, op, root)
OPERATION(ncclAllReduce, (BUFFERS, int op, COMMON), ALL_REDUCE, send, n, recv, n, n, type, op, 0)
OPERATION(ncclAllGather, (BUFFERS, COMMON), ALL_GATHER, send, n, recv, n * comm->ranks, n, type, 0, 0)
OPERATION(ncclReduceScatter, (BUFFERS, int op, COMMON), REDUCE_SCATTER, send, n * comm->ranks, recv, n, n, type, op, 0)
OPERATION(ncclSend, (const void *send, size_t n, int type, int peer, COMMON), SEND, send, n, NULL, 0, n, type, 0, peer)
OPERATION(ncclRecv, (void *recv, size_t n, int type, int peer, COMMON), RECV, NULL, 0, recv, n, n, type, 0, peer)
#if FAKE_VERSION >= 22800
OPERATION(ncclGather, (BUFFERS, int root, COMMON), GATHER, send, n, recv, comm->rank == root ? n * comm->ranks : 0, n, type, 0, root)
OPERATION(ncclScatter, (BUFFERS, int root, COMMON), SCATTER, send, comm->rank == root ? n * comm->ranks : 0, recv, n, n, type, 0, root)
OPERATION(ncclAlltoAll, (BUFFERS, COMMON), ALL_TO_ALL, send, n * comm->ranks, recv, n * comm->ranks, n, type, 0, 0)
#endif
