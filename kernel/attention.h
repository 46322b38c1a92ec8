// Scaled dot-product attention, softmax(scale q kᵀ) v, a block of query rows at a time: scores exist for one
// block only. The gradient computes them again from the logarithm of each row's sum. After Dao et al.,
// "FlashAttention" (2022), without its blocks over keys: rows of scores are whole, so a row's sum is that of
// softmax.h.

struct S(attention) {
    int causal;
    int64_t rows, cols, d, e, blocks;
    T scale;
    T *o, *lse, *dq, *dk, *dv, *sums;
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

// Scores of m query rows from row i on, by n keys from key j on.
static void S(scores)(const struct S(attention) *p, const int64_t *at, int64_t i, int64_t m, int64_t j, int64_t n, T *s) {
    S(gemm)(0, 1, m, n, p->d, p->q + at[0] + i * p->ldq, p->ldq, p->k + at[1] + j * p->ldk, p->ldk, s, n, NULL, 0, 1, 0, 0, 0);
}

static void S(attention_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    int64_t b = part / p->blocks, i = part % p->blocks * S(QUERIES), m = p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES);
    int64_t n = S(seen)(p, i + m);
    const int64_t *at = p->at + 4 * b;
    T *s = scratch_take((m * n + N) * sizeof(T));
    if (!s) return;
    S(scores)(p, at, i, m, 0, n, s);
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
                             NULL, NULL, q, k, v, NULL, at, ld[0], ld[1], ld[2], 0};
    parallel_for(batch * p.blocks, S(attention_part), &p);
}

// With P the weights: dv = P' dy, dP = dy v', dS = scale P (dP - rowsum(P dP)), dq = dS k, dk = dS' q. A block
// of queries is worked on with scratch for P and dS.
struct S(attention_block) {
    int64_t b, i, m, j, n; // of the batch; queries i to i + m by keys j to j + n
    T *p, *ds;
};

static int S(block_begin)(const struct S(attention) *p, struct S(attention_block) *a) {
    int64_t size = S(QUERIES) * p->cols + N;
    a->p = scratch_take(2 * size * sizeof(T));
    if (a->p) a->ds = a->p + size;
    return a->p != NULL;
}

// P and dS. The row sums come from the whole rows, or, for a part of the keys, from where those left them.
static void S(block_weights)(const struct S(attention) *p, const struct S(attention_block) *a) {
    const int64_t *at = p->at + 4 * a->b;
    S(scores)(p, at, a->i, a->m, a->j, a->n, a->p);
    S(gemm)(0, 1, a->m, a->n, p->e, p->dy + at[3] + a->i * p->ldy, p->ldy, p->v + at[2] + a->j * p->ldv, p->ldv, a->ds, a->n,
            NULL, 0, 1, 0, 0, 0);
    int whole = a->n == S(seen)(p, a->i + a->m);
    for (int64_t r = 0; r < a->m; r++) {
        int64_t q = a->b * p->rows + a->i + r, open = S(seen)(p, a->i + r + 1) - a->j;
        open = open < 0 ? 0 : open < a->n ? open : a->n;
        T *row = a->p + r * a->n, *grad = a->ds + r * a->n, lse = p->lse[q];
        V acc[S(L)];
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
        for (int64_t j = 0; j < open; j += 16)
            for (int l = 0; l < S(L) && j + l * N < open; l++) {
                T *x = row + j + l * N;
                int k = S(some)(open - j - l * N);
                S(store_n)(x, S(exp)(S(load_n)(x, k) * p->scale - lse), k);
                acc[l] = S(fma)(S(load_n)(x, k), S(load_n)(grad + j + l * N, k), acc[l]);
            }
        T sum = whole ? S(fold_sum)(acc) : p->sums[q];
        if (whole && p->sums) p->sums[q] = sum;
        for (int64_t j = 0; j < open; j += N) {
            int k = S(some)(open - j);
            S(store_n)(grad + j, S(load_n)(row + j, k) * (S(load_n)(grad + j, k) - sum) * p->scale, k);
        }
        memset(row + open, 0, (a->n - open) * sizeof(T));
        memset(grad + open, 0, (a->n - open) * sizeof(T));
    }
}

