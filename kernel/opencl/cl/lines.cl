// Variance, norms over dimensions, batch and group norm: sums over the lines of an array [outer, n, side, run], of which there is one for each
// of outer and side, over n and run. See moments.h, norm_batch.h and group_norm.h of package kernel.
//
// Runs of several elements are summed by a group of LANES work-items, and the runs added in order; where they have one, a work-item
// sums a column, in blocks of 256.
#include "device.h"
#include "lanes.h"

#define LINES long outer, long n, long side, long run
// Line l begins at a, and its runs are `step` apart.
#define LINE                                                     \
    long step = side * run;                                      \
    a += a_at + l / side * n * step + l % side * run
// Calls each for the rows r of a column, and after each block `then`.
#define IN_BLOCKS(each, then)                                    \
    for (long r0 = 0; r0 < n; r0 += 256) {                       \
        T s1 = 0, s2 = 0;                                        \
        for (long r = r0; r < min(r0 + 256, n); r++) each;       \
        then;                                                    \
    }

// One line that is all there is may be long: then it is cut into parts whose sums are added in order, `part` and `part2` elements of a run for
// the first and the second pass.
KERNEL void moments_runs(LINES, GLOBAL T *mean, long mean_at, GLOBAL T *low, long low_at, GLOBAL T *var, long var_at, GLOBAL const T *a,
                         long a_at, double divisor, long part, long part2) {
    LOCAL T lanes[LANES];
    long l = get_group_id(0), count = n * run;
    LINE;
    double total = 0, s1 = 0, s2 = 0;
    for (long r = 0; r < n; r++) {
        double sum = 0;
        for (long from = 0; from < run; from += part) {
            double x = row_sum(lanes, a + r * step + from, min(part, run - from));
            sum = from == 0 ? x : sum + x;
        }
        total += sum;
    }
    T first = (T)(total / (double)count);
    for (long r = 0; r < n; r++)
        for (long from = 0; from < run; from += part2) {
            double d1 = part2 < run ? 0 : s1, d2 = part2 < run ? 0 : s2;
            deviations(lanes, min(part2, run - from), a + r * step + from, 0, first, 0, &d1, &d2);
            s1 = part2 < run ? s1 + d1 : d1, s2 = part2 < run ? s2 + d2 : d2;
        }
    if (get_local_id(0)) return;
    double rest = s1 / (double)count, middle = first + rest;
    if (mean) mean[mean_at + l] = canon((T)middle);
    if (low) low[low_at + l] = canon((T)(first - (T)middle + rest));
    if (var) var[var_at + l] = canon((T)((s2 - s1 * rest) / divisor));
}

KERNEL void moments_columns(LINES, GLOBAL T *mean, long mean_at, GLOBAL T *low, long low_at, GLOBAL T *var, long var_at, GLOBAL const T *a,
                            long a_at, double divisor, long part, long part2) {
    long l = get_global_id(0);
    if (l >= outer * side) return;
    LINE;
    T total = 0, t1 = 0, t2 = 0;
    IN_BLOCKS(s1 += a[r * step], total += s1)
    T first = total / (T)n;
    IN_BLOCKS({
        T d = a[r * step] - first;
        s1 += d;
        s2 = fma(d, d, s2);
    }, (t1 += s1, t2 += s2))
    T rest = t1 / (T)n, middle = first + rest;
    if (mean) mean[mean_at + l] = canon(middle);
    if (low) low[low_at + l] = canon(first - middle + rest);
    if (var) var[var_at + l] = canon(fma(-t1, rest, t2) / (T)divisor);
}

