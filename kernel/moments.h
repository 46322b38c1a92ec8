// Sums over lines, for var, norm and batch norm. An array [outer, n, side, run] has a line for each of outer
// and side, over n and run: rows have n = side = 1, columns run = 1, the channels of images all four.
//
// Where runs have several elements, each run is summed as in reduce.h and the runs are added in order, in
// double. Where they have one, a vector does N lines side by side, as columns are summed in reduce.h.

struct S(lines) {
    int64_t outer, n, side, run;
    double divisor;
    T *mean, *low, *out, *dx, *dgamma, *dbeta;
    const T *x, *dy, *scale, *gamma, *beta;
    int training;
};

INLINE V S(take)(const T *p, int k) { return k == N ? S(load)(p) : S(load_n)(p, k); }
INLINE void S(give)(T *p, V v, int k) {
    if (k == N) S(store)(p, v);
    else S(store_n)(p, v, k);
}

// Adds the sums of d and d^2 (or d e, with e) over n elements, d = a - mean - low, to s1 and s2.
INLINE void S(deviations)(int64_t n, const T *a, const T *e, T mean, T low, double *s1, double *s2) {
    for (int64_t from = 0; from < n; from += S(CUT)) {
        int64_t end = from + S(CUT) < n ? from + S(CUT) : n, i = from;
        V acc1[S(L)], acc2[S(L)];
        for (int l = 0; l < S(L); l++) acc1[l] = acc2[l] = S(set)(0);
        for (; i + 16 <= end; i += 16)
            for (int l = 0; l < S(L); l++) {
                V d = S(load)(a + i + l * N) - mean - low, w = e ? S(load)(e + i + l * N) : d;
                acc1[l] += w;
                acc2[l] = S(fma)(d, w, acc2[l]);
            }
        for (int l = 0; l < S(L) && i + l * N < end; l++) {
            int64_t at = i + l * N;
            int k = S(some)(end - at);
            V d = S(take)(a + at, k) - mean - low, w = e ? S(take)(e + at, k) : d;
            if (k < N && !e) { // absent elements count for nothing
                T part[N];
                S(store)(part, d);
                d = w = S(load_n)(part, k);
            }
            acc1[l] += w;
            acc2[l] = S(fma)(d, w, acc2[l]);
        }
        *s1 += S(fold_sum)(acc1), *s2 += S(fold_sum)(acc2);
    }
}

// Very long rows, cut at fixed places that threads may take.
struct S(long_line) {
    int64_t n, part;
    const T *a;
    T mean;
    double s1[S(PARTS)], s2[S(PARTS)];
};
static void S(long_part)(void *ctx, int64_t i) {
    struct S(long_line) *p = ctx;
    int64_t from = i * p->part, n = p->n - from < p->part ? p->n - from : p->part;
    p->s1[i] = p->s2[i] = 0;
    S(deviations)(n, p->a + from, NULL, p->mean, 0, p->s1 + i, p->s2 + i);
}
static void S(long_deviations)(int64_t n, const T *a, T mean, double *s1, double *s2) {
    struct S(long_line) p = {n, 16 * S(CUT), a, mean, {0}, {0}};
    while (n > p.part * S(PARTS)) p.part *= 2;
    int64_t parts = (n + p.part - 1) / p.part;
    parallel_for(parts, S(long_part), &p);
    for (int64_t i = 0; i < parts; i++) *s1 += p.s1[i], *s2 += p.s2[i];
}

// The mean of a line in two passes: the second corrects the first, and gives the variance, from what is left
// when a first mean is taken away. So no offset of the values costs them digits. low is what the rounded mean
// lacks.
static void S(moments_runs)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    int64_t step = p->side * p->run, count = p->n * p->run;
    for (int64_t l = from; l < to; l++) {
        const T *a = p->x + l / p->side * p->n * step + l % p->side * p->run;
        int whole = p->outer * p->n * p->side == 1;
        double total = 0, s1 = 0, s2 = 0;
        for (int64_t r = 0; r < p->n; r++)
            total += whole ? S(row)(RSUM, S(block_sum), p->run, a) : S(row_part)(RSUM, S(block_sum), p->run, a + r * step);
        T first = (T)(total / (double)count);
        if (whole) S(long_deviations)(p->run, a, first, &s1, &s2);
        else
            for (int64_t r = 0; r < p->n; r++) S(deviations)(p->run, a + r * step, NULL, first, 0, &s1, &s2);
        double rest = s1 / (double)count, mean = first + rest;
        if (p->mean) p->mean[l] = S(canon1)(mean);
        if (p->low) p->low[l] = S(canon1)(first - (T)mean + rest);
        if (p->out) p->out[l] = S(canon1)((s2 - s1 * rest) / p->divisor);
    }
}

