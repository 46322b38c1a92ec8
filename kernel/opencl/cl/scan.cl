// Running sums and products along the middle of [outer, n, inner], and what else goes along a line in order: a work-item has a line. IN and T are
// the elements' types, OP is + or *, FIRST what it begins with.
#include "device.h"

#ifdef REAL
#include "lanes.h"
#define CANON(y) canon(y)
#else
#define CANON(y) (y)
#endif
#define LINE                                        \
    long line = get_global_id(0);                   \
    if (line >= lines) return;                      \
    long from = line / inner * n * inner + line % inner

KERNEL void cumulate(GLOBAL T *o, long o_at, GLOBAL const IN *a, long a_at, long lines, long n, long inner) {
    LINE;
    T x = FIRST;
    for (long k = 0; k < n; k++) {
        x = x OP (T)a[a_at + from + k * inner];
        o[o_at + from + k * inner] = CANON(x);
    }
}

#ifdef REAL
// The products before each element, times a sum that grows from the end; see integer_reduce.h of package kernel.
KERNEL void cumprod_grad(GLOBAL T *dx, long dx_at, GLOBAL const T *dy, long dy_at, GLOBAL const T *x, long x_at, long lines, long n, long inner) {
    LINE;
    dx += dx_at + from, dy += dy_at + from, x += x_at + from;
    T before = 1, after = 0;
    for (long k = 0; k < n; k++) {
        dx[k * inner] = before;
        before *= x[k * inner];
    }
    for (long k = n - 1; k >= 0; k--) {
        T rest = k + 1 < n ? x[(k + 1) * inner] * after : 0, y;
        after = dy[k * inner] + rest;
        y = dx[k * inner] * after;
        dx[k * inner] = CANON(y);
    }
}
#endif

// Adds a's elements to those of o that index names, in their order: [outer, from, inner] to [outer, to, inner]; n is `from`.
KERNEL void scatter_add(GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, GLOBAL const long *index, long index_at, long lines, long n,
                        long inner, long to) {
    LINE;
    o += o_at + line / inner * to * inner + line % inner;
    for (long r = 0; r < n; r++) {
        GLOBAL T *at = o + index[index_at + from + r * inner] * inner;
        T sum = *at + a[a_at + from + r * inner];
        *at = CANON(sum);
    }
}

// Products of matrices of integers.
KERNEL void product(GLOBAL T *c, long c_at, GLOBAL const T *a, long a_at, GLOBAL const T *b, long b_at, GLOBAL const T *bias, long bias_at,
                    long n, long k, long ar, long ak, long bk, long bn, long ldc, long sa, long sb, long sc, int accumulate) {
    long j = get_global_id(0), i = get_global_id(1), batch = get_global_id(2);
    if (j >= n) return;
    a += a_at + batch * sa + i * ar, b += b_at + batch * sb + j * bn, c += c_at + batch * sc + i * ldc + j;
    T sum = (accumulate ? *c : (T)0) + (bias ? bias[bias_at + j] : (T)0);
    for (long l = 0; l < k; l++) sum += a[l * ak] * b[l * bk];
    *c = sum;
}
