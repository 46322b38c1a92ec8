//go:build gloo

// Messages between two ranks. Gloo matches a send with a receive by slot, and
// a receive must be posted before data flows. So each message is announced in
// a header, which the receiver takes from any rank; the data of a large one
// follows in a slot of its own.

#include <cstring>
#include <memory>

#include "group.h"

static const size_t headSize = offsetof(header, data);

int drun_gloo_send(group *g, int to, header *h, void *data, char *err) {
    g->calls[SEND]++;
    return guarded(g, err, [&] {
        bool small = h->bytes <= INLINE_SIZE;
        h->slot = small ? 0 : DATA_SLOT | 1ull << 55 | g->sent++;
        if (small && h->bytes > 0) memcpy(h->data, data, h->bytes);
        auto head = g->context->createUnboundBuffer(h, sizeof *h);
        head->send(to, HEADER_SLOT, 0, headSize + (small ? h->bytes : 0));
        Unbound body;
        if (!small) {
            body = g->context->createUnboundBuffer(data, h->bytes);
            body->send(to, h->slot);
        }
        head->waitSend(never);
        if (body) body->waitSend(never);
    });
}

int drun_gloo_next(group *g, int *from, header *h, char *err) {
    for (;;) {
        std::vector<int> sources;
        {
            std::lock_guard<std::mutex> guard(g->presenceLock);
            for (int i = 0; i < int(g->peers.size()); i++) {
                if (i == g->context->rank) continue;
                if (!g->peers[i].left && g->peers[i].failed.empty()) sources.push_back(i);
            }
        }
        gloo::transport::UnboundBuffer *next;
        {
            std::unique_lock<std::mutex> lock(g->stopLock);
            if (sources.empty()) g->stopping.wait(lock, [&] { return g->stopped; });
            if (g->stopped) return 0;
            if (!g->next) g->next = g->transport->inner->createUnboundBuffer(&g->incoming, sizeof g->incoming);
            next = g->next.get();
        }
        try {
            next->recv(sources, HEADER_SLOT, 0, sizeof g->incoming);
            if (!next->waitRecv(from, never)) return 0;
            g->calls[RECV]++;
            memcpy(h, &g->incoming, headSize);
            if (h->bytes <= INLINE_SIZE) memcpy(h->data, g->incoming.data, h->bytes);
            return 1;
        } catch (const std::exception &e) {
            // The sender broke off. Go on without it.
            {
                std::lock_guard<std::mutex> lock(g->stopLock);
                g->next.reset();
            }
            g->lost();
            std::lock_guard<std::mutex> guard(g->presenceLock);
            bool known = false;
            for (int i : sources) known = known || g->peers[i].left || !g->peers[i].failed.empty();
            if (!known) return fail(err, reason(e));
        }
    }
}

int drun_gloo_fetch(group *g, int from, uint64_t slot, void *data, size_t n, char *err) {
    return guarded(g, err, [&] {
        auto b = g->context->createUnboundBuffer(data, n);
        b->recv(from, slot);
        b->waitRecv(nullptr, never);
    });
}

// A paired message has a slot of its own for its tag: Gloo matches the sends and receives of a
// slot in their order.
struct transfer {
    Unbound buffer;
    bool sends;
};

transfer *drun_gloo_post(group *g, int sends, int peer, int64_t tag, void *data, size_t n, char *err) {
    g->calls[sends ? SEND : RECV]++;
    std::unique_ptr<transfer> t(new transfer);
    int rc = guarded(g, err, [&] {
        t->sends = sends != 0;
        t->buffer = g->context->createUnboundBuffer(data, n);
        uint64_t slot = PAIRED_SLOT | uint64_t(tag);
        sends ? t->buffer->send(peer, slot) : t->buffer->recv(peer, slot);
    });
    return rc == 0 ? t.release() : nullptr;
}

int drun_gloo_await(group *g, transfer *posted, char *err) {
    std::unique_ptr<transfer> t(posted);
    return guarded(g, err, [&] { t->sends ? t->buffer->waitSend(never) : t->buffer->waitRecv(nullptr, never); });
}

void drun_gloo_stop(group *g) {
    std::lock_guard<std::mutex> lock(g->stopLock);
    g->stopped = true;
    if (g->next) g->next->abortWaitRecv();
    g->stopping.notify_all();
}
