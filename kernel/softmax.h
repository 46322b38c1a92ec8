// Softmax, its logarithm and cross-entropy over rows of n reals, each shifted by the row's maximum.

struct S(rows) {
    int logarithm;
    int64_t n;
    T *o, *lse;
    const T *x, *y;
    const int64_t *target;
    const T *dloss;
    int64_t sdloss;
    T scale;
};

// The sum of exp(x - max) over a row; with o, also stores the terms.
static T S(sum_exp)(int64_t n, T *o, const T *x, T max) {
    V acc[S(L)];
    for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
    for (int64_t i = 0; i < n; i += 16)
        for (int l = 0; l < S(L) && i + l * N < n; l++) {
            int64_t at = i + l * N;
            int k = S(some)(n - at);
            if (k == N) {
                V e = S(exp)(S(load)(x + at) - max);
                if (o) S(store)(o + at, e);
                acc[l] += e;
            } else {
                V e = S(sel)(S(among)(k), S(exp)(S(load_n)(x + at, k) - max), S(set)(0));
                if (o) S(store_n)(o + at, e, k);
                acc[l] += e;
            }
        }
    return S(fold_sum)(acc);
}

// A row of only -inf has a maximum of -inf; shifting by 0 then gives 0 / 0 as IEEE says.
INLINE T S(row_max)(int64_t n, const T *x) {
    T m = S(block_max)(n, x);
    return m == -(T)INFINITY ? 0 : m;
}

INLINE T S(log1)(T x) { return S(log)(S(set)(x))[0]; }

static void S(softmax_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(rows) *p = ctx;
    int64_t n = p->n;
    for (int64_t r = from; r < to; r++) {
        const T *x = p->x + r * n;
        T *o = p->o + r * n;
        T max = S(row_max)(n, x);
        T sum = S(sum_exp)(n, p->logarithm ? NULL : o, x, max);
        T by = p->logarithm ? S(log1)(sum) : 1 / sum;
        for (int64_t i = 0; i < n; i += N) {
            int k = S(some)(n - i);
            V v = p->logarithm ? (S(load_n)(x + i, k) - max) - by : S(load_n)(o + i, k) * by;
            S(store_n)(o + i, S(canon)(v), k);
        }
    }
}

static void S(softmax)(int logarithm, int64_t rows, int64_t n, T *o, const T *x) {
    struct S(rows) p = {.logarithm = logarithm, .n = n, .o = o, .x = x};
    parallel_range(rows, 1 + 4096 / (n + 1), S(softmax_rows), &p);
}

// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy).
static void S(softmax_grad_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(rows) *p = ctx;
    int64_t n = p->n;
    for (int64_t r = from; r < to; r++) {
        const T *dy = p->x + r * n, *y = p->y + r * n;
        T *dx = p->o + r * n;
        V acc[S(L)];
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
        for (int64_t i = 0; i < n; i += 16)
            for (int l = 0; l < S(L) && i + l * N < n; l++) {
                int64_t at = i + l * N;
                int k = S(some)(n - at);
                V d = S(load_n)(dy + at, k);
                acc[l] = p->logarithm ? acc[l] + d : S(fma)(d, S(load_n)(y + at, k), acc[l]);
            }
        T sum = S(fold_sum)(acc);
        for (int64_t i = 0; i < n; i += N) {
            int k = S(some)(n - i);
            V d = S(load_n)(dy + i, k), v = S(load_n)(y + i, k);
            v = p->logarithm ? S(fma)(S(exp)(v), S(set)(-sum), d) : v * (d - sum);
            S(store_n)(dx + i, S(canon)(v), k);
        }
    }
}

static void S(softmax_grad)(int logarithm, int64_t rows, int64_t n, T *dx, const T *dy, const T *y) {
    struct S(rows) p = {.logarithm = logarithm, .n = n, .o = dx, .x = dy, .y = y};
    parallel_range(rows, 1 + 4096 / (n + 1), S(softmax_grad_rows), &p);
}

INLINE void S(cross_entropy_row)(struct S(rows) *p, int64_t r, T lse) {
    T loss = p->target[r] < 0 ? 0 : lse - p->x[r * p->n + p->target[r]];
    p->lse[r] = lse == lse ? lse : (T)__builtin_nan("");
    p->o[r] = loss == loss ? loss : (T)__builtin_nan("");
}

