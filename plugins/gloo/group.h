// What the parts of the shim share.
#ifndef DRUN_GLOO_GROUP_H
#define DRUN_GLOO_GROUP_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
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
#include <gloo/transport/tcp/unbound_buffer.h>

#include "lead.h"
#include "shim.h"

namespace tcp = gloo::transport::tcp;

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

// A receive that the peer answers only when it leaves, and that fails if the
// connection breaks: it shows the state of the peer.
struct Presence {
    char byte = 0;
    Unbound receive;
    std::string address;
    bool left = false;
    std::string failed;
};

// Transport is Gloo's, but knows the buffers in use, so that threads that wait
// for one can be woken. Gloo itself does not wake those whose data was on its
// way when the connection broke.
struct Transport : gloo::transport::Context {
    Transport(std::shared_ptr<gloo::transport::Context> inner, std::shared_ptr<Leader> leader)
        : gloo::transport::Context(inner->rank, inner->size), inner(std::move(inner)), leader(std::move(leader)) {}
    std::unique_ptr<gloo::transport::Pair> &getPair(int rank) override { return inner->getPair(rank); }
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override { return inner->createPair(rank); }
    Unbound createUnboundBuffer(void *data, size_t size) override;
    // interrupt ends all waits, now and later.
    void interrupt();

    const std::shared_ptr<gloo::transport::Context> inner;
    const std::shared_ptr<Leader> leader;
    std::mutex lock;
    bool interrupted = false;
    std::set<gloo::transport::UnboundBuffer *> used;
};

// Pair is Gloo's connection to a peer, but takes over a socket that is already
// connected: Gloo itself would take whoever connects first for the peer.
struct Pair : tcp::Pair {
    Pair(tcp::Context *context, tcp::Device *device, int rank, std::chrono::milliseconds timeout, std::shared_ptr<Leader> leader)
        : tcp::Pair(context, device, rank, timeout), leader(std::move(leader)) {
        deafen();
    }
    ~Pair() override;
    // adopt goes on with a connected socket, which it owns from then on.
    void adopt(int socket);
    // silent reports whether data for the peer has gone unacknowledged for too long: TCP itself would go on resending it
    // for a quarter of an hour.
    bool silent();

    // What a leader does with the connection: it takes it from Gloo's thread, reads what has come and writes what there
    // is room for, and gives it back.
    void take();
    void serve(int events);
    void give();

#if __has_include(<gloo/transport/tcp/debug_data.h>) // since March 2025 Gloo's thread says which loop it is
    void handleEvents(tcp::Loop &loop, int events) override {
        if (available()) tcp::Pair::handleEvents(loop, events);
    }
#else
    void handleEvents(int events) override {
        if (available()) tcp::Pair::handleEvents(events);
    }
#endif

  protected:
    void handleReadWrite(int events) override;
    bool read() override;
    void changeState(state next) noexcept override;

  private:
    using clock = std::chrono::steady_clock;
    clock::time_point looked, since; // since when something has been unanswered

    const std::shared_ptr<Leader> leader;
    uint32_t watched = 0;  // what the leader's epoll looks for
    bool taken = false;    // Gloo's thread does not look at it
    bool serving = false;  // the leader reads it
    bool served = false;   // by the current leader
    bool busy = false;     // the last leader had to do with it

    // deafen stops the listening with which every pair begins in Gloo's versions until 2023.
    void deafen();
    bool available();
    bool watch();
    bool quiet();
};

// Buffer is Gloo's, and can tell whether a wait would end at once.
struct Buffer : tcp::UnboundBuffer {
    using tcp::UnboundBuffer::UnboundBuffer;
    bool over(bool sends);
};

// Net is Gloo's context over TCP, with our pairs and buffers.
struct Net : tcp::Context {
    Net(std::shared_ptr<tcp::Device> device, int rank, int size, std::shared_ptr<Leader> leader)
        : tcp::Context(std::move(device), rank, size), leader(std::move(leader)) {}
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override;
    Unbound createUnboundBuffer(void *data, size_t size) override;

    const std::shared_ptr<Leader> leader;
};

// Tracked is a buffer that its transport knows.
struct Tracked : gloo::transport::UnboundBuffer {
    Tracked(Transport *t, void *data, size_t size);
    ~Tracked() override;
    // over tells whether a wait would end at once.
    bool over(bool sends) { return static_cast<Buffer *>(inner.get())->over(sends); }
    bool waitRecv(int *rank, std::chrono::milliseconds timeout) override;
    bool waitSend(int *rank, std::chrono::milliseconds timeout) override;
    void abortWaitRecv() override { inner->abortWaitRecv(); }
    void abortWaitSend() override { inner->abortWaitSend(); }
    void send(int to, uint64_t slot, size_t offset, size_t n) override { inner->send(to, slot, offset, n); }
    void recv(int from, uint64_t slot, size_t offset, size_t n) override { inner->recv(from, slot, offset, n); }
    void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t n) override { inner->recv(std::move(from), slot, offset, n); }

    Transport *const transport;
    const Unbound inner;
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
    Unbound next; // receives the announcement of the next message, from any rank
    header incoming;

    std::mutex postedLock;
    std::list<std::shared_ptr<transfer>> posted; // paired messages under way

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
