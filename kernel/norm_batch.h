// Batch norm, and all else that moves and scales the lines of moments.h.

// y = (x - mean - low) scale gamma + beta.
static void S(scale_runs)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t r = from; r < to; r++) {
        int64_t s = r % p->side, l = r / (p->n * p->side) * p->side + s;
        T mean = p->mean ? p->mean[l] : 0, by = p->scale[l] * (p->gamma ? p->gamma[s] : 1);
        V shift = S(fma)(S(set)(p->low ? -p->low[l] : 0), S(set)(by), S(set)(p->beta ? p->beta[s] : 0));
        const T *x = p->x + r * p->run;
        T *y = p->dx + r * p->run;
        for (int64_t i = 0; i < p->run; i += N) {
            int k = S(some)(p->run - i);
            S(give)(y + i, S(canon)(S(fma)(S(take)(x + i, k) - mean, S(set)(by), shift)), k);
        }
    }
}
static void S(scale_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t r = from; r < to; r++)
        for (int64_t s = 0; s < p->side; s += N) {
            int64_t l = r / p->n * p->side + s;
            int k = S(some)(p->side - s);
            V by = S(take)(p->scale + l, k), shift = S(set)(0), x = S(take)(p->x + r * p->side + s, k);
            if (p->gamma) by *= S(take)(p->gamma + s, k);
            if (p->beta) shift = S(take)(p->beta + s, k);
            if (p->low) shift = S(fma)(-S(take)(p->low + l, k), by, shift);
            if (p->mean) x -= S(take)(p->mean + l, k);
            S(give)(p->dx + r * p->side + s, S(canon)(S(fma)(x, by, shift)), k);
        }
}

// Runs over all runs of several elements, or over all rows of single ones.
static void S(over_runs)(struct S(lines) *p, void (*runs)(void *, int64_t, int64_t), void (*columns)(void *, int64_t, int64_t)) {
    if (p->run > 1) parallel_range(p->outer * p->n * p->side, 1 + 32768 / (p->run + 1), runs, p);
    else parallel_range(p->outer * p->n, 1 + 32768 / (p->side + 1), columns, p);
}

static void S(scale_lines)(int64_t outer, int64_t n, int64_t side, int64_t run, T *y, const T *x, const T *mean, const T *low,
                           const T *scale, const T *gamma, const T *beta) {
    struct S(lines) p = {outer, n, side, run, .mean = (T *)mean, .low = (T *)low, .dx = y, .x = x, .scale = scale,
                         .gamma = gamma, .beta = beta};
    S(over_runs)(&p, S(scale_runs), S(scale_columns));
}

// For each channel the sum of dy, and that of dy xhat with xhat = (x - mean - low) rstd.
static void S(batch_sums_runs)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t c = from; c < to; c++) {
        double s1 = 0, s2 = 0;
        for (int64_t r = 0; r < p->n; r++) {
            int64_t at = (r * p->side + c) * p->run;
            S(deviations)(p->run, p->x + at, p->dy + at, p->mean[c], p->low ? p->low[c] : 0, &s1, &s2);
        }
        p->out[c] = S(canon1)(s1), p->out[p->side + c] = S(canon1)(s2 * p->scale[c]);
    }
}
static void S(batch_sums_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t t = from; t < to; t++) {
        int64_t c = t * N;
        int k = S(some)(p->side - c);
        V mean = S(take)(p->mean + c, k), low = p->low ? S(take)(p->low + c, k) : S(set)(0), t1 = S(set)(0), t2 = t1;
        IN_BLOCKS({
            V d = S(take)(p->dy + r * p->side + c, k);
            s1 += d;
            s2 = S(fma)(S(take)(p->x + r * p->side + c, k) - mean - low, d, s2);
        }, t1 += s1, t2 += s2)
        S(give)(p->out + c, S(canon)(t1), k);
        S(give)(p->out + p->side + c, S(canon)(t2 * S(take)(p->scale + c, k)), k);
    }
}

// dx = gamma rstd (dy - mean(dy) - xhat mean(dy xhat)); outside training the statistics are constants, and
// dx = gamma rstd dy.
static void S(batch_grad_runs)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t r = from; r < to; r++) {
        int64_t c = r % p->side, at = r * p->run;
        T rstd = p->scale[c], by = rstd * (p->gamma ? p->gamma[c] : 1), mean = p->mean[c];
        T m1 = p->training ? p->out[c] / (T)p->divisor : 0, m2 = p->training ? p->out[p->side + c] / (T)p->divisor : 0;
        T low = p->low ? p->low[c] : 0;
        for (int64_t i = 0; i < p->run; i += N) {
            int k = S(some)(p->run - i);
            V d = S(take)(p->dy + at + i, k);
            if (p->training) d = S(fma)((S(take)(p->x + at + i, k) - mean - low) * -rstd, S(set)(m2), d - m1);
            S(give)(p->dx + at + i, S(canon)(d * by), k);
        }
    }
}
static void S(batch_grad_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(lines) *p = ctx;
    for (int64_t r = from; r < to; r++)
        for (int64_t c = 0; c < p->side; c += N) {
            int64_t at = r * p->side + c;
            int k = S(some)(p->side - c);
            V rstd = S(take)(p->scale + c, k), by = p->gamma ? rstd * S(take)(p->gamma + c, k) : rstd, d = S(take)(p->dy + at, k);
            if (p->training) {
                V m1 = S(take)(p->out + c, k) / (T)p->divisor, m2 = S(take)(p->out + p->side + c, k) / (T)p->divisor;
                V x = S(take)(p->x + at, k) - S(take)(p->mean + c, k);
                if (p->low) x -= S(take)(p->low + c, k);
                d = S(fma)(x * -rstd, m2, d - m1);
            }
            S(give)(p->dx + at, S(canon)(d * by), k);
        }
}

// sums holds 2 side elements; dgamma and dbeta are added to.
static void S(batch_norm_grad)(int training, int64_t outer, int64_t n, int64_t side, int64_t run, T *dx, T *dgamma, T *dbeta,
                               T *sums, const T *dy, const T *x, const T *mean, const T *low, const T *rstd, const T *gamma) {
    struct S(lines) p = {outer, n, side, run, .divisor = (double)(n * run), .mean = (T *)mean, .low = (T *)low, .out = sums,
                         .dx = dx, .x = x, .dy = dy, .scale = rstd, .gamma = gamma, .training = training};
    S(over_lines)(&p, S(batch_sums_runs), S(batch_sums_columns));
    if (dbeta) S(add_to)(side, dbeta, sums);
    if (dgamma) S(add_to)(side, dgamma, sums + side);
    if (dx) S(over_runs)(&p, S(batch_grad_runs), S(batch_grad_columns));
}