// N rows of at most 16 elements at once, a lane each: what sum_exp's 16 lanes hold are here vectors.
static void S(cross_entropy_narrow)(struct S(rows) *p, int64_t from, int64_t rows) {
    T x[16][N];
    for (int64_t l = 0; l < N; l++)
        for (int64_t i = 0; i < p->n; i++) x[i][l] = l < rows ? p->x[(from + l) * p->n + i] : 0;
    V max = S(load)(x[0]), e[16];
    for (int i = 1; i < p->n; i++) {
        V v = S(load)(x[i]);
        max = S(sel)((v > max) | (v != v), v, max);
    }
    max = S(sel)(max == -(T)INFINITY, S(set)(0), max);
    for (int i = 0; i < 16; i++) e[i] = i < p->n ? S(exp)(S(load)(x[i]) - max) : S(set)(0);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) e[i] += e[i + half];
    T lse[N];
    S(store)(lse, max + S(log)(e[0]));
    for (int64_t l = 0; l < rows; l++) S(cross_entropy_row)(p, from + l, lse[l]);
}

static void S(cross_entropy_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(rows) *p = ctx;
    if (p->n <= 16 && p->n > 0) {
        for (int64_t r = from; r < to; r += N) S(cross_entropy_narrow)(p, r, S(some)(to - r));
        return;
    }
    for (int64_t r = from; r < to; r++) {
        const T *x = p->x + r * p->n;
        T max = S(row_max)(p->n, x);
        S(cross_entropy_row)(p, r, max + S(log1)(S(sum_exp)(p->n, NULL, x, max)));
    }
}

static void S(cross_entropy)(int64_t rows, int64_t n, T *loss, T *lse, const T *x, const int64_t *target) {
    struct S(rows) p = {.n = n, .o = loss, .lse = lse, .x = x, .target = target};
    parallel_range(rows, 1 + 4096 / (n + 1), S(cross_entropy_rows), &p);
}

// dx = scale dloss (softmax(x) - one_hot(target)); rows with a negative target get zeros. A vector takes
// elements of as many rows as it spans.
static void S(cross_entropy_grad_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(rows) *p = ctx;
    int64_t n = p->n, block = n < N ? N : 1;
    T by[N], lse[N], each[N], shift[N];
    for (int64_t r = from; r < to; r += block) {
        int64_t rows = to - r < block ? to - r : block;
        const T *x = p->x + r * n;
        T *dx = p->o + r * n;
        for (int64_t l = 0; l < rows; l++) {
            by[l] = p->target[r + l] < 0 ? 0 : p->scale * p->dloss[(r + l) * p->sdloss];
            lse[l] = p->lse[r + l];
        }
        for (int64_t i = 0, row = 0, at = 0; i < rows * n; i += N) {
            int k = S(some)(rows * n - i);
            V b = S(set)(by[0]), s = S(set)(lse[0]);
            if (block > 1) {
                for (int l = 0; l < N; l++) {
                    each[l] = by[row], shift[l] = lse[row];
                    if (++at == n && row < rows - 1) at = 0, row++;
                }
                b = S(load)(each), s = S(load)(shift);
            }
            S(store_n)(dx + i, S(canon)(S(exp)(S(load_n)(x + i, k) - s) * b), k);
        }
        for (int64_t l = 0; l < rows; l++) {
            int64_t target = p->target[r + l];
            if (target < 0)
                for (int64_t i = 0; i < n; i++) dx[l * n + i] = 0;
            else
                dx[l * n + target] = S(canon)(S(set)(dx[l * n + target] - by[l]))[0];
        }
    }
}

static void S(cross_entropy_grad)(int64_t rows, int64_t n, T *dx, const T *dloss, int64_t sdloss, double scale,
                                  const T *x, const T *lse, const int64_t *target) {
    struct S(rows) p = {.n = n, .o = dx, .lse = (T *)lse, .x = x, .target = target, .dloss = dloss, .sdloss = sdloss,
                        .scale = (T)scale};
    parallel_range(rows, 1 + 4096 / (n + 1), S(cross_entropy_grad_rows), &p);
}
