// Reductions that come to the same result in any order: of integers, any and all, and the position of an extreme. A group of GROUP work-items
// folds each line of [outer, n, inner] of elements of type IN. OP says how two are folded, FIRST what it begins with.
#include "device.h"

enum { GROUP = 64 };
#define LINE                                                 \
    long line = get_group_id(0), lane = get_local_id(0);     \
    a += a_at + line / inner * n * inner + line % inner
// Calls join(other) on the lanes' values as a binary tree.
#define TREE(join)                                           \
    BARRIER;                                                 \
    for (int half_ = GROUP / 2; half_; half_ /= 2) {         \
        if (lane < half_) join(lane + half_);                \
        BARRIER;                                             \
    }

#ifndef POSITION
#define sum(x, y) ((x) + (y))
#define product(x, y) ((x) * (y))
#define any(x, y) ((x) | (y))
#define all(x, y) ((x) & (y))
#define least(x, y) ((x) < (y) ? (x) : (y))
#define most(x, y) ((x) > (y) ? (x) : (y))
#ifdef TRUTH
#define READ(x) ((x) != 0)
#else
#define READ(x) ((OUT)(x))
#endif
#define JOIN(other) folded[lane] = OP(folded[lane], folded[other])

KERNEL void reduce(GLOBAL OUT *o, long o_at, GLOBAL const IN *a, long a_at, long n, long inner) {
    LOCAL OUT folded[GROUP];
    LINE;
    OUT x = FIRST;
    for (long i = lane; i < n; i += GROUP) {
        OUT y = READ(a[i * inner]);
        x = OP(x, y);
    }
    folded[lane] = x;
    TREE(JOIN)
    if (lane == 0) o[o_at + line] = folded[0];
}
#else
// Whether y at j comes before x at i: with LARGEST the larger one, with NAN_FIRST a NaN, and of equals the first.
INLINE int before(IN y, long j, IN x, long i) {
    int nan = x != x;
    if ((y != y) != nan) {
#ifdef NAN_FIRST
        return !nan;
#else
        return nan;
#endif
    }
    if (nan || y == x) return j < i;
#ifdef LARGEST
    return y > x;
#else
    return y < x;
#endif
}
#define JOIN(other) \
    if (before(best[other], at[other], best[lane], at[lane])) best[lane] = best[other], at[lane] = at[other]

KERNEL void position(GLOBAL long *o, long o_at, GLOBAL const IN *a, long a_at, long n, long inner) {
    LOCAL IN best[GROUP];
    LOCAL long at[GROUP];
    LINE;
    IN x = a[0];
    long where = 0;
    for (long i = lane; i < n; i += GROUP)
        if (before(a[i * inner], i, x, where)) x = a[i * inner], where = i;
    best[lane] = x, at[lane] = where;
    TREE(JOIN)
    if (lane == 0) o[o_at + line] = at[0];
}

// Where the elements of rows of n, in their order, lie: a work-item counts those that come before its own.
KERNEL void order(GLOBAL long *o, long o_at, GLOBAL const IN *a, long a_at, long total, long n) {
    long at = get_global_id(0), i = at % n, place = 0;
    if (at >= total) return;
    a += a_at + at - i;
    for (long j = 0; j < n; j++) place += before(a[j], j, a[i], i);
    o[o_at + at - i + place] = i;
}
#endif
