// Additions at indexed rows, in the order of the sources: a work-item owns a column.
#include "device.h"
#include "lanes.h"

KERNEL void add_rows(GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, GLOBAL const long *index, long index_at, long rows, long n) {
    long i = get_global_id(0);
    if (i >= n) return;
    for (long r = 0; r < rows; r++) {
        GLOBAL T *to = o + o_at + index[index_at + r] * n + i;
        *to = canon(*to + a[a_at + r * n + i]);
    }
}
