// Scaled dot-product attention, softmax(scale q kᵀ) v, a block of query rows at a time: scores exist for one
// block only. The gradient computes them again from the logarithm of each row's sum. After Dao et al.,
// "FlashAttention" (2022), without its blocks over keys: rows of scores are whole, so a row's sum is that of
// softmax.h.

struct S(attention) {
    int causal;
    int64_t batch, rows, cols, d, e, blocks;
    T scale;
    T *o, *lse, *dq, *dk, *dv, *sums;
    const T *q, *k, *v, *dy;
    const int64_t *at; // for each batch entry where q, k, v and dy begin
    int64_t ldq, ldk, ldv, ldy;
    const int64_t *to; // for each batch entry where dq, dk and dv begin; NULL: one after the other
    int64_t ldto[3];
};

// Query rows of a block.
enum { S(QUERIES) = 64 };

// How many keys the rows up to `end` see.
INLINE int64_t S(seen)(const struct S(attention) *p, int64_t end) {
    return p->causal && end < p->cols ? end : p->cols;
}

// Rows of a strip. Query after query of a causal block sees one key more: its products are made strip by strip, and what a
// strip does not see is left out. As many on every path, since what is left out is 0 times a number.
enum { S(STRIP) = 12 };

// C = A B (+ C), with operands used in place, not packed.
static void S(strip)(int64_t m, int64_t n, int64_t k, const T *a, int64_t ar, int64_t ak, const T *b, int64_t ldb, T *c,
                     int64_t ldc, int accumulate) {
    struct S(product) p = {m, n, k, ar, ak, ldb, 1, ldc, a, b, NULL, c, accumulate, 0, 0, 0, m, n, 1, 1};
    S(gemm_block)(&p, m, n, a, b, c, NULL);
}

// Of n keys from key j on, those that every query from i on sees.
INLINE int64_t S(seen_by_all)(const struct S(attention) *p, int64_t i, int64_t j, int64_t n) {
    return p->causal && i - j < n ? i - j : n;
}

// Products of m rows of a, queries from i on, with the rows of b of n keys from j on, as far as they see them; s [m, n].
static int S(seen_products)(const struct S(attention) *p, int64_t i, int64_t m, int64_t j, int64_t n, int64_t width,
                            const T *a, int64_t lda, const T *b, int64_t ldb, T *s) {
    int64_t all = S(seen_by_all)(p, i, j, n), own = n - all;
    S(gemm)(0, 1, m, all, width, a, lda, b, ldb, s, n, NULL, 0, 1, 0, 0, 0);
    if (!own) return 1;
    int64_t full = (own + N - 1) / N * N;
    T *turned = scratch_take((width * full + N) * sizeof(T));
    if (!turned) return 0;
    S(pack_lines)(turned, (int)full, b + all * ldb, ldb, 1, own, width);
    for (int64_t r = 0; r < m; r += S(STRIP)) {
        int64_t rows = m - r < S(STRIP) ? m - r : S(STRIP), open = (r + rows + N - 1) / N * N;
        S(strip)(rows, open < own ? open : own, width, a + r * lda, lda, 1, turned, full, s + r * n + all, n, 0);
    }
    scratch_give(turned);
    return 1;
}

// The rows of s [m, n], weights of the keys from 0 on, times those of b; what a strip of rows does not see is left out
// where few keys make that count.
static void S(weighted)(const struct S(attention) *p, int64_t i, int64_t m, int64_t n, const T *s, int64_t width, const T *b,
                        int64_t ldb, T *c, int64_t ldc, int accumulate) {
    if (!p->causal || n > S(KC)) {
        S(gemm)(0, 0, m, width, n, s, n, b, ldb, c, ldc, NULL, accumulate, 1, 0, 0, 0);
        return;
    }
    for (int64_t r = 0; r < m; r += S(STRIP)) {
        int64_t rows = m - r < S(STRIP) ? m - r : S(STRIP);
        S(strip)(rows, width, S(seen)(p, i + r + rows), s + r * n, n, 1, b, ldb, c + r * ldc, ldc, accumulate);
    }
}

