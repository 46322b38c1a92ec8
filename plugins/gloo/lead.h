// The thread that waits for data reads the connections itself.
//
// Gloo has a thread that reads all connections and then wakes the one that waits: two threads to wake for each message,
// which takes longer than most messages. Here whoever waits leads: while it does, it reads and writes, and Gloo's thread
// leaves the connections alone. One thread of a group leads at a time; others that wait are woken by it. Where nobody
// waits, Gloo's thread goes on as ever.
#ifndef DRUN_GLOO_LEAD_H
#define DRUN_GLOO_LEAD_H

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

struct Pair;

struct Leader {
    // A thread that waits looks `pauses` times, then `yields` times after letting another process run, before it sleeps.
    Leader(int pauses, int yields);
    ~Leader();
    Leader(const Leader &) = delete;

    // lead reads and writes until over says that it is enough. over is called by this thread alone, also while a
    // connection is read. The caller has a Term.
    void lead(const std::function<bool()> &over, int yields);
    // ring has the leader look again.
    void ring();

    std::vector<Pair *> pairs;
    std::mutex turn;                            // the leader's
    std::atomic<bool> leading{false};           // Gloo's thread is to leave the connections alone
    const std::function<bool()> *enough = nullptr; // the leader's over
    const int pauses, yields;
    const int epoll, bell;
};

// Term is a thread's time as the leader.
struct Term {
    // If another thread leads, this one does not, or waits for its turn.
    explicit Term(Leader &leader, bool wait = false);
    ~Term();
    Term(const Term &) = delete;

    Leader &leader;
    bool leads, inner = false; // inner: the thread has a term already, which goes on
};

#endif
