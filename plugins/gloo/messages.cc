//go:build gloo

// Messages between two ranks. Gloo matches a send with a receive by slot, and
// a receive must be posted before data flows. So each message is announced in
// a header, which the receiver takes from any rank; the data of a large one
// follows in a slot of its own.

#include <cstdio>
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
// slot in their order. All that are under way are waited for together, by one thread.
struct transfer {
    Unbound buffer;
    bool sends;
    uint64_t key;
    bool posting = true; // the thread that posts it still uses it

    bool over() { return !posting && static_cast<Tracked *>(buffer.get())->over(sends); }
    void wait() { sends ? buffer->waitSend(never) : buffer->waitRecv(nullptr, never); }
};

int drun_gloo_post(group *g, uint64_t key, int sends, int peer, int64_t tag, void *data, size_t n, char *err) {
    g->calls[sends ? SEND : RECV]++;
    int ended = 0;
    int rc = guarded(g, err, [&] {
        auto t = std::make_shared<transfer>();
        t->buffer = g->context->createUnboundBuffer(data, n);
        t->sends = sends != 0;
        t->key = key;
        {
            std::lock_guard<std::mutex> lock(g->postedLock);
            g->posted.push_back(t); // before it can end
        }
        uint64_t slot = PAIRED_SLOT | uint64_t(tag);
        try {
            sends ? t->buffer->send(peer, slot) : t->buffer->recv(peer, slot);
        } catch (...) {
            std::lock_guard<std::mutex> lock(g->postedLock);
            g->posted.remove(t);
            throw;
        }
        {
            std::lock_guard<std::mutex> lock(g->postedLock);
            t->posting = false;
            if (!t->over()) return;
            g->posted.remove(t);
        }
        t->wait();
        ended = 1;
    });
    return rc < 0 ? rc : ended;
}

int drun_gloo_ended(group *g, transfer_end *ends, int most) {
    int n = 0;
    auto look = [&] {
        std::lock_guard<std::mutex> lock(g->postedLock);
        if (g->posted.empty()) return true;
        for (auto &t : g->posted)
            if (t->over()) return true;
        return false;
    };
    try {
        Term term(*g->transport->leader, true);
        // Where processes share cores this thread sleeps at once: others compute meanwhile.
        g->transport->leader->lead(look, 0);
    } catch (const std::exception &e) {
        fprintf(stderr, "%s\n", e.what());
        g->transport->interrupt(); // the connections are of no use any more
    }
    std::list<std::shared_ptr<transfer>> ended;
    {
        std::lock_guard<std::mutex> lock(g->postedLock);
        for (auto i = g->posted.begin(); i != g->posted.end() && n < most;) {
            if (!(*i)->over()) {
                i++;
                continue;
            }
            ends[n++].key = (*i)->key;
            ended.push_back(*i);
            i = g->posted.erase(i);
        }
    }
    n = 0;
    for (auto &t : ended) {
        auto &e = ends[n++];
        e.rc = guarded(g, e.err, [&] { t->wait(); });
    }
    return n;
}

void drun_gloo_stop(group *g) {
    std::lock_guard<std::mutex> lock(g->stopLock);
    g->stopped = true;
    if (g->next) g->next->abortWaitRecv();
    g->stopping.notify_all();
    g->transport->leader->ring();
}