// The address of the gradient of row i of q (0), k (1) or v (2).
INLINE T *S(gradient)(const struct S(attention) *p, int which, int64_t b, int64_t i) {
    T *all = which == 0 ? p->dq : which == 1 ? p->dk : p->dv;
    return all + (p->to ? p->to[3 * b + which] : b * (which ? p->cols : p->rows) * p->ldto[which]) + i * p->ldto[which];
}

INLINE void S(fetch_to_write)(T *p, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(p + i, 1, 2);
}

// The block that a thread may take after `part`.
INLINE int64_t S(next_part)(int64_t part) { return part + drun_threads(); }

// Prefetches row r of what block `part` reads and adds to into the L2 cache, while the block before it is computed: the rows of a head
// are not adjacent, which the hardware prefetcher cannot predict.
INLINE void S(fetch_row)(const struct S(attention) *p, int64_t part, int64_t r) {
    int64_t b = part / p->blocks, i = part % p->blocks * S(QUERIES) + r;
    if (b >= p->batch) return;
    const int64_t *at = p->at + 4 * b;
    if (i < p->rows) {
        S(fetch)(p->q + at[0] + i * p->ldq, p->d);
        if (p->dy) S(fetch)(p->dy + at[3] + i * p->ldy, p->e);
        if (p->dq) S(fetch_to_write)(S(gradient)(p, 0, b, i), p->d);
    }
    if (i < p->cols) {
        S(fetch)(p->k + at[1] + i * p->ldk, p->d);
        S(fetch)(p->v + at[2] + i * p->ldv, p->e);
        if (p->dk) S(fetch_to_write)(S(gradient)(p, 1, b, i), p->d);
        if (p->dv) S(fetch_to_write)(S(gradient)(p, 2, b, i), p->e);
    }
}

// Folds the 16 lanes of N rows at once, by the tree of reduce.h: first to a vector for each row, then to one with a lane a row.
#define FOLD_ROWS(name, combine)                                    \
    INLINE V S(join_##name)(V *acc) {                               \
        for (int w = S(L) / 2; w; w /= 2)                           \
            for (int l = 0; l < w; l++) {                           \
                V x = acc[l], y = acc[l + w];                       \
                acc[l] = combine;                                   \
            }                                                       \
        return acc[0];                                              \
    }                                                               \
    INLINE V S(fold_rows_##name)(V *rows) {                         \
        S(transpose)(rows);                                         \
        _Pragma("GCC unroll 4") for (int w = N / 2; w; w /= 2)      \
            _Pragma("GCC unroll 8") for (int i = 0; i < w; i++) {   \
                V x = rows[i], y = rows[i + w];                     \
                rows[i] = combine;                                  \
            }                                                       \
        return rows[0];                                             \
    }
FOLD_ROWS(sum, x + y)
FOLD_ROWS(max, S(max)(x, y))

INLINE void S(clear)(T *p, int64_t n) {
    for (int64_t i = 0; i < n; i += N) S(store_n)(p + i, S(set)(0), S(some)(n - i));
}

