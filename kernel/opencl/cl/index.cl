// Elements at indexed places: WORD is an unsigned integer of their size.
#include "device.h"

KERNEL void take(GLOBAL WORD *o, long o_at, GLOBAL const WORD *a, long a_at, GLOBAL const long *index, long index_at, long total, long count,
                 long rows, long inner) {
    long i = get_global_id(0);
    if (i >= total) return;
    long j = i % inner, q = i / inner, at = q % count, outer = q / count;
    o[o_at + i] = a[a_at + (outer * rows + index[index_at + at]) * inner + j];
}
