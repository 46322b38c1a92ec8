//go:build gloo

// How a group comes to be and ends: devices, connections, and who is there.

#include <csignal>
#include <cstring>

#include <gloo/config.h>

#include "group.h"

int fail(char *err, const std::string &what) {
    strncpy(err, what.c_str(), ERR_SIZE - 1);
    err[ERR_SIZE - 1] = 0;
    return -1;
}

// reason is an exception's text without the place in Gloo's source.
std::string reason(const std::exception &e) {
    std::string s = e.what();
    if (s.size() > 0 && s[0] == '[') {
        auto end = s.find("] ");
        if (end != std::string::npos && s.find(".cc:") < end) s = s.substr(end + 2);
    }
    return s;
}

device *drun_gloo_device(const char *interface, const char *address, char *name, char *err) {
    try {
        gloo::transport::tcp::attr attr;
        attr.iface = interface;
        attr.hostname = address;
        // The device's thread inherits the mask: a peer that is gone is an error, not the end of this process.
        sigset_t pipe, before;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe, &before);
        std::shared_ptr<gloo::transport::Device> d;
        std::exception_ptr failed;
        try {
            d = gloo::transport::tcp::CreateDevice(attr);
        } catch (...) {
            failed = std::current_exception();
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (failed) std::rethrow_exception(failed);
        strncpy(name, d->str().c_str(), ERR_SIZE - 1);
        name[ERR_SIZE - 1] = 0;
        return new device{d};
    } catch (const std::exception &e) {
        fail(err, reason(e));
        return nullptr;
    }
}

device *drun_gloo_device_share(device *d) { return new device{d->gloo}; }

void drun_gloo_device_free(device *d) { delete d; }

group *drun_gloo_group(device *d, int rank, int size, int pauses, int yields, char *err) {
    std::unique_ptr<group> g(new group);
    try {
        g->device = d->gloo;
        g->context = std::make_shared<Context>(rank, size);
        auto leader = std::make_shared<Leader>(pauses, yields);
        auto transport = std::make_shared<Net>(std::dynamic_pointer_cast<tcp::Device>(d->gloo), rank, size, leader);
        transport->setTimeout(never);
        g->transport = std::make_shared<Transport>(transport, leader);
        g->peers.resize(size);
        for (int i = 0; i < size; i++)
            if (i != rank) transport->createPair(i);
        g->context->attach(d->gloo, g->transport);
        return g.release();
    } catch (const std::exception &e) {
        fail(err, reason(e));
        return nullptr;
    }
}

int drun_gloo_connect(group *g, int peer, int socket, const char *address, char *err) {
    g->peers[peer].address = address;
    try {
        dynamic_cast<Pair &>(*g->transport->getPair(peer)).adopt(socket);
        return 0;
    } catch (const std::exception &e) {
        return fail(err, "rank " + std::to_string(peer) + " at " + address + ": " + reason(e));
    }
}

int drun_gloo_ready(group *g, char *err) {
    try {
        for (int i = 0; i < int(g->peers.size()); i++) {
            if (i == g->context->rank) continue;
            auto &p = g->peers[i];
            p.receive = g->transport->inner->createUnboundBuffer(&p.byte, 1);
            p.receive->recv(i, PRESENCE_SLOT, 0, 1);
        }
        return 0;
    } catch (const std::exception &e) {
        return fail(err, reason(e));
    }
}

void group::look(int rank) {
    auto &p = peers[rank];
    if (p.left || !p.failed.empty() || !p.receive) return;
    try {
        // A wait that is aborted beforehand does not wait.
        p.receive->abortWaitRecv();
        p.receive->waitRecv(nullptr, never);
        p.left = p.byte != 0;
        if (!p.left && dynamic_cast<Pair &>(*transport->getPair(rank)).silent())
            p.failed = "nothing came back for " + std::to_string(silence.count()) + " seconds";
    } catch (const std::exception &e) {
        p.failed = reason(e);
    }
}

std::string group::lost() {
    std::lock_guard<std::mutex> guard(presenceLock);
    std::string s;
    for (int i = 0; i < int(peers.size()); i++) {
        if (i == context->rank) continue;
        look(i);
        if (!peers[i].failed.empty())
            s += (s.empty() ? "" : "; ") + ("rank " + std::to_string(i)) + " at " + peers[i].address + ": " + peers[i].failed;
    }
    return s;
}

int drun_gloo_peer(group *g, int peer, char *err) {
    std::lock_guard<std::mutex> guard(g->presenceLock);
    g->look(peer);
    auto &p = g->peers[peer];
    if (!p.failed.empty()) return fail(err, "rank " + std::to_string(peer) + " at " + p.address + ": " + p.failed);
    return p.left ? 1 : 0;
}

void drun_gloo_interrupt(group *g) {
    drun_gloo_stop(g);
    g->transport->interrupt();
    // A wait that times out is how Gloo closes all connections of a context, which
    // tells the peers. This one waits for nothing.
    try {
        char nothing;
        g->transport->inner->createUnboundBuffer(&nothing, 1)->waitRecv(nullptr, std::chrono::milliseconds(0));
    } catch (const std::exception &) {
    }
}

// leave tells the peers that this rank goes in good order.
void drun_gloo_leave(group *g) {
    static char there = 1;
    for (int i = 0; i < int(g->peers.size()); i++) {
        if (i == g->context->rank) continue;
        try {
            auto b = g->transport->inner->createUnboundBuffer(&there, 1);
            b->send(i, PRESENCE_SLOT, 0, 1);
            // Every peer that is there has posted the receive; one that is gone need not know.
            b->waitSend(nullptr, std::chrono::milliseconds(200));
        } catch (const std::exception &) {
        }
    }
}

void drun_gloo_free(group *g) { delete g; }

void drun_gloo_calls(group *g, int64_t *calls) {
    for (int i = 0; i < FUNCTIONS; i++) calls[i] = g->calls[i].load();
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *drun_gloo_version(void) {
    return TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) "." TEXT(GLOO_VERSION_PATCH);
}
