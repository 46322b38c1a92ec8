// Elements at indexed places: WORD is an unsigned integer of their size. A work-item owns all that may be written at a place, so the sources
// come in their order.
#include "device.h"

KERNEL void take(GLOBAL WORD *o, long o_at, GLOBAL const WORD *a, long a_at, GLOBAL const long *index, long index_at, long total, long count,
                 long rows, long inner) {
    long i = get_global_id(0);
    if (i >= total) return;
    long j = i % inner, q = i / inner, at = q % count, outer = q / count;
    o[o_at + i] = a[a_at + (outer * rows + index[index_at + at]) * inner + j];
}

KERNEL void gather(GLOBAL WORD *o, long o_at, GLOBAL const WORD *a, long a_at, GLOBAL const long *index, long index_at, long total, long count,
                   long rows, long inner) {
    long i = get_global_id(0);
    if (i >= total) return;
    o[o_at + i] = a[a_at + (i / (inner * count) * rows + index[index_at + i]) * inner + i % inner];
}

// The index has one element for all that lie side by side, or, with each, one for each.
KERNEL void scatter(GLOBAL WORD *o, long o_at, GLOBAL const WORD *a, long a_at, GLOBAL const long *index, long index_at, long total, long count,
                    long rows, long inner, int each) {
    long i = get_global_id(0), j = i % inner, outer = i / inner;
    if (i >= total) return;
    for (long r = 0; r < count; r++) {
        long at = (outer * count + r) * inner + j;
        o[o_at + (outer * rows + index[index_at + (each ? at : r)]) * inner + j] = a[a_at + at];
    }
}