KERNEL void squares_runs(LINES, GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, long part) {
    LOCAL T lanes[LANES];
    long l = get_group_id(0);
    LINE;
    double total = 0;
    for (long r = 0; r < n; r++) {
        double sum = 0;
        for (long from = 0; from < run; from += part) {
            long end = min(from + part, run);
            double of_part = 0;
            for (long cut = from; cut < end; cut += CUT) {
                T x = 0;
                for (long i = cut + get_local_id(0); i < min(cut + CUT, end); i += LANES) x = fma(a[r * step + i], a[r * step + i], x);
                double folded = fold_add(lanes, x);
                of_part = cut == from ? folded : of_part + folded;
            }
            sum = from == 0 ? of_part : sum + of_part;
        }
        total += sum;
    }
    if (get_local_id(0) == 0) o[o_at + l] = canon((T)total);
}

KERNEL void squares_columns(LINES, GLOBAL T *o, long o_at, GLOBAL const T *a, long a_at, long part) {
    long l = get_global_id(0);
    if (l >= outer * side) return;
    LINE;
    T total = 0;
    IN_BLOCKS(s1 = fma(a[r * step], a[r * step], s1), total += s1)
    o[o_at + l] = canon(total);
}

// y = (x - mean - low) scale gamma + beta.
KERNEL void scale_lines(LINES, GLOBAL T *y, long y_at, GLOBAL const T *x, long x_at, GLOBAL const T *mean, long mean_at, GLOBAL const T *low,
                        long low_at, GLOBAL const T *scale, long scale_at, GLOBAL const T *gamma, long gamma_at, GLOBAL const T *beta,
                        long beta_at) {
    long i = get_global_id(0), s = i / run % side, l = i / (run * side * n) * side + s;
    if (i >= outer * n * side * run) return;
    T by = scale[scale_at + l], shift = beta ? beta[beta_at + s] : 0;
    if (gamma) by *= gamma[gamma_at + s];
    if (low || run > 1) shift = fma(low ? -low[low_at + l] : 0, by, shift);
    y[y_at + i] = canon(fma(x[x_at + i] - (mean ? mean[mean_at + l] : 0), by, shift));
}

// For each channel the sum of dy, and that of dy (x - mean - low) rstd.
#define BATCH                                                                                                                  \
    LINES, GLOBAL T *sums, GLOBAL const T *dy, long dy_at, GLOBAL const T *a, long a_at, GLOBAL const T *mean, long mean_at,   \
        GLOBAL const T *low, long low_at, GLOBAL const T *rstd, long rstd_at
KERNEL void batch_sums_runs(BATCH) {
    LOCAL T lanes[LANES];
    long l = get_group_id(0);
    LINE;
    dy += dy_at + l * run;
    double s1 = 0, s2 = 0;
    for (long r = 0; r < n; r++)
        deviations(lanes, run, a + r * step, dy + r * step, mean[mean_at + l], low ? low[low_at + l] : 0, &s1, &s2);
    if (get_local_id(0)) return;
    sums[l] = canon((T)s1);
    sums[side + l] = canon((T)(s2 * rstd[rstd_at + l]));
}
KERNEL void batch_sums_columns(BATCH) {
    long l = get_global_id(0);
    if (l >= side) return;
    LINE;
    dy += dy_at + l;
    T m = mean[mean_at + l], rest = low ? low[low_at + l] : 0, t1 = 0, t2 = 0;
    IN_BLOCKS({
        T d = dy[r * step];
        s1 += d;
        s2 = fma(a[r * step] - m - rest, d, s2);
    }, (t1 += s1, t2 += s2))
    sums[l] = canon(t1);
    sums[side + l] = canon(t2 * rstd[rstd_at + l]);
}

// dx from the sums, unless the statistics are constants.
KERNEL void batch_grad(BATCH, GLOBAL T *dx, long dx_at, GLOBAL const T *gamma, long gamma_at, int training, double divisor) {
    long i = get_global_id(0), c = i / run % side;
    if (i >= n * side * run) return;
    T r = rstd[rstd_at + c], by = gamma ? r * gamma[gamma_at + c] : r, d = dy[dy_at + i];
    if (training) {
        T m1 = sums[c] / (T)divisor, m2 = sums[side + c] / (T)divisor, x = a[a_at + i] - mean[mean_at + c];
        if (low) x -= low[low_at + c];
        d = fma(x * -r, m2, d - m1);
    }
    dx[dx_at + i] = canon(d * by);
}

