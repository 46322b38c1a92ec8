// Group norm (Wu and He 2018) over x[samples, groups · each, run]: every group of `each` channels of a sample has
// mean 0 and variance 1, then each channel its scale and shift. Sums as in moments.h.

struct S(groups) {
    int64_t groups, each, run;
    double eps;
    T *y, *mean, *rstd, *sums; // sums: dy and dy·xhat of each sample's channels
    const T *x, *gamma, *beta, *dy;
};

static void S(group_norm_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(groups) *p = ctx;
    int64_t n = p->each * p->run;
    for (int64_t r = from; r < to; r++) {
        const T *x = p->x + r * n;
        T *y = p->y + r * n;
        T mean = (T)(S(row_part)(RSUM, S(block_sum), n, x) / (double)n);
        double s1 = 0, s2 = 0;
        S(deviations)(n, x, NULL, mean, 0, &s1, &s2);
        double rest = s1 / (double)n, var = (s2 - s1 * rest) / (double)n;
        T rstd = S(canon1)(1 / __builtin_sqrt(var + p->eps)), shift = -(T)rest * rstd;
        p->mean[r] = S(canon1)(mean + rest);
        p->rstd[r] = rstd;
        for (int64_t c = 0; c < p->each; c++, x += p->run, y += p->run) {
            int64_t channel = r % p->groups * p->each + c;
            V gamma = S(set)(p->gamma ? p->gamma[channel] : 1), beta = S(set)(p->beta ? p->beta[channel] : 0);
            V scale = rstd * gamma, add = S(fma)(S(set)(shift), gamma, beta);
            for (int64_t i = 0; i < p->run; i += N) {
                int k = S(some)(p->run - i);
                S(store_n)(y + i, S(canon)(S(fma)(S(load_n)(x + i, k) - mean, scale, add)), k);
            }
        }
    }
}

static void S(group_norm)(int64_t rows, int64_t groups, int64_t each, int64_t run, double eps, T *y, T *mean, T *rstd,
                          const T *x, const T *gamma, const T *beta) {
    struct S(groups) p = {.groups = groups, .each = each, .run = run, .eps = eps, .y = y, .mean = mean, .rstd = rstd, .x = x,
                          .gamma = gamma, .beta = beta};
    parallel_range(rows, 1 + 16384 / (each * run + 1), S(group_norm_rows), &p);
}

// dx = rstd (g dy - mean(g dy) - xhat mean(g dy xhat)), the means from the channels' sums.
static void S(group_norm_grad_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(groups) *p = ctx;
    int64_t n = p->each * p->run;
    for (int64_t r = from; r < to; r++) {
        T mean = p->mean[r], rstd = p->rstd[r], m1 = 0, m2 = 0;
        for (int64_t c = 0; c < p->each; c++) {
            const T *x = p->x + r * n + c * p->run, *dy = p->dy + r * n + c * p->run;
            V a[S(L)], b[S(L)];
            for (int l = 0; l < S(L); l++) a[l] = b[l] = S(set)(0);
            for (int64_t i = 0; i < p->run; i += 16)
                for (int l = 0; l < S(L) && i + l * N < p->run; l++) {
                    int64_t at = i + l * N;
                    int k = S(some)(p->run - at);
                    V d = S(load_n)(dy + at, k);
                    a[l] += d;
                    b[l] = S(fma)(d, S(load_n)(x + at, k) - mean, b[l]); // absent elements: d is 0
                }
            T s1 = S(fold_sum)(a), s2 = S(fold_sum)(b) * rstd;
            T *sums = p->sums + 2 * (r * p->each + c);
            sums[0] = s1, sums[1] = s2;
            T g = p->gamma ? p->gamma[r % p->groups * p->each + c] : 1;
            m1 = m1 + S(set)(g * s1)[0];
            m2 = m2 + S(set)(g * s2)[0];
        }
        if (!p->y) continue;
        m1 /= (T)n, m2 /= (T)n;
        for (int64_t c = 0; c < p->each; c++) {
            const T *x = p->x + r * n + c * p->run, *dy = p->dy + r * n + c * p->run;
            T *dx = p->y + r * n + c * p->run;
            V scale = S(set)(rstd * (p->gamma ? p->gamma[r % p->groups * p->each + c] : 1));
            V turn = S(set)(-rstd * (rstd * m2)), shift = S(set)(-rstd * m1);
            for (int64_t i = 0; i < p->run; i += N) {
                int k = S(some)(p->run - i);
                V h = S(fma)(S(load_n)(x + i, k) - mean, turn, shift);
                S(store_n)(dx + i, S(canon)(S(fma)(S(load_n)(dy + i, k), scale, h)), k);
            }
        }
    }
}

static void S(group_norm_grad)(int64_t rows, int64_t groups, int64_t each, int64_t run, T *dx, T *dgamma, T *dbeta, T *sums,
                               const T *dy, const T *x, const T *gamma, const T *mean, const T *rstd) {
    struct S(groups) p = {.groups = groups, .each = each, .run = run, .y = dx, .mean = (T *)mean, .rstd = (T *)rstd,
                          .sums = sums, .x = x, .gamma = gamma, .dy = dy};
    parallel_range(rows, 1 + 16384 / (each * run + 1), S(group_norm_grad_rows), &p);
    int64_t channels = groups * each;
    for (int64_t c = 0; c < channels; c++) { // sample after sample
        T s1 = 0, s2 = 0;
        for (int64_t i = 0; i < rows / groups; i++) s1 += sums[2 * (i * channels + c)], s2 += sums[2 * (i * channels + c) + 1];
        if (dbeta) dbeta[c] = S(canon)(S(set)(dbeta[c] + s1))[0];
        if (dgamma) dgamma[c] = S(canon)(S(set)(dgamma[c] + s2))[0];
    }
}
