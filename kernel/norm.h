// Layer norm and RMS norm over rows of n reals. Sums as in moments.h.

struct S(norm) {
    int64_t n;
    int add; // to the gradient that is there
    double eps;
    T *y, *mean, *rstd;
    const T *x, *gamma, *beta, *dy;
};

static void S(norm_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(norm) *p = ctx;
    int64_t n = p->n;
    for (int64_t r = from; r < to; r++) {
        const T *x = p->x + r * n;
        T *y = p->y + r * n;
        T mean = p->mean ? (T)(S(row_part)(RSUM, S(block_sum), n, x) / (double)n) : 0;
        double s1 = 0, s2 = 0;
        S(deviations)(n, x, NULL, mean, 0, &s1, &s2);
        double rest = p->mean ? s1 / (double)n : 0, var = (s2 - s1 * rest) / (double)n;
        T rstd = S(canon1)(1 / __builtin_sqrt(var + p->eps));
        if (p->mean) p->mean[r] = S(canon1)(mean + rest);
        p->rstd[r] = rstd;
        V shift = S(set)(-(T)rest * rstd);
        for (int64_t i = 0; i < n; i += N) {
            int k = S(some)(n - i);
            V v = S(fma)(S(load_n)(x + i, k) - mean, S(set)(rstd), shift);
            V g = p->gamma ? S(load_n)(p->gamma + i, k) : S(set)(1);
            v = p->beta ? S(fma)(v, g, S(load_n)(p->beta + i, k)) : v * g;
            S(store_n)(y + i, S(canon)(v), k);
        }
    }
}

static void S(layer_norm)(int64_t rows, int64_t n, double eps, T *y, T *mean, T *rstd, const T *x, const T *gamma,
                          const T *beta) {
    struct S(norm) p = {n, 0, eps, y, mean, rstd, x, gamma, beta, NULL};
    parallel_range(rows, 1 + 16384 / (n + 1), S(norm_rows), &p);
}

// dx = rstd (g dy - mean(g dy) - xhat mean(g dy xhat)); without a mean (RMS norm) the middle term is absent.
static void S(norm_grad_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(norm) *p = ctx;
    int64_t n = p->n;
    for (int64_t r = from; r < to; r++) {
        const T *x = p->x + r * n, *dy = p->dy + r * n;
        T mean = p->mean ? p->mean[r] : 0, rstd = p->rstd[r];
        V s1[S(L)], s2[S(L)];
        for (int l = 0; l < S(L); l++) s1[l] = s2[l] = S(set)(0);
        for (int64_t i = 0; i < n; i += 16)
            for (int l = 0; l < S(L) && i + l * N < n; l++) {
                int64_t at = i + l * N;
                int k = S(some)(n - at);
                V h = (S(load_n)(x + at, k) - mean) * rstd;
                V d = S(load_n)(dy + at, k);
                if (p->gamma) d *= S(load_n)(p->gamma + at, k);
                s1[l] += d;
                // Absent elements load as zero, so d is zero there and adds nothing.
                s2[l] = S(fma)(d, h, s2[l]);
            }
        T m1 = p->mean ? S(fold_sum)(s1) / (T)n : 0, m2 = S(fold_sum)(s2) / (T)n;
        for (int64_t i = 0; i < n; i += N) {
            int k = S(some)(n - i);
            V h = (S(load_n)(x + i, k) - mean) * rstd;
            V d = S(load_n)(dy + i, k);
            if (p->gamma) d *= S(load_n)(p->gamma + i, k);
            V dx = rstd * S(fma)(-h, S(set)(m2), d - m1);
            if (p->add) dx = S(load_n)(p->y + r * n + i, k) + dx;
            S(store_n)(p->y + r * n + i, S(canon)(dx), k);
        }
    }
}

// dgamma += sum over rows of dy xhat, dbeta += sum over rows of dy, row after row in each column.
static void S(norm_grad_columns)(void *ctx, int64_t from, int64_t to) {
    struct S(norm) *p = ctx;
    int64_t n = p->n, rows = (int64_t)p->eps;
    T *dgamma = (T *)p->gamma, *dbeta = (T *)p->beta;
    int64_t end = to * N < n ? to * N : n;
    for (int64_t i = from * N; i < end; i += 4 * N) { // four vectors at once: a sum waits for its last addition
        int64_t part = end - i < 4 * N ? end - i : 4 * N;
        V g[4] = {S(set)(0), S(set)(0), S(set)(0), S(set)(0)}, b[4] = {S(set)(0), S(set)(0), S(set)(0), S(set)(0)};
        for (int64_t r = 0; r < rows; r++) {
            const T *dy = p->dy + r * n + i, *x = p->x + r * n + i;
            T mean = p->mean ? p->mean[r] : 0, rstd = p->rstd[r];
            if (part == 4 * N)
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) {
                    V d = S(load)(dy + v * N);
                    g[v] = S(fma)(d, (S(load)(x + v * N) - mean) * rstd, g[v]);
                    b[v] += d;
                }
            else
                for (int v = 0; v * N < part; v++) {
                    int k = S(some)(part - v * N);
                    V d = S(load_n)(dy + v * N, k);
                    g[v] = S(fma)(d, (S(load_n)(x + v * N, k) - mean) * rstd, g[v]);
                    b[v] += d;
                }
        }
        for (int v = 0; v * N < part; v++) {
            int64_t at = i + v * N;
            int k = S(some)(end - at);
            if (dgamma) S(store_n)(dgamma + at, S(canon)(S(load_n)(dgamma + at, k) + g[v]), k);
            if (dbeta) S(store_n)(dbeta + at, S(canon)(S(load_n)(dbeta + at, k) + b[v]), k);
        }
    }
}

static void S(layer_norm_grad)(int64_t rows, int64_t n, int add, T *dx, T *dgamma, T *dbeta, const T *dy, const T *x,
                               const T *gamma, const T *mean, const T *rstd) {
    struct S(norm) p = {n, add, 0, dx, (T *)mean, (T *)rstd, x, gamma, NULL, dy};
    if (dx) parallel_range(rows, 1 + 16384 / (n + 1), S(norm_grad_rows), &p);
    struct S(norm) q = {n, 0, (double)rows, NULL, (T *)mean, (T *)rstd, x, dgamma, dbeta, dy};
    if (dgamma || dbeta) parallel_range((n + N - 1) / N, 1 + 32768 / (rows * N + 1), S(norm_grad_columns), &q);
}
