// Softmax, its logarithm and cross-entropy, and their gradients; a group of LANES work-items for each row. See softmax.h of package kernel.
#include "device.h"
#include "math32.h"
#include "math64.h"
#include "lanes.h"

// A row of only -inf has a maximum of -inf; shifting by 0 then gives 0 / 0 as IEEE says.
INLINE T row_most(LOCAL T *lanes, GLOBAL const T *x, long n) {
    T most = -(T)INFINITY;
    for (long i = get_local_id(0); i < n; i += LANES) most = most_(most, x[i]);
    most = fold_most(lanes, most);
    return most == -(T)INFINITY ? 0 : most;
}

KERNEL void softmax(GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, long n, int logarithmic) {
    LOCAL T lanes[LANES];
    GLOBAL const T *x = a + a_at + get_group_id(0) * n;
    GLOBAL T *y = o + o_at + get_group_id(0) * n;
    T most = row_most(lanes, x, n), sum = 0;
    for (long i = get_local_id(0); i < n; i += LANES) {
        T e = exponential(x[i] - most);
        if (!logarithmic) y[i] = e;
        sum += e;
    }
    sum = fold_add(lanes, sum);
    T by = logarithmic ? logarithm(sum) : 1 / sum;
    for (long i = get_local_id(0); i < n; i += LANES) y[i] = canon(logarithmic ? (x[i] - most) - by : y[i] * by);
}

KERNEL void softmax_grad(GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, GLOBAL const T *b, long b_at, long n, int logarithmic) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0) * n;
    GLOBAL T *dx = o + o_at + row;
    GLOBAL const T *dy = a + a_at + row, *y = b + b_at + row;
    T sum = 0;
    for (long i = get_local_id(0); i < n; i += LANES) sum = logarithmic ? sum + dy[i] : fma(dy[i], y[i], sum);
    sum = fold_add(lanes, sum);
    for (long i = get_local_id(0); i < n; i += LANES)
        dx[i] = canon(logarithmic ? fma(exponential(y[i]), -sum, dy[i]) : y[i] * (dy[i] - sum));
}

KERNEL void cross_entropy(GLOBAL T *loss, long loss_at, GLOBAL T *lse, long lse_at, GLOBAL const T *a, long a_at, GLOBAL const long *target,
                          long target_at, long n) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0), class = target[target_at + row];
    GLOBAL const T *x = a + a_at + row * n;
    T most, sum = 0;
    if (n <= 16) { // the same maximum, but for the sign of zero
        most = x[0];
        for (int i = 1; i < n; i++) most = (x[i] > most) | (x[i] != x[i]) ? x[i] : most;
        most = most == -(T)INFINITY ? 0 : most;
    } else
        most = row_most(lanes, x, n);
    for (long i = get_local_id(0); i < n; i += LANES) sum += exponential(x[i] - most);
    sum = fold_add(lanes, sum);
    if (get_local_id(0) == 0) {
        T s = most + logarithm(sum);
        lse[lse_at + row] = canon(s);
        loss[loss_at + row] = canon(class < 0 ? 0 : s - x[class]);
    }
}

KERNEL void cross_entropy_grad(GLOBAL T *o, long o_at, GLOBAL const T *dloss, long dloss_at, GLOBAL const T *a, long a_at, GLOBAL const T *lse,
                               long lse_at, GLOBAL const long *target, long target_at, long rows, long n, long step, T scale) {
    long i = get_global_id(0), row = i / n;
    if (row >= rows) return;
    long class = target[target_at + row];
    T by = scale * dloss[dloss_at + row * step], dx = 0;
    if (class >= 0) {
        dx = canon(exponential(a[a_at + i] - lse[lse_at + row]) * by);
        if (i - row * n == class) dx = canon(dx - by);
    }
    o[o_at + i] = dx;
}