static void S(block_dq)(const struct S(attention) *p, const struct S(attention_block) *a) {
    S(gemm)(0, 0, a->m, p->d, a->n, a->ds, a->n, p->k + p->at[4 * a->b + 1], p->ldk, p->dq + (a->b * p->rows + a->i) * p->d,
            p->d, NULL, 0, 1, 0, 0, 0);
}

// Adds to dk and dv of the block's keys; blocks must come in order.
static void S(block_dkv)(const struct S(attention) *p, const struct S(attention_block) *a) {
    const int64_t *at = p->at + 4 * a->b;
    S(gemm)(1, 0, a->n, p->e, a->m, a->p, a->n, p->dy + at[3] + a->i * p->ldy, p->ldy, p->dv + (a->b * p->cols + a->j) * p->e,
            p->e, NULL, 1, 1, 0, 0, 0);
    S(gemm)(1, 0, a->n, p->d, a->m, a->ds, a->n, p->q + at[0] + a->i * p->ldq, p->ldq, p->dk + (a->b * p->cols + a->j) * p->d,
            p->d, NULL, 1, 1, 0, 0, 0);
}

INLINE int64_t S(block_rows)(const struct S(attention) *p, int64_t i) { return p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES); }

// One batch entry.
static void S(attention_grad_part)(void *ctx, int64_t b) {
    const struct S(attention) *p = ctx;
    struct S(attention_block) a = {.b = b};
    if (!S(block_begin)(p, &a)) return;
    memset(p->dk + b * p->cols * p->d, 0, p->cols * p->d * sizeof(T));
    memset(p->dv + b * p->cols * p->e, 0, p->cols * p->e * sizeof(T));
    for (; a.i < p->rows; a.i += a.m) {
        a.m = S(block_rows)(p, a.i), a.n = S(seen)(p, a.i + a.m);
        S(block_weights)(p, &a);
        S(block_dq)(p, &a);
        S(block_dkv)(p, &a);
    }
    scratch_give(a.p);
}

// Where threads outnumber batch entries, dq is computed by blocks of queries first, and then dk and dv by
// parts of the keys, with the weights computed once more: each element from the same operations as above.
static void S(attention_dq_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    struct S(attention_block) a = {.b = part / p->blocks, .i = part % p->blocks * S(QUERIES)};
    a.m = S(block_rows)(p, a.i), a.n = S(seen)(p, a.i + a.m);
    if (!S(block_begin)(p, &a)) return;
    S(block_weights)(p, &a);
    S(block_dq)(p, &a);
    scratch_give(a.p);
}

// Keys of a part.
enum { S(KEYS) = 128 };

static void S(attention_dkv_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    int64_t parts = (p->cols + S(KEYS) - 1) / S(KEYS), j = part % parts * S(KEYS);
    struct S(attention_block) a = {.b = part / parts, .j = j};
    if (!S(block_begin)(p, &a)) return;
    for (; a.i < p->rows; a.i += a.m) {
        a.m = S(block_rows)(p, a.i);
        int64_t end = S(seen)(p, a.i + a.m);
        if (end <= j) continue;
        a.n = end - j < S(KEYS) ? end - j : S(KEYS);
        S(block_weights)(p, &a);
        S(block_dkv)(p, &a);
    }
    scratch_give(a.p);
}

static void S(attention_grad)(int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale,
                              T *dq, T *dk, T *dv, const T *dy, const T *lse, const T *q, const T *k, const T *v,
                              const int64_t *at, const int64_t *ld) {
    struct S(attention) p = {causal, rows, cols, d, e, (rows + S(QUERIES) - 1) / S(QUERIES), (T)scale, NULL, (T *)lse, dq, dk,
                             dv, NULL, q, k, v, dy, at, ld[0], ld[1], ld[2], ld[3]};
    if (batch >= drun_threads() || p.blocks < 2) {
        parallel_for(batch, S(attention_grad_part), &p);
        return;
    }
    p.sums = scratch_take((batch * rows + N) * sizeof(T));
    if (!p.sums) return;
    memset(dk, 0, batch * cols * d * sizeof(T));
    memset(dv, 0, batch * cols * e * sizeof(T));
    parallel_for(batch * p.blocks, S(attention_dq_part), &p);
    parallel_for(batch * ((cols + S(KEYS) - 1) / S(KEYS)), S(attention_dkv_part), &p);
    scratch_give(p.sums);
}
