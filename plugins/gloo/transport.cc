//go:build gloo

// Connections that are given to Gloo, and buffers whose waits can be ended.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <stdexcept>

#include "group.h"

#if __has_include(<gloo/transport/tcp/listener.h>)

// Since May 2023 a device listens for all of its pairs, and gives each its connection in this way.
void Pair::deafen() {}

void Pair::adopt(int socket) {
    auto owned = std::make_shared<gloo::transport::tcp::Socket>(socket);
    {
        std::lock_guard<std::mutex> guard(m_);
        if (state_ != INITIALIZING) throw std::runtime_error("interrupted");
    }
    connectCallback(std::move(owned), gloo::transport::tcp::Error());
}

#else

void Pair::deafen() {
    std::lock_guard<std::mutex> guard(m_);
    if (fd_ != -1) {
        device_->unregisterDescriptor(fd_, this);
        ::close(fd_);
        fd_ = -1;
    }
    // A connection that has come in since the constructor began is dropped.
    state_ = LISTENING;
    rx_ = gloo::transport::tcp::Op();
}

void Pair::adopt(int socket) {
    std::lock_guard<std::mutex> guard(m_);
    if (state_ != LISTENING) {
        ::close(socket);
        throw std::runtime_error("interrupted");
    }
    fd_ = socket;
    try {
        handleConnected();
    } catch (...) { // the peer is gone already; the socket must not look registered
        ::close(fd_);
        fd_ = -1;
        throw;
    }
}

#endif

bool Pair::silent() {
    auto now = clock::now();
    if (now - looked < std::chrono::seconds(1)) return false;
    // The thread that has the lock is busy with the connection; the next look will do.
    std::unique_lock<std::mutex> guard(m_, std::try_to_lock);
    if (!guard || state_ != CONNECTED) return false;
    tcp_info t = {};
    socklen_t size = sizeof t;
    if (getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &t, &size) != 0) return false;
    looked = now;
    // A full window counts by its probes: the kernel of a process that is merely stopped answers them.
    bool underway = t.tcpi_unacked > 0 || t.tcpi_probes > 0;
    auto answered = now - std::chrono::milliseconds(t.tcpi_last_ack_recv);
    // The kernel's clock is coarse.
    if (!underway || since == clock::time_point() || answered > since - std::chrono::milliseconds(100)) since = now;
    return now - since >= silence;
}

std::unique_ptr<gloo::transport::Pair> &Net::createPair(int rank) {
    auto pair = new Pair(this, device_.get(), rank, getTimeout(), leader);
    pairs_[rank] = std::unique_ptr<gloo::transport::Pair>(pair);
    leader->pairs.push_back(pair);
    return pairs_[rank];
}

Unbound Net::createUnboundBuffer(void *data, size_t size) { return Unbound(new Buffer(shared_from_this(), data, size)); }

bool Buffer::over(bool sends) {
    std::lock_guard<std::mutex> guard(m_);
    return ex_ || (sends ? abortWaitSend_ || sendCompletions_ > 0 : abortWaitRecv_ || recvCompletions_ > 0);
}

static void wake(gloo::transport::UnboundBuffer *b) {
    b->abortWaitSend();
    b->abortWaitRecv();
}

Tracked::Tracked(Transport *t, void *data, size_t size)
    : gloo::transport::UnboundBuffer(data, size), transport(t), inner(t->inner->createUnboundBuffer(data, size)) {
    std::lock_guard<std::mutex> guard(transport->lock);
    transport->used.insert(inner.get());
    if (transport->interrupted) wake(inner.get());
}

Tracked::~Tracked() {
    std::lock_guard<std::mutex> guard(transport->lock);
    transport->used.erase(inner.get());
}

// lead has this thread read the connections until a wait is over, unless another does.
static void lead(Tracked *b, bool sends) {
    if (b->over(sends)) return;
    auto &leader = *b->transport->leader;
    Term term(leader);
    if (term.leads) leader.lead([=] { return b->over(sends); }, leader.yields);
}

static bool done(bool waited) {
    if (!waited) throw std::runtime_error("interrupted");
    return true;
}

bool Tracked::waitRecv(int *rank, std::chrono::milliseconds timeout) {
    lead(this, false);
    return done(inner->waitRecv(rank, timeout));
}

bool Tracked::waitSend(int *rank, std::chrono::milliseconds timeout) {
    lead(this, true);
    return done(inner->waitSend(rank, timeout));
}

Unbound Transport::createUnboundBuffer(void *data, size_t size) { return Unbound(new Tracked(this, data, size)); }

void Transport::interrupt() {
    std::lock_guard<std::mutex> guard(lock);
    interrupted = true;
    for (auto b : used) wake(b);
    leader->ring();
}
