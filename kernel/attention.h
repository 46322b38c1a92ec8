// Scaled dot-product attention, softmax(scale q kᵀ) v, a block of query rows at a time: scores exist for one
// block only. The gradient computes them again from the logarithm of each row's sum. After Dao et al.,
// "FlashAttention" (2022), without its blocks over keys: rows of scores are whole, so a row's sum is that of
// softmax.h.

struct S(attention) {
    int causal;
    int64_t rows, cols, d, e, blocks;
    T scale;
    T *o, *lse, *dq, *dk, *dv;
    const T *q, *k, *v, *dy;
    const int64_t *at; // for each batch entry where q, k, v and dy begin
    int64_t ldq, ldk, ldv, ldy;
};

// Query rows of a block.
enum { S(QUERIES) = 64 };

// How many keys the rows up to `end` see.
INLINE int64_t S(seen)(const struct S(attention) *p, int64_t end) {
    return p->causal && end < p->cols ? end : p->cols;
}

// Scores of m query rows from row i on, by n keys.
static void S(scores)(const struct S(attention) *p, const int64_t *at, int64_t i, int64_t m, int64_t n, T *s) {
    S(gemm)(0, 1, m, n, p->d, p->q + at[0] + i * p->ldq, p->ldq, p->k + at[1], p->ldk, s, n, NULL, 0, 1, 0, 0, 0);
}

static void S(attention_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    int64_t b = part / p->blocks, i = part % p->blocks * S(QUERIES), m = p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES);
    int64_t n = S(seen)(p, i + m);
    const int64_t *at = p->at + 4 * b;
    T *s = scratch_take((m * n + N) * sizeof(T));
    S(scores)(p, at, i, m, n, s);
    for (int64_t r = 0; r < m; r++) {
        int64_t open = S(seen)(p, i + r + 1);
        T *row = s + r * n;
        for (int64_t j = 0; j < open; j += N) {
            int k = S(some)(open - j);
            S(store_n)(row + j, S(load_n)(row + j, k) * p->scale, k);
        }
        T max = S(row_max)(open, row), sum = S(sum_exp)(open, row, row, max), by = 1 / sum;
        for (int64_t j = 0; j < open; j += N) {
            int k = S(some)(open - j);
            S(store_n)(row + j, S(load_n)(row + j, k) * by, k);
        }
        memset(row + open, 0, (n - open) * sizeof(T));
        if (p->lse) p->lse[b * p->rows + i + r] = S(canon)(S(set)(max + S(log1)(sum)))[0];
    }
    S(gemm)(0, 0, m, p->e, n, s, n, p->v + at[2], p->ldv, p->o + (b * p->rows + i) * p->e, p->e, NULL, 0, 1, 0, 0, 0);
    scratch_give(s);
}

static void S(attention)(int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale, T *o,
                         T *lse, const T *q, const T *k, const T *v, const int64_t *at, const int64_t *ld) {
    struct S(attention) p = {causal, rows, cols, d, e, (rows + S(QUERIES) - 1) / S(QUERIES), (T)scale, o, lse, NULL, NULL,
                             NULL, q, k, v, NULL, at, ld[0], ld[1], ld[2], 0};
    parallel_for(batch * p.blocks, S(attention_part), &p);
}

// One batch entry; its blocks add to dk and dv in order. With P the weights: dv = Pᵀ dy, dP = dy vᵀ,
// dS = scale P (dP - rowsum(P dP)), dq = dS k, dk = dSᵀ q.
static void S(attention_grad_part)(void *ctx, int64_t b) {
    const struct S(attention) *p = ctx;
    const int64_t *at = p->at + 4 * b;
    T *s = scratch_take(2 * (S(QUERIES) * p->cols + N) * sizeof(T)), *g = s + S(QUERIES) * p->cols + N;
    T *dk = p->dk + b * p->cols * p->d, *dv = p->dv + b * p->cols * p->e;
    memset(dk, 0, p->cols * p->d * sizeof(T));
    memset(dv, 0, p->cols * p->e * sizeof(T));
    for (int64_t i = 0; i < p->rows; i += S(QUERIES)) {
        int64_t m = p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES), n = S(seen)(p, i + m);
        const T *dy = p->dy + at[3] + i * p->ldy;
        S(scores)(p, at, i, m, n, s);
        S(gemm)(0, 1, m, n, p->e, dy, p->ldy, p->v + at[2], p->ldv, g, n, NULL, 0, 1, 0, 0, 0);
        for (int64_t r = 0; r < m; r++) {
            int64_t open = S(seen)(p, i + r + 1);
            T *row = s + r * n, *grad = g + r * n, lse = p->lse[b * p->rows + i + r];
            V acc[S(L)];
            for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
            for (int64_t j = 0; j < open; j += 16)
                for (int l = 0; l < S(L) && j + l * N < open; l++) {
                    T *x = row + j + l * N;
                    int k = S(some)(open - j - l * N);
                    S(store_n)(x, S(exp)(S(load_n)(x, k) * p->scale - lse), k);
                    acc[l] = S(fma)(S(load_n)(x, k), S(load_n)(grad + j + l * N, k), acc[l]);
                }
            T sum = S(fold_sum)(acc);
            for (int64_t j = 0; j < open; j += N) {
                int k = S(some)(open - j);
                S(store_n)(grad + j, S(load_n)(row + j, k) * (S(load_n)(grad + j, k) - sum) * p->scale, k);
            }
            memset(row + open, 0, (n - open) * sizeof(T));
            memset(grad + open, 0, (n - open) * sizeof(T));
        }
        S(gemm)(1, 0, n, p->e, m, s, n, dy, p->ldy, dv, p->e, NULL, 1, 1, 0, 0, 0);
        S(gemm)(0, 0, m, p->d, n, g, n, p->k + at[1], p->ldk, p->dq + (b * p->rows + i) * p->d, p->d, NULL, 0, 1, 0, 0, 0);
        S(gemm)(1, 0, n, p->d, m, g, n, p->q + at[0] + i * p->ldq, p->ldq, dk, p->d, NULL, 1, 1, 0, 0, 0);
    }
    scratch_give(s);
}

static void S(attention_grad)(int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale,
                              T *dq, T *dk, T *dv, const T *dy, const T *lse, const T *q, const T *k, const T *v,
                              const int64_t *at, const int64_t *ld) {
    struct S(attention) p = {causal, rows, cols, d, e, 0, (T)scale, NULL, (T *)lse, dq, dk, dv, q, k, v, dy, at,
                             ld[0], ld[1], ld[2], ld[3]};
    parallel_for(batch, S(attention_grad_part), &p);
}
