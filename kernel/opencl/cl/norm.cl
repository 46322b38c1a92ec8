// Layer norm and RMS norm, and their gradients; see norm.h of package kernel.
#include "device.h"
#include "lanes.h"

KERNEL void layer_norm(GLOBAL T *o, long o_at, GLOBAL T *mean, long mean_at, GLOBAL T *rstd, long rstd_at, GLOBAL const T *a, long a_at,
                       GLOBAL const T *gamma, long gamma_at, GLOBAL const T *beta, long beta_at, long n, double eps) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0);
    GLOBAL const T *x = a + a_at + row * n;
    GLOBAL T *y = o + o_at + row * n;
    T first = 0;
    if (mean) first = (T)(row_sum(lanes, x, n) / (double)n);
    double s1 = 0, s2 = 0;
    deviations(lanes, n, x, 0, first, 0, &s1, &s2);
    double rest = mean ? s1 / (double)n : 0, var = (s2 - s1 * rest) / (double)n;
    T scale = canon((T)(1 / sqrt(var + eps))), shift = -(T)rest * scale;
    if (get_local_id(0) == 0) {
        if (mean) mean[mean_at + row] = canon((T)(first + rest));
        rstd[rstd_at + row] = scale;
    }
    for (long i = get_local_id(0); i < n; i += LANES) {
        T v = fma(x[i] - first, scale, shift), g = gamma ? gamma[gamma_at + i] : 1;
        y[i] = canon(beta ? fma(v, g, beta[beta_at + i]) : v * g);
    }
}

KERNEL void layer_norm_grad(GLOBAL T *o, long o_at, GLOBAL const T *b, long b_at, GLOBAL const T *a, long a_at, GLOBAL const T *gamma,
                            long gamma_at, GLOBAL const T *mean, long mean_at, GLOBAL const T *rstd, long rstd_at, long n, int add) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0);
    GLOBAL T *dx = o + o_at + row * n;
    GLOBAL const T *x = a + a_at + row * n, *dy = b + b_at + row * n;
    T m = mean ? mean[mean_at + row] : 0, r = rstd[rstd_at + row], s1 = 0, s2 = 0;
    for (long i = get_local_id(0); i < n; i += LANES) {
        T h = (x[i] - m) * r, d = dy[i];
        if (gamma) d *= gamma[gamma_at + i];
        s1 += d;
        s2 = fma(d, h, s2);
    }
    s1 = fold_add(lanes, s1), s2 = fold_add(lanes, s2);
    T m1 = mean ? s1 / (T)n : 0, m2 = s2 / (T)n;
    for (long i = get_local_id(0); i < n; i += LANES) {
        T h = (x[i] - m) * r, d = dy[i];
        if (gamma) d *= gamma[gamma_at + i];
        T v = r * fma(-h, m2, d - m1);
        dx[i] = canon(add ? dx[i] + v : v);
    }
}

// A work-item adds up a column, row after row, to what is there.
KERNEL void layer_norm_grad_columns(GLOBAL T *dgamma, long dgamma_at, GLOBAL T *dbeta, long dbeta_at, GLOBAL const T *dy, long dy_at,
                                    GLOBAL const T *x, long x_at, GLOBAL const T *mean, long mean_at, GLOBAL const T *rstd, long rstd_at,
                                    long rows, long n) {
    long i = get_global_id(0);
    if (i >= n) return;
    T g = 0, b = 0;
    for (long r = 0; r < rows; r++) {
        T d = dy[dy_at + r * n + i], m = mean ? mean[mean_at + r] : 0;
        g = fma(d, (x[x_at + r * n + i] - m) * rstd[rstd_at + r], g);
        b += d;
    }
    if (dgamma) dgamma[dgamma_at + i] = canon(dgamma[dgamma_at + i] + g);
    if (dbeta) dbeta[dbeta_at + i] = canon(dbeta[dbeta_at + i] + b);
}