// The weights of queries i to i + rows, at most N, in place of their products with keys, s [rows, n]; zeros for keys that they do
// not see. Each step is taken for all rows before the next: a row's steps wait for one another. Meanwhile block `next` is fetched
// from its row r0 on.
static void S(weights)(const struct S(attention) *p, int64_t b, int64_t i, int rows, int64_t n, T *s, int64_t next,
                       int64_t r0) {
    V each[N];
    T max[N], by[N];
    for (int r = 0; r < N; r++) each[r] = S(set)(0);
    for (int r = 0; r < rows; r++) {
        int64_t open = S(seen)(p, i + r + 1);
        V acc[S(L)];
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(-(T)INFINITY);
        for (int64_t j = 0; j < open; j += 16)
            for (int l = 0; l < S(L) && j + l * N < open; l++) {
                T *x = s + r * n + j + l * N;
                int k = S(some)(open - j - l * N);
                V scaled = S(load_n)(x, k) * p->scale, larger = S(max)(acc[l], scaled);
                S(store_n)(x, scaled, k);
                acc[l] = k < N ? S(sel)(S(among)(k), larger, acc[l]) : larger;
            }
        each[r] = S(join_max)(acc);
        S(fetch_row)(p, next, r0 + r);
    }
    V top = S(fold_rows_max)(each);
    top = S(sel)(top == -(T)INFINITY, S(set)(0), top); // as S(row_max)
    S(store)(max, top);
    for (int r = 0; r < N; r++) each[r] = S(set)(0);
    for (int r = 0; r < rows; r++) {
        int64_t open = S(seen)(p, i + r + 1);
        V acc[S(L)];
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
        for (int64_t j = 0; j < open; j += 16)
            for (int l = 0; l < S(L) && j + l * N < open; l++) {
                T *x = s + r * n + j + l * N;
                int k = S(some)(open - j - l * N);
                V e = S(exp)(S(load_n)(x, k) - max[r]);
                S(store_n)(x, e, k);
                acc[l] += k < N ? S(sel)(S(among)(k), e, S(set)(0)) : e;
            }
        each[r] = S(join_sum)(acc);
    }
    V sum = S(fold_rows_sum)(each);
    S(store)(by, 1 / sum);
    if (p->lse) S(store_n)(p->lse + b * p->rows + i, S(canon)(top + S(log)(sum)), rows);
    for (int r = 0; r < rows; r++) {
        int64_t open = S(seen)(p, i + r + 1);
        for (int64_t j = 0; j < open; j += N) {
            int k = S(some)(open - j);
            S(store_n)(s + r * n + j, S(load_n)(s + r * n + j, k) * by[r], k);
        }
        S(clear)(s + r * n + open, n - open);
    }
}

static void S(attention_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    int64_t b = part / p->blocks, i = part % p->blocks * S(QUERIES), m = p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES);
    int64_t n = S(seen)(p, i + m);
    const int64_t *at = p->at + 4 * b;
    T *s = scratch_take((m * n + N) * sizeof(T));
    if (!s) return;
    if (!S(seen_products)(p, i, m, 0, n, p->d, p->q + at[0] + i * p->ldq, p->ldq, p->k + at[1], p->ldk, s)) {
        scratch_give(s);
        return;
    }
    for (int64_t r = 0; r < m; r += N) S(weights)(p, b, i + r, S(some)(m - r), n, s + r * n, S(next_part)(part), r);
    S(weighted)(p, i, m, n, s, p->e, p->v + at[2], p->ldv, p->o + (b * p->rows + i) * p->e, p->e, 0);
    scratch_give(s);
}

static void S(attention)(int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale, T *o,
                         T *lse, const T *q, const T *k, const T *v, const int64_t *at, const int64_t *ld) {
    struct S(attention) p = {causal, batch, rows, cols, d, e, (rows + S(QUERIES) - 1) / S(QUERIES), (T)scale, o, lse, NULL, NULL,
                             NULL, NULL, q, k, v, NULL, at, ld[0], ld[1], ld[2], 0, NULL, {0}};
    parallel_for(batch * p.blocks, S(attention_part), &p);
}

// With P the weights: dv = P' dy, dP = dy v', dS = scale P (dP - rowsum(P dP)), dq = dS k, dk = dS' q. A block
// of queries is worked on with scratch for P and dS.
struct S(attention_block) {
    int64_t b, i, m, j, n; // of the batch; queries i to i + m by keys j to j + n
    int64_t next;          // the block of which to fetch what it needs; 0: none
    T *p, *ds;
};

// Which of the block's keys query r of it sees.
INLINE int64_t S(block_open)(const struct S(attention) *p, const struct S(attention_block) *a, int64_t r) {
    int64_t open = S(seen)(p, a->i + r + 1) - a->j;
    return open < 0 ? 0 : open < a->n ? open : a->n;
}

// Zeros where gradients are added up: those of keys and values, and that of queries if it lies among others.
static void S(clear_gradients)(const struct S(attention) *p, int64_t b) {
    for (int which = p->to ? 0 : 1; which < 3; which++)
        for (int64_t i = 0; i < (which ? p->cols : p->rows); i++)
            S(clear)(S(gradient)(p, which, b, i), which == 2 ? p->e : p->d);
}

