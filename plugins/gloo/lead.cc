//go:build gloo

#include "lead.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "group.h"

static int made(int fd, const char *what) {
    if (fd < 0) throw std::runtime_error(std::string(what) + ": " + strerror(errno));
    return fd;
}

Leader::Leader(int pauses, int yields)
    : pauses(pauses), yields(yields), epoll(made(epoll_create1(EPOLL_CLOEXEC), "epoll_create")), bell(made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
    epoll_event e = {};
    e.events = EPOLLIN;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &e) != 0) throw std::runtime_error(std::string("epoll_ctl: ") + strerror(errno));
}

Leader::~Leader() {
    close(epoll);
    close(bell);
}

void Leader::ring() {
    uint64_t one = 1;
    if (write(bell, &one, sizeof one) < 0) {
        // Its counter is full, so the leader will look anyway.
    }
}

// The thread's own leader.
static thread_local Leader *own;

Term::Term(Leader &l, bool wait) : leader(l), leads(own == &l) {
    if (leads) {
        inner = true;
        return;
    }
    if (wait) leader.turn.lock();
    else if (!leader.turn.try_lock()) return;
    leads = true;
    own = &leader;
    leader.leading = true;
    for (auto p : leader.pairs) p->take();
}

Term::~Term() {
    if (!leads || inner) return;
    leader.leading = false;
    for (auto p : leader.pairs) p->give();
    own = nullptr;
    leader.turn.unlock();
}

// As in package sharedmem: next to a program that computes, each yield costs a time slice.
static constexpr auto yieldTime = std::chrono::milliseconds(2);

// Arriving data or the bell ends a sleep. In case neither reaches the leader, it looks after this time.
static constexpr int longestSleep = 1000; // ms

void Leader::lead(const std::function<bool()> &over, int yields) {
    if (over()) return;
    enough = &over;
    struct Done {
        Leader *l;
        ~Done() { l->enough = nullptr; }
    } done{this};
    int looks = 0;
    std::chrono::steady_clock::time_point start;
    for (;;) {
        bool sleep = looks >= pauses + yields;
        if (!sleep && looks >= pauses) {
            if (looks == pauses) start = std::chrono::steady_clock::now();
            else if (looks % 8 == 0 && std::chrono::steady_clock::now() - start > yieldTime) sleep = true;
            if (!sleep) sched_yield();
        }
        epoll_event events[16];
        int n = epoll_wait(epoll, events, 16, sleep ? longestSleep : 0);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) {
                static_cast<Pair *>(events[i].data.ptr)->serve(events[i].events);
                continue;
            }
            uint64_t rings;
            if (read(bell, &rings, sizeof rings) < 0) continue; // an earlier leader has heard it
        }
        if (over()) return;
        looks = n > 0 ? 0 : looks + 1;
    }
}

// watch has the leader look for what concerns the connection. The caller holds m_.
bool Pair::watch() {
    uint32_t events = tx_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    if (events == watched) return true;
    epoll_event e = {};
    e.events = events;
    e.data.ptr = this;
    if (epoll_ctl(leader->epoll, watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd_, &e) != 0) return false;
    watched = events;
    return true;
}

// quiet has Gloo's thread leave the connection to the leader, if that can look at it. The caller holds m_.
bool Pair::quiet() {
    if (!watch()) return false;
    device_->registerDescriptor(fd_, 0, this);
    return taken = true;
}

void Pair::take() {
    std::lock_guard<decltype(m_)> guard(m_);
    if (busy && state_ == CONNECTED) quiet();
}

void Pair::give() {
    std::lock_guard<decltype(m_)> guard(m_);
    if (taken && state_ == CONNECTED) device_->registerDescriptor(fd_, tx_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, this);
    taken = false;
    busy = served;
    served = false;
}

void Pair::serve(int events) {
    std::lock_guard<decltype(m_)> guard(m_);
    if (state_ != CONNECTED) return;
    served = true;
    if (events & (EPOLLERR | EPOLLHUP)) events |= EPOLLIN; // reading tells what it is
    if (tx_.empty()) events &= ~EPOLLOUT;
    bool empty = tx_.empty();
    serving = true;
    struct Done {
        Pair *p;
        ~Done() { p->serving = false; }
    } done{this};
    tcp::Pair::handleReadWrite(events & (EPOLLIN | EPOLLOUT));
    if (state_ != CONNECTED) return;
    // Whenever Gloo begins or stops waiting for room in the connection, it tells its thread.
    if (!taken || (events & EPOLLOUT) || tx_.empty() != empty) quiet();
    else watch();
}

// available tells Gloo's thread whether it can use the connection. If another thread is using it, Gloo's, which would look
// again and again for the rest of its time slice, perhaps on that thread's core, lets others run first.
bool Pair::available() {
    if (!m_.try_lock()) {
        sched_yield();
        return false;
    }
    m_.unlock();
    return true;
}

// handleReadWrite is called by Gloo's thread.
void Pair::handleReadWrite(int events) {
    if (leader->leading && quiet()) return;
    if (tx_.empty()) events &= ~EPOLLOUT; // a leader has written it
    tcp::Pair::handleReadWrite(events);
    if (leader->leading) leader->ring(); // a leader that began meanwhile may wait for this
}

// read stops where the leader has what it waits for.
bool Pair::read() {
    bool more = tcp::Pair::read();
    return more && !(serving && (*leader->enough)());
}

void Pair::changeState(state next) noexcept {
    tcp::Pair::changeState(next);
    leader->ring();
}

Pair::~Pair() {
    std::lock_guard<decltype(m_)> guard(m_);
    if (state_ != CLOSED) tcp::Pair::changeState(CLOSED); // from now on Gloo's thread does not call
}