// Calls `each` for the rows r of a column's n, in blocks of 256 that are added in order.
#define IN_BLOCKS(each, ...)                                         \
    for (int64_t r0 = 0; r0 < p->n; r0 += 256) {                     \
        int64_t end = r0 + 256 < p->n ? r0 + 256 : p->n;             \
        V s1 = S(set)(0), s2 = S(set)(0);                            \
        for (int64_t r = r0; r < end; r++) each;                     \
        __VA_ARGS__;                                                 \
    }

static void S(moments_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    int64_t tiles = (p->side + N - 1) / N;
    for (int64_t t = from; t < to; t++) {
        int64_t i = t % tiles * N, l = t / tiles * p->side + i;
        int k = S(some)(p->side - i);
        const T *a = p->x + t / tiles * p->n * p->side + i;
        V total = S(set)(0), t1 = total, t2 = total;
        IN_BLOCKS(s1 += S(take)(a + r * p->side, k), total += s1, (void)s2)
        V first = total / (T)p->n;
        IN_BLOCKS({
            V d = S(take)(a + r * p->side, k) - first;
            s1 += d;
            s2 = S(fma)(d, d, s2);
        }, t1 += s1, t2 += s2)
        V rest = t1 / (T)p->n, mean = first + rest;
        if (p->mean) S(give)(p->mean + l, S(canon)(mean), k);
        if (p->low) S(give)(p->low + l, S(canon)(first - mean + rest), k);
        if (p->out) S(give)(p->out + l, S(canon)(S(fma)(-t1, rest, t2) / (T)p->divisor), k);
    }
}

static void S(over_lines)(struct S(lines) *p, void (*runs)(void *, int64_t, int64_t), void (*columns)(void *, int64_t, int64_t)) {
    int64_t tiles = (p->side + N - 1) / N;
    if (p->run > 1) parallel_range(p->outer * p->side, 1 + 32768 / (p->n * p->run + 1), runs, p);
    else parallel_range(p->outer * tiles, 1 + 32768 / (p->n * N + 1), columns, p);
}

static void S(moments)(int64_t outer, int64_t n, int64_t side, int64_t run, int64_t correction, T *mean, T *low, T *var,
                       const T *a) {
    struct S(lines) p = {outer, n, side, run, .divisor = (double)(n * run - correction), .mean = mean, .low = low, .out = var, .x = a};
    // One line of a few rows is all the work there is: it may use the threads itself.
    if (run > 1 && outer * n * side == 1) S(moments_runs)(&p, 0, 1);
    else S(over_lines)(&p, S(moments_runs), S(moments_columns));
}

static void S(squares_runs)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t l = from; l < to; l++) {
        const T *a = p->x + (l / p->side * p->n * p->side + l % p->side) * p->run;
        double total = 0;
        for (int64_t r = 0; r < p->n; r++) total += S(row_part)(RSUM, S(block_square), p->run, a + r * p->side * p->run);
        p->out[l] = S(canon1)(total);
    }
}

static void S(squares_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    int64_t tiles = (p->side + N - 1) / N;
    for (int64_t t = from; t < to; t++) {
        int64_t i = t % tiles * N;
        int k = S(some)(p->side - i);
        const T *a = p->x + t / tiles * p->n * p->side + i;
        V total = S(set)(0);
        IN_BLOCKS({
            V y = S(take)(a + r * p->side, k);
            s1 = S(fma)(y, y, s1);
        }, total += s1, (void)s2)
        S(give)(p->out + t / tiles * p->side + i, S(canon)(total), k);
    }
}

static void S(square_sums)(int64_t outer, int64_t n, int64_t side, int64_t run, T *o, const T *a) {
    struct S(lines) p = {outer, n, side, run, .out = o, .x = a};
    if (outer * n * side == 1) o[0] = S(canon1)(S(row)(RSUM, S(block_square), run, a));
    else S(over_lines)(&p, S(squares_runs), S(squares_columns));
}
