// Reductions of reals. OP is add, multiply (with PRODUCT), least (LEAST) or most (MOST); or SQUARES, the sum of squares.
#include "device.h"
#include "lanes.h"

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#ifdef SQUARES
#define COMBINE(x, y) fma(y, y, x)
#define OP add
#else
#define COMBINE(x, y) CONCAT(OP, _)(x, y)
#endif

// What a reduction begins with.
#if defined LEAST
#define FIRST ((T)INFINITY)
#elif defined MOST
#define FIRST (-(T)INFINITY)
#elif defined PRODUCT
#define FIRST 1
#else
#define FIRST 0
#endif

INLINE double join(double x, double y) {
#if defined LEAST
    return (x < y) | (x != x) ? x : y;
#elif defined MOST
    return (x > y) | (x != x) ? x : y;
#elif defined PRODUCT
    return x * y;
#else
    return x + y;
#endif
}

// A group reduces elements g part to (g + 1) part of all. Parts of one row are left in double, to be joined.
KERNEL void rows(GLOBAL T *o, long o_at, GLOBAL double *parts, GLOBAL const T *a, long a_at, long part, long all) {
    LOCAL T lanes[LANES];
    long g = get_group_id(0), from = g * part, to = min(from + part, all);
    double total = 0;
    for (long cut = from; cut == from || cut < to; cut += CUT) {
        long end = min(cut + CUT, to);
        T x = FIRST;
        for (long i = cut + get_local_id(0); i < end; i += LANES) {
            T y = a[a_at + i];
            x = COMBINE(x, y);
        }
        double folded = CONCAT(fold_, OP)(lanes, x);
        total = cut == from ? folded : join(total, folded);
    }
    if (get_local_id(0) == 0) {
        if (parts) parts[g] = total;
        else o[o_at + g] = canon((T)total);
    }
}

#ifdef SQUARES
#define RESULT(x) canon_f64(x)
typedef double R;
#else
#define RESULT(x) canon((T)(x))
typedef T R;
#endif
KERNEL void join_parts(GLOBAL R *o, long o_at, GLOBAL double *parts, long n) {
    double total = parts[0];
    for (long i = 1; i < n; i++) total = join(total, parts[i]);
    o[o_at] = RESULT(total);
}

#ifndef SQUARES
// A work-item reduces a column of n rows in blocks of 256.
KERNEL void columns(GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, long outer, long n, long inner) {
    long i = get_global_id(0);
    if (i >= outer * inner) return;
    GLOBAL const T *column = a + a_at + i / inner * n * inner + i % inner;
    T total = FIRST;
    for (long block = 0; block < n; block += 256) {
        long end = min(block + 256, n);
        T x = FIRST;
        for (long r = block; r < end; r++) x = COMBINE(x, column[r * inner]);
        total = COMBINE(total, x);
    }
    o[o_at + i] = canon(total);
}
#endif