static int S(block_begin)(const struct S(attention) *p, struct S(attention_block) *a) {
    int64_t size = S(QUERIES) * p->cols + N;
    a->p = scratch_take(2 * size * sizeof(T));
    if (a->p) a->ds = a->p + size;
    return a->p != NULL;
}

// P and dS of `rows` queries of a block from query r on, at most N, in place of their products. The row sums come from the whole
// rows, or, for a part of the keys, from where those left them.
static void S(rows_of_weights)(const struct S(attention) *p, const struct S(attention_block) *a, int64_t r0, int rows) {
    int whole = a->n == S(seen)(p, a->i + a->m);
    int64_t q = a->b * p->rows + a->i + r0;
    V each[N];
    T sums[N];
    for (int r = 0; r < N; r++) each[r] = S(set)(0);
    for (int r = 0; r < rows; r++) {
        int64_t open = S(block_open)(p, a, r0 + r);
        T *row = a->p + (r0 + r) * a->n, *grad = a->ds + (r0 + r) * a->n, lse = p->lse[q + r];
        V acc[S(L)];
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
        for (int64_t j = 0; j < open; j += 16)
            for (int l = 0; l < S(L) && j + l * N < open; l++) {
                T *x = row + j + l * N;
                int k = S(some)(open - j - l * N);
                V e = S(exp)(S(load_n)(x, k) * p->scale - lse);
                S(store_n)(x, e, k);
                if (k < N) e = S(sel)(S(among)(k), e, S(set)(0));
                acc[l] = S(fma)(e, S(load_n)(grad + j + l * N, k), acc[l]);
            }
        each[r] = S(join_sum)(acc);
        if (a->next) S(fetch_row)(p, a->next, r0 + r);
    }
    V sum = whole ? S(fold_rows_sum)(each) : S(load_n)(p->sums + q, rows);
    if (whole && p->sums) S(store_n)(p->sums + q, sum, rows);
    S(store)(sums, sum);
    for (int r = 0; r < rows; r++) {
        int64_t open = S(block_open)(p, a, r0 + r);
        T *row = a->p + (r0 + r) * a->n, *grad = a->ds + (r0 + r) * a->n;
        for (int64_t j = 0; j < open; j += N) {
            int k = S(some)(open - j);
            S(store_n)(grad + j, S(load_n)(row + j, k) * (S(load_n)(grad + j, k) - sums[r]) * p->scale, k);
        }
        S(clear)(row + open, a->n - open);
        S(clear)(grad + open, a->n - open);
    }
}

static int S(block_weights)(const struct S(attention) *p, const struct S(attention_block) *a) {
    const int64_t *at = p->at + 4 * a->b;
    if (!S(seen_products)(p, a->i, a->m, a->j, a->n, p->d, p->q + at[0] + a->i * p->ldq, p->ldq, p->k + at[1] + a->j * p->ldk,
                          p->ldk, a->p) ||
        !S(seen_products)(p, a->i, a->m, a->j, a->n, p->e, p->dy + at[3] + a->i * p->ldy, p->ldy, p->v + at[2] + a->j * p->ldv,
                          p->ldv, a->ds))
        return 0;
    for (int64_t r = 0; r < a->m; r += N) S(rows_of_weights)(p, a, r, S(some)(a->m - r));
    return 1;
}

static void S(block_dq)(const struct S(attention) *p, const struct S(attention_block) *a) {
    S(weighted)(p, a->i, a->m, a->n, a->ds, p->d, p->k + p->at[4 * a->b + 1], p->ldk, S(gradient)(p, 0, a->b, a->i), p->ldto[0],
                p->to != NULL);
}

