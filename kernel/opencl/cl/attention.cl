// The weights of attention from the products of queries and keys, and their slopes; a group of LANES work-items for each query. See
// attention.h of package kernel; the products are product.cl's.
#include "device.h"
#include "math32.h"
#include "math64.h"
#include "lanes.h"

#define ROW                                             \
    LOCAL T lanes[LANES];                               \
    long row = get_group_id(0), i = row % rows, lane = get_local_id(0); \
    long open = causal && i + 1 < cols ? i + 1 : cols // the keys that the query sees

KERNEL void weights(GLOBAL T *s, GLOBAL T *lse, long lse_at, long rows, long cols, T scale, int causal) {
    ROW;
    s += row * cols;
    T most = -(T)INFINITY, sum = 0;
    for (long j = lane; j < open; j += LANES) {
        T x = s[j] * scale;
        s[j] = x;
        most = most_(most, x);
    }
    most = fold_most(lanes, most);
    if (most == -(T)INFINITY) most = 0;
    for (long j = lane; j < open; j += LANES) {
        T e = exponential(s[j] - most);
        s[j] = e;
        sum += e;
    }
    sum = fold_add(lanes, sum);
    if (lse && lane == 0) lse[lse_at + row] = canon(most + logarithm(sum));
    T by = 1 / sum;
    for (long j = lane; j < cols; j += LANES) s[j] = j < open ? s[j] * by : 0;
}

// s has the products of queries and keys, d those of dy and values: s gets the weights, d their gradient's.
KERNEL void slopes(GLOBAL T *s, GLOBAL T *d, GLOBAL const T *lse, long lse_at, long rows, long cols, T scale, int causal) {
    ROW;
    s += row * cols, d += row * cols;
    T low = lse[lse_at + row], sum = 0;
    for (long j = lane; j < open; j += LANES) {
        T e = exponential(s[j] * scale - low);
        s[j] = e;
        sum = fma(e, d[j], sum);
    }
    sum = fold_add(lanes, sum);
    for (long j = lane; j < cols; j += LANES) {
        d[j] = j < open ? s[j] * (d[j] - sum) * scale : 0;
        if (j >= open) s[j] = 0;
    }
}