// Adds n sums, each of the elements `count` of which lie `apart`, in order; or one element.
KERNEL void add_sums(GLOBAL T *o, long o_at, GLOBAL const T *sums, long at, long n, long step, long count, long apart) {
    long i = get_global_id(0);
    if (i >= n) return;
    T sum = sums[at + i * step];
    if (count != 1) sum = 0;
    for (long r = 0; r < count && count != 1; r++) sum += sums[at + i * step + r * apart];
    o[o_at + i] = canon(o[o_at + i] + sum);
}

#define GROUPS long groups, long each, long run
KERNEL void group_norm(GROUPS, GLOBAL T *o, long o_at, GLOBAL T *mean, long mean_at, GLOBAL T *rstd, long rstd_at, GLOBAL const T *a, long a_at,
                       GLOBAL const T *gamma, long gamma_at, GLOBAL const T *beta, long beta_at, double eps) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0), n = each * run;
    GLOBAL const T *x = a + a_at + row * n;
    GLOBAL T *y = o + o_at + row * n;
    T first = (T)(row_sum(lanes, x, n) / (double)n);
    double s1 = 0, s2 = 0;
    deviations(lanes, n, x, 0, first, 0, &s1, &s2);
    double rest = s1 / (double)n, var = (s2 - s1 * rest) / (double)n;
    T r = canon((T)(1 / sqrt(var + eps))), shift = -(T)rest * r;
    if (get_local_id(0) == 0) {
        mean[mean_at + row] = canon((T)(first + rest));
        rstd[rstd_at + row] = r;
    }
    for (long i = get_local_id(0); i < n; i += LANES) {
        long channel = row % groups * each + i / run;
        T g = gamma ? gamma[gamma_at + channel] : 1, scale = r * g, add = fma(shift, g, beta ? beta[beta_at + channel] : 0);
        y[i] = canon(fma(x[i] - first, scale, add));
    }
}

// sums get dy and dy (x - mean) rstd of each sample's channels.
KERNEL void group_norm_grad(GROUPS, GLOBAL T *o, long o_at, GLOBAL T *sums, GLOBAL const T *b, long b_at, GLOBAL const T *a, long a_at,
                            GLOBAL const T *gamma, long gamma_at, GLOBAL const T *mean, long mean_at, GLOBAL const T *rstd, long rstd_at) {
    LOCAL T lanes[LANES];
    long row = get_group_id(0), n = each * run, channel = row % groups * each;
    GLOBAL const T *x = a + a_at + row * n, *dy = b + b_at + row * n;
    T m = mean[mean_at + row], r = rstd[rstd_at + row], m1 = 0, m2 = 0;
    for (long c = 0; c < each; c++) {
        T t1 = 0, t2 = 0;
        for (long i = c * run + get_local_id(0); i < (c + 1) * run; i += LANES) {
            t1 += dy[i];
            t2 = fma(dy[i], x[i] - m, t2);
        }
        t1 = fold_add(lanes, t1), t2 = fold_add(lanes, t2) * r;
        if (get_local_id(0) == 0) sums[2 * (row * each + c)] = t1, sums[2 * (row * each + c) + 1] = t2;
        T g = gamma ? gamma[gamma_at + channel + c] : 1;
        m1 += g * t1;
        m2 += g * t2;
    }
    if (!o) return;
    m1 /= (T)n, m2 /= (T)n;
    T turn = -r * (r * m2), shift = -r * m1;
    for (long i = get_local_id(0); i < n; i += LANES) {
        T h = fma(x[i] - m, turn, shift);
        o[o_at + row * n + i] = canon(fma(dy[i], r * (gamma ? gamma[gamma_at + channel + i / run] : 1), h));
    }
}