// Adds s' x to the gradient of the block's keys, c, for s the block's P or dS and x the rows of its queries. The first
// queries do not see its last keys.
static void S(block_keys)(const struct S(attention) *p, const struct S(attention_block) *a, const T *s, int64_t width,
                          const T *x, int64_t ldx, T *c, int64_t ldc) {
    int64_t all = S(seen_by_all)(p, a->i, a->j, a->n);
    S(gemm)(1, 0, all, width, a->m, s, a->n, x, ldx, c, ldc, NULL, 1, 1, 0, 0, 0);
    for (int64_t r = 0; r < a->n - all; r += S(STRIP)) {
        int64_t rows = a->n - all - r < S(STRIP) ? a->n - all - r : S(STRIP);
        S(strip)(rows, width, a->m - r, s + r * a->n + all + r, 1, a->n, x + r * ldx, ldx, c + (all + r) * ldc, ldc, 1);
    }
}

// Adds to dk and dv of the block's keys; blocks must come in order.
static void S(block_dkv)(const struct S(attention) *p, const struct S(attention_block) *a) {
    const int64_t *at = p->at + 4 * a->b;
    S(block_keys)(p, a, a->p, p->e, p->dy + at[3] + a->i * p->ldy, p->ldy, S(gradient)(p, 2, a->b, a->j), p->ldto[2]);
    S(block_keys)(p, a, a->ds, p->d, p->q + at[0] + a->i * p->ldq, p->ldq, S(gradient)(p, 1, a->b, a->j), p->ldto[1]);
}

INLINE int64_t S(block_rows)(const struct S(attention) *p, int64_t i) { return p->rows - i < S(QUERIES) ? p->rows - i : S(QUERIES); }

// One batch entry.
static void S(attention_grad_part)(void *ctx, int64_t b) {
    const struct S(attention) *p = ctx;
    struct S(attention_block) a = {.b = b};
    if (!S(block_begin)(p, &a)) return;
    S(clear_gradients)(p, b);
    for (; a.i < p->rows; a.i += a.m) {
        a.m = S(block_rows)(p, a.i), a.n = S(seen)(p, a.i + a.m);
        a.next = a.i + a.m < p->rows ? b * p->blocks + a.i / S(QUERIES) + 1 : S(next_part)(b) * p->blocks;
        if (!S(block_weights)(p, &a)) break;
        S(block_dq)(p, &a);
        S(block_dkv)(p, &a);
    }
    scratch_give(a.p);
}

// Where threads outnumber batch entries, dq is computed by blocks of queries first, and then dk and dv by
// parts of the keys, with the weights computed once more: each element from the same operations as above.
static void S(attention_dq_part)(void *ctx, int64_t part) {
    const struct S(attention) *p = ctx;
    struct S(attention_block) a = {.b = part / p->blocks, .i = part % p->blocks * S(QUERIES), .next = S(next_part)(part)};
    a.m = S(block_rows)(p, a.i), a.n = S(seen)(p, a.i + a.m);
    if (!S(block_begin)(p, &a)) return;
    if (S(block_weights)(p, &a)) S(block_dq)(p, &a);
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
        if (!S(block_weights)(p, &a)) break;
        S(block_dkv)(p, &a);
    }
    scratch_give(a.p);
}

static void S(attention_grad)(int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale,
                              T *dq, T *dk, T *dv, const T *dy, const T *lse, const T *q, const T *k, const T *v,
                              const int64_t *at, const int64_t *ld, const int64_t *to) {
    struct S(attention) p = {causal, batch, rows, cols, d, e, (rows + S(QUERIES) - 1) / S(QUERIES), (T)scale, NULL, (T *)lse, dq, dk,
                             dv, NULL, q, k, v, dy, at, ld[0], ld[1], ld[2], ld[3], to, {d, d, e}};
    if (to) memcpy(p.ldto, ld + 4, sizeof p.ldto);
    if (batch >= drun_threads() || p.blocks < 2) {
        parallel_for(batch, S(attention_grad_part), &p);
        return;
    }
    p.sums = scratch_take((batch * rows + N) * sizeof(T));
    if (!p.sums) return;
    for (int64_t b = 0; b < batch; b++) S(clear_gradients)(&p, b);
    parallel_for(batch * p.blocks, S(attention_dq_part), &p);
    parallel_for(batch * ((cols + S(KEYS) - 1) / S(KEYS)), S(attention_dkv_part), &p);
    scratch_give(p.sums);
}
