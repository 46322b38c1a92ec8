// What the parts of the shim share.
#ifndef DRUN_GLOO_GROUP_H
#define DRUN_GLOO_GROUP_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include "shim.h"

// Waits are ended from outside, by drun_gloo_interrupt, which knows the limits
// of the run; Gloo's own limit is out of the way.
constexpr auto never = std::chrono::hours(24 * 365);

// A peer whose kernel acknowledges nothing for this long is lost.
constexpr auto silence = std::chrono::seconds(20);

// Slots of our own messages, beside those of Gloo's collectives (types.h).
enum : uint64_t { HEADER_SLOT = 0xD0ull << 56, DATA_SLOT = 0xD1ull << 56, PRESENCE_SLOT = 0xD2ull << 56, PAIRED_SLOT = 0xD3ull << 56 };

struct Context : gloo::Context {
    Context(int rank, int size) : gloo::Context(rank, size) { setTimeout(never); }
    void attach(std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::transport::Context> transport) {
        device_ = std::move(device);
        transportContext_ = std::move(transport);
    }
};

using Unbound = std::unique_ptr<gloo::transport::UnboundBuffer>;

// A receive from a peer that is never answered but when it leaves. If the
// connection breaks, it fails: so the state of a peer can be looked at.
struct Presence {
    char byte = 0;
    Unbound receive;
    std::string address;
    bool left = false;
    std::string failed;
};

// Transport is Gloo's, but knows the buffers in use, so that whoever waits for
// one can be woken. Gloo itself forgets to wake those whose data was on its
// way when the connection broke.
struct Transport : gloo::transport::Context {
    explicit Transport(std::shared_ptr<gloo::transport::Context> inner)
        : gloo::transport::Context(inner->rank, inner->size), inner(std::move(inner)) {}
    std::unique_ptr<gloo::transport::Pair> &getPair(int rank) override { return inner->getPair(rank); }
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override { return inner->createPair(rank); }
    Unbound createUnboundBuffer(void *data, size_t size) override;
    // interrupt ends all waits, now and later.
    void interrupt();

    const std::shared_ptr<gloo::transport::Context> inner;
    std::mutex lock;
    bool interrupted = false;
    std::set<gloo::transport::UnboundBuffer *> used;
};

// Pair is Gloo's connection to a peer, but is given one that exists: by itself
// Gloo takes whoever calls first for the peer.
struct Pair : gloo::transport::tcp::Pair {
    Pair(gloo::transport::tcp::Context *context, gloo::transport::tcp::Device *device, int rank, std::chrono::milliseconds timeout)
        : gloo::transport::tcp::Pair(context, device, rank, timeout) {
        deafen();
    }
    // adopt goes on with a connected socket, which it owns from then on.
    void adopt(int socket);
    // silent tells whether data has been on its way to the peer for too long without any
    // acknowledgement, which TCP itself would go on resending for a quarter of an hour.
    bool silent();

  private:
    using clock = std::chrono::steady_clock;
    clock::time_point looked, since; // since when something has been unanswered

    // deafen stops listening, which every pair of Gloo's begins with until 2023.
    void deafen();
};

// Net is Gloo's context over TCP, of our pairs.
struct Net : gloo::transport::tcp::Context {
    using gloo::transport::tcp::Context::Context;
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override;
};

struct device {
    std::shared_ptr<gloo::transport::Device> gloo;
};

struct group {
    std::shared_ptr<Context> context;
    std::shared_ptr<Transport> transport;
    std::shared_ptr<gloo::transport::Device> device;

    std::mutex presenceLock;
    std::vector<Presence> peers;

    std::mutex stopLock;
    std::condition_variable stopping;
    bool stopped = false;
    Unbound next; // the receive of whatever message is announced
    header incoming;

    std::atomic<uint64_t> sent{0};
    std::atomic<int64_t> calls[FUNCTIONS] = {};

    // look updates what is known of a peer.
    void look(int rank);
    // lost names the peers whose connection failed.
    std::string lost();
};

int fail(char *err, const std::string &what);
std::string reason(const std::exception &e);

// guarded runs a piece of C++ for a caller in C.
template <typename F>
int guarded(group *g, char *err, F f) {
    try {
        f();
        return 0;
    } catch (const std::exception &e) {
        auto who = g->lost();
        return fail(err, who.empty() ? reason(e) : who);
    } catch (...) {
        return fail(err, "an unknown exception");
    }
}

#endif
