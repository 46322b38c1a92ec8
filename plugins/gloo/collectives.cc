//go:build gloo

// The collectives: each is Gloo's function of that name, where it has one.

#include <cstring>
#include <numeric>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include "group.h"
#include "reduce.h"

// Up to this many bytes, the thread leads from the beginning of a collective to its end, since taking the connections
// from Gloo's thread costs some system calls; in larger ones Gloo's thread reads while this one reduces.
static constexpr size_t ledThroughout = 1 << 20;

template <typename F>
static int led(group *g, size_t bytes, char *err, F f) {
    return guarded(g, err, [&] {
        std::unique_ptr<Term> term(bytes <= ledThroughout ? new Term(*g->transport->leader) : nullptr);
        f();
    });
}

// Gloo knows an element only by its size.
template <typename F>
static void sized(size_t elem, F f) {
    switch (elem) {
    case 1: return f((uint8_t *)nullptr);
    case 4: return f((uint32_t *)nullptr);
    default: return f((uint64_t *)nullptr);
    }
}

int drun_gloo_allreduce(group *g, int dtype, int op, size_t elem, const void *in, void *out, size_t n, char *err) {
    auto combine = combiner(dtype, op);
    if (!combine) return fail(err, "no such reduction");
    g->calls[ALLREDUCE]++;
    return led(g, n * elem, err, [&] {
        gloo::AllreduceOptions o(g->context);
        sized(elem, [&](auto *t) {
            using T = decltype(t);
            if (in != out) o.setInput((T)const_cast<void *>(in), n);
            o.setOutput((T)out, n);
        });
        o.setReduceFunction(combine);
        gloo::allreduce(o);
    });
}

int drun_gloo_reduce(group *g, int dtype, int op, size_t elem, const void *in, void *out, size_t n, int root, char *err) {
    auto combine = combiner(dtype, op);
    if (!combine) return fail(err, "no such reduction");
    g->calls[REDUCE]++;
    return led(g, n * elem, err, [&] {
        gloo::ReduceOptions o(g->context);
        sized(elem, [&](auto *t) {
            using T = decltype(t);
            if (in != out) o.setInput((T)const_cast<void *>(in), n);
            o.setOutput((T)out, n);
        });
        o.setReduceFunction(combine);
        o.setRoot(root);
        gloo::reduce(o);
    });
}

int drun_gloo_broadcast(group *g, void *data, size_t n, int root, char *err) {
    g->calls[BROADCAST]++;
    return led(g, n, err, [&] {
        gloo::BroadcastOptions o(g->context);
        o.setOutput((char *)data, n);
        o.setRoot(root);
        gloo::broadcast(o);
    });
}

int drun_gloo_allgather(group *g, const void *in, size_t n, void *out, const int64_t *counts, char *err) {
    g->calls[counts ? ALLGATHERV : ALLGATHER]++;
    return led(g, n, err, [&] {
        auto size = g->context->size;
        if (counts) {
            gloo::AllgathervOptions o(g->context);
            o.setInput((char *)const_cast<void *>(in), n);
            o.setOutput((char *)out, std::vector<size_t>(counts, counts + size));
            return gloo::allgatherv(o);
        }
        gloo::AllgatherOptions o(g->context);
        o.setInput((char *)const_cast<void *>(in), n);
        o.setOutput((char *)out, n * size);
        gloo::allgather(o);
    });
}

// Gloo's gather takes parts of one size; with different ones the root posts its receives in the same way.
int drun_gloo_gather(group *g, const void *in, size_t n, void *out, const int64_t *counts, int root, char *err) {
    g->calls[counts ? GATHERV : GATHER]++;
    return led(g, n, err, [&] {
        auto rank = g->context->rank, size = g->context->size;
        if (!counts) {
            gloo::GatherOptions o(g->context);
            o.setInput((char *)const_cast<void *>(in), n);
            if (rank == root) o.setOutput((char *)out, n * size);
            o.setRoot(root);
            return gloo::gather(o);
        }
        constexpr uint64_t slot = DATA_SLOT;
        if (rank != root) {
            if (n == 0) return;
            auto b = g->context->createUnboundBuffer(const_cast<void *>(in), n);
            b->send(root, slot);
            b->waitSend(never);
            return;
        }
        size_t total = 0, at = 0, posted = 0;
        for (int i = 0; i < size; i++) total += counts[i];
        auto b = g->context->createUnboundBuffer(out, total);
        for (int i = 0; i < size; at += counts[i++]) {
            if (i == root) memmove((char *)out + at, in, n);
            else if (counts[i] > 0) b->recv(i, slot, at, counts[i]), posted++;
        }
        while (posted-- > 0) b->waitRecv(nullptr, never);
    });
}

int drun_gloo_scatter(group *g, const void *in, void *out, size_t n, const int64_t *counts, int root, char *err) {
    g->calls[counts ? SCATTERV : SCATTER]++;
    return led(g, n, err, [&] {
        auto rank = g->context->rank, size = g->context->size;
        auto from = (char *)const_cast<void *>(in);
        if (!counts) {
            gloo::ScatterOptions o(g->context);
            if (rank == root) {
                std::vector<char *> parts;
                for (int i = 0; i < size; i++) parts.push_back(from + i * n);
                o.setInputs(parts, n);
            }
            o.setOutput((char *)out, n);
            o.setRoot(root);
            return gloo::scatter(o);
        }
        constexpr uint64_t slot = DATA_SLOT;
        if (rank != root) {
            if (n == 0) return;
            auto b = g->context->createUnboundBuffer(out, n);
            b->recv(root, slot);
            b->waitRecv(nullptr, never);
            return;
        }
        size_t total = 0, at = 0, posted = 0;
        for (int i = 0; i < size; i++) total += counts[i];
        auto b = g->context->createUnboundBuffer(from, total);
        for (int i = 0; i < size; at += counts[i++]) {
            if (i == root) memmove(out, from + at, n);
            else if (counts[i] > 0) b->send(i, slot, at, counts[i]), posted++;
        }
        while (posted-- > 0) b->waitSend(nullptr, never);
    });
}

int drun_gloo_alltoallv(group *g, const void *in, const int64_t *sent, void *out, const int64_t *received, char *err) {
    g->calls[ALLTOALLV]++;
    auto size = g->context->size;
    return led(g, std::accumulate(sent, sent + size, int64_t(0)), err, [&] {
        gloo::AlltoallvOptions o(g->context);
        o.setInput((char *)const_cast<void *>(in), std::vector<int64_t>(sent, sent + size));
        o.setOutput((char *)out, std::vector<int64_t>(received, received + size));
        gloo::alltoallv(o);
    });
}

int drun_gloo_barrier(group *g, char *err) {
    g->calls[BARRIER]++;
    return led(g, 0, err, [&] {
        gloo::BarrierOptions o(g->context);
        gloo::barrier(o);
    });
}
