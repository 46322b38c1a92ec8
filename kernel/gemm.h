// Matrix product: C = A B (+ C) (+ bias on each row), any of A and B transposed.
//
// Each element of C is, for every block of KC values of k, one chain of fused multiply-adds in increasing k
// starting from zero; the blocks' results are added in order. That does not depend on tiles, threads or
// vector width. Tiling and packing after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008).

// Rows of a tile, as many as the registers hold; it is two vectors wide.
#if VB == 64 || defined PATH_NEON
enum { S(MR) = 12 };
#elif VB == 32
enum { S(MR) = 6 };
#else
enum { S(MR) = 4 };
#endif
enum { S(NR) = 2 * N, S(KC) = 256, S(MC) = S(MR) * (264 / S(MR)), S(NC) = 1024 };

// One tile of C: rows x vectors over kc steps. a[r * ar + k * ak], b[k * bk + column]. first: C is
// overwritten, else added to. tail: valid columns of the last vector; padded: B may be read beyond them.
#define TILE(rows, vectors)                                                                                        \
    static void S(tile_##rows##_##vectors)(int64_t kc, const T *a, int64_t ar, int64_t ak, const T *b, int64_t bk, \
                                           T *c, int64_t ldc, int tail, int padded, int first, const T *bias) {    \
        V acc[rows][vectors];                                                                                      \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)                                                    \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) acc[r][v] = S(set)(0);                       \
        if (tail == N || padded) {                                                                                 \
            for (int64_t k = 0; k < kc; k++, a += ak, b += bk) {                                                   \
                V y[vectors];                                                                                      \
                _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) y[v] = S(load)(b + v * N);               \
                _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                          \
                    V x = S(set)(a[r * ar]);                                                                       \
                    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                      \
                        acc[r][v] = S(fma)(x, y[v], acc[r][v]);                                                    \
                }                                                                                                  \
            }                                                                                                      \
        } else {                                                                                                   \
            for (int64_t k = 0; k < kc; k++, a += ak, b += bk) {                                                   \
                V y[vectors];                                                                                      \
                _Pragma("GCC unroll 4") for (int v = 0; v < vectors - 1; v++) y[v] = S(load)(b + v * N);           \
                y[vectors - 1] = S(load_n)(b + (vectors - 1) * N, tail);                                           \
                _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                          \
                    V x = S(set)(a[r * ar]);                                                                       \
                    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                      \
                        acc[r][v] = S(fma)(x, y[v], acc[r][v]);                                                    \
                }                                                                                                  \
            }                                                                                                      \
        }                                                                                                          \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++)                                                    \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                            \
                T *to = c + r * ldc + v * N;                                                                       \
                int n = v == vectors - 1 ? tail : N;                                                               \
                V x = acc[r][v];                                                                                   \
                if (!first) x = (n == N ? S(load)(to) : S(load_n)(to, n)) + x;                                     \
                if (bias) x += n == N ? S(load)(bias + v * N) : S(load_n)(bias + v * N, n);                        \
                if (n == N) S(store)(to, S(canon)(x));                                                             \
                else S(store_n)(to, S(canon)(x), n);                                                               \
            }                                                                                                      \
    }
typedef void (*S(tile_fn))(int64_t, const T *, int64_t, int64_t, const T *, int64_t, T *, int64_t, int, int, int, const T *);

#define TILE_ROWS(rows) TILE(rows, 1) TILE(rows, 2)
TILE_ROWS(1) TILE_ROWS(2) TILE_ROWS(3) TILE_ROWS(4)
#if VB >= 32 || defined PATH_NEON
TILE_ROWS(5) TILE_ROWS(6)
#endif
#if VB == 64 || defined PATH_NEON
TILE_ROWS(7) TILE_ROWS(8) TILE_ROWS(9) TILE_ROWS(10) TILE_ROWS(11) TILE_ROWS(12)
#endif
// A product of one or two rows is bound by the latency of its chains: eight vectors of one row run at once.
TILE(1, 3) TILE(1, 4) TILE(1, 5) TILE(1, 6) TILE(1, 7) TILE(1, 8)
static const S(tile_fn) S(wide_tiles)[8] = {S(tile_1_1), S(tile_1_2), S(tile_1_3), S(tile_1_4),
                                            S(tile_1_5), S(tile_1_6), S(tile_1_7), S(tile_1_8)};
#define T4(v) S(tile_1_##v), S(tile_2_##v), S(tile_3_##v), S(tile_4_##v)
#define T6(v) T4(v), S(tile_5_##v), S(tile_6_##v)
#define T12(v) T6(v), S(tile_7_##v), S(tile_8_##v), S(tile_9_##v), S(tile_10_##v), S(tile_11_##v), S(tile_12_##v)
static const S(tile_fn) S(tiles)[2][13] = {
#if VB == 64 || defined PATH_NEON
    {NULL, T12(1)}, {NULL, T12(2)}
#elif VB == 32
    {NULL, T6(1)}, {NULL, T6(2)}
#else
    {NULL, T4(1)}, {NULL, T4(2)}
#endif
};

// A whole tile, of all its rows and columns. The tiles above run out of registers for the places of their rows, which
// costs a tenth of the time. Here the rows of A are neighbours (a panel, or A transposed), or dense and read through
// three pointers, for rows 0 to 3, 4 to 7 and 8 to 11, and a stride that the processor multiplies by 1 and 2.
#define WHOLE_TILE(name, element, before, step, advance)                                                           \
    static void S(name)(int64_t kc, const T *a, int64_t ar, int64_t ak, const T *b, int64_t bk, T *c, int64_t ldc, \
                        int tail, int padded, int first, const T *bias) {                                          \
        V acc[S(MR)][2];                                                                                           \
        _Pragma("GCC unroll 16") for (int r = 0; r < S(MR); r++) acc[r][0] = acc[r][1] = S(set)(0);                \
        before;                                                                                                    \
        for (int64_t k = 0; k < kc; k++, b += bk) {                                                                \
            V y0 = S(load)(b), y1 = S(load)(b + N);                                                                \
            step;                                                                                                  \
            _Pragma("GCC unroll 16") for (int r = 0; r < S(MR); r++) {                                             \
                V x = S(set)(element);                                                                             \
                acc[r][0] = S(fma)(x, y0, acc[r][0]);                                                              \
                acc[r][1] = S(fma)(x, y1, acc[r][1]);                                                              \
            }                                                                                                      \
            advance;                                                                                               \
        }                                                                                                          \
        _Pragma("GCC unroll 16") for (int r = 0; r < S(MR); r++)                                                   \
            _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++) {                                                  \
                T *to = c + r * ldc + v * N;                                                                       \
                V x = acc[r][v];                                                                                   \
                if (!first) x = S(load)(to) + x;                                                                   \
                if (bias) x += S(load)(bias + v * N);                                                              \
                S(store)(to, S(canon)(x));                                                                         \
            }                                                                                                      \
        (void)ar, (void)ak, (void)tail, (void)padded;                                                              \
    }
#define FETCH_C                                                                                                    \
    _Pragma("GCC unroll 16") for (int r = 0; r < S(MR); r++) {                                                     \
        __builtin_prefetch(c + r * ldc, 1);                                                                        \
        __builtin_prefetch(c + r * ldc + 2 * N - 1, 1);                                                            \
    }
#define ROW_POINTERS                                                                                               \
    const T *a4 = a + 4 * ar, *a8 = a + 8 * ar;                                                                    \
    int64_t stride = ar * sizeof(T), three = 3 * stride;                                                           \
    __asm__("" : "+r"(a4), "+r"(a8), "+r"(three)) // else the compiler computes twelve strides
// If A is transposed, each step of k is another row, and often another page, which the hardware prefetcher cannot predict.
#define FETCH_A __builtin_prefetch(a + 12 * ak), __builtin_prefetch(a + 12 * ak + S(MR) - 1)
#if defined PATH_NEON
// A multiply-add takes one lane of a vector here, so neighbours are loaded N at a time.
#define LOAD_A                                                                                                     \
    V x_of[S(MR) / N];                                                                                             \
    _Pragma("GCC unroll 6") for (int i = 0; i < S(MR) / N; i++) x_of[i] = S(load)(a + i * N)
WHOLE_TILE(tile_neighbours, x_of[r / N][r % N], FETCH_C, LOAD_A, (FETCH_A, a += ak))
#else
WHOLE_TILE(tile_neighbours, a[r], FETCH_C, (void)0, (FETCH_A, a += ak))
#endif
WHOLE_TILE(tile_dense, *(const T *)((const char *)(r < 4 ? a : r < 8 ? a4 : a8) + (r % 4 == 3 ? three : r % 4 * stride)),
           ROW_POINTERS, (void)0, (a++, a4++, a8++))

// Transposes N vectors: each pass of perfect shuffles moves one bit of the row number into the column number.
INLINE void S(transpose)(V *r) {
    _Pragma("GCC unroll 4") for (int w = 1; w < N; w *= 2) {
        V t[N];
        _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) {
            t[2 * i] = S(low)(r[i], r[i + N / 2]);
            t[2 * i + 1] = S(high)(r[i], r[i + N / 2]);
        }
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) r[i] = t[i];
    }
}

// A panel of `width` lines of A or B, `length` deep, into to[k * full + line]; missing lines become zeros.
// Line i begins at from + i * line_stride and advances by step; one of the two is 1.
INLINE void S(pack_lines)(T *to, int full, const T *from, int64_t line_stride, int64_t step, int64_t width, int64_t length) {
    if (line_stride == 1) {
        for (int64_t k = 0; k < length; k++) {
            const T *f = from + k * step;
            T *t = to + k * full;
            for (int i = 0; i < full; i += N) {
                int n = S(some)(full - i), have = width - i < n ? (width > i ? (int)(width - i) : 0) : n;
                if (have == N) S(store)(t + i, S(load)(f + i));
                else S(store_n)(t + i, S(load_n)(f + i, have), n);
            }
        }
        return;
    }
    for (int i = 0; i < full; i += N) {
        int n = S(some)(full - i), have = width - i < n ? (width > i ? (int)(width - i) : 0) : n;
        const T *f = from + i * line_stride;
        for (int64_t k = 0; k < length; k += N) {
            int deep = S(some)(length - k);
            T *t = to + k * full + i;
            V r[N];
            if (have == n && deep == N) {
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++)
                    r[l] = l < n ? S(load)(f + l * line_stride + k) : S(set)(0);
            } else {
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++)
                    r[l] = l < have ? S(load_n)(f + l * line_stride + k, deep) : S(set)(0);
            }
            S(transpose)(r);
            if (n == N && deep == N) {
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) S(store)(t + l * full, r[l]);
            } else {
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) if (l < deep) S(store_n)(t + l * full, r[l], n);
            }
        }
    }
}

// Whole panels of A and B, whose widths the compiler then knows, and any others.
static void S(pack)(T *to, int full, const T *from, int64_t line_stride, int64_t step, int64_t width, int64_t length) {
    if (full == S(MR) && width == S(MR)) S(pack_lines)(to, S(MR), from, line_stride, step, S(MR), length);
    else if (full == S(NR) && width == S(NR)) S(pack_lines)(to, S(NR), from, line_stride, step, S(NR), length);
    else S(pack_lines)(to, full, from, line_stride, step, width, length);
}

struct S(product) {
    int64_t m, n, k, ar, ak, bk, bn, ldc;
    const T *a, *b, *bias;
    T *c;
    int accumulate, few;
    int64_t sa, sb, sc, rows, columns, row_parts, column_parts;
};

// Prefetches n elements into the L2 cache.
INLINE void S(fetch)(const T *p, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(p + i, 0, 2);
}

// What is left to fetch of the panel of B that is packed next: lines of `length` elements, a share of them before each tile, so
// that packing does not wait for memory.
struct S(ahead) { const T *at; int64_t lines, share, stride, length; };

// The panel after the one at row k and column j of the strip of columns from j0 on, in shares for so many tiles.
static struct S(ahead) S(next_panel)(const struct S(product) *p, const T *b, int64_t n, int64_t j0, int64_t j, int64_t k, int64_t tiles) {
    j += S(NR);
    if (j >= n || j >= j0 + S(NC)) j = j0, k += S(KC);
    if (k >= p->k) j = j0 + S(NC), k = 0;
    if (j >= n) return (struct S(ahead)){0};
    int64_t wide = n - j < S(NR) ? n - j : S(NR), deep = p->k - k < S(KC) ? p->k - k : S(KC);
    int64_t lines = p->bn == 1 ? deep : wide;
    return (struct S(ahead)){b + k * p->bk + j * p->bn, lines, (lines + tiles - 1) / tiles, p->bn == 1 ? p->bk : p->bn,
                             p->bn == 1 ? wide : deep};
}

// Inline, since GCC removes calls that only prefetch.
INLINE void S(fetch_share)(struct S(ahead) *next) {
    for (int64_t i = 0; i < next->share && next->lines > 0; i++, next->lines--, next->at += next->stride)
        S(fetch)(next->at, next->length);
}

// A product of one thread.
static void S(gemm_block)(const struct S(product) *p, int64_t m, int64_t n, const T *a, const T *b, T *c, const T *bias) {
    int wide = m <= 2, mr = wide ? 1 : S(MR), nr = wide ? 8 * N : S(NR);
    // A and B are used in place, not packed, when they are used too little to repay a copy; B's rows must be dense.
    int pack_b = p->bn != 1 || (m > 4 * S(MR) && n > S(NR)), pack_a = !wide && n > 4 * S(NR);
    int ahead = pack_b && m > 4 * S(MR);
    // Rows that are read in place, of an A larger than the second cache: the next tile's are fetched while one is used.
    int fetch_a = !pack_a && !wide && p->ak == 1 && m * p->k * (int64_t)sizeof(T) > 2 << 20;
    T *packed = NULL;
    if ((pack_b || pack_a) && !(packed = scratch_take(((int64_t)S(MC) + S(NC)) * S(KC) * sizeof(T)))) return;
    T *pa = packed, *pb = packed + S(MC) * S(KC);
    for (int64_t j0 = 0; j0 < n; j0 += S(NC)) {
        int64_t nc = n - j0 < S(NC) ? n - j0 : S(NC);
        for (int64_t k0 = 0; k0 < p->k || k0 == 0; k0 += S(KC)) {
            int64_t kc = p->k - k0 < S(KC) ? p->k - k0 : S(KC);
            int first = k0 == 0 && !p->accumulate;
            const T *row_bias = k0 + S(KC) >= p->k ? bias : NULL;
            for (int64_t i0 = 0; i0 < m; i0 += S(MC)) {
                int64_t mc = m - i0 < S(MC) ? m - i0 : S(MC);
                if (pack_a)
                    for (int64_t i = 0; i < mc; i += mr)
                        S(pack)(pa + i * kc, mr, a + (i0 + i) * p->ar + k0 * p->ak, p->ar, p->ak,
                                mc - i < mr ? mc - i : mr, kc);
                for (int64_t j = 0; j < nc; j += nr) {
                    int64_t width = nc - j < nr ? nc - j : nr;
                    int vectors = (width + N - 1) / N, tail = width - (vectors - 1) * N, bk = vectors * N;
                    const T *bj = pack_b ? pb + j * kc : b + k0 * p->bk + j0 + j;
                    if (pack_b && i0 == 0)
                        S(pack)(pb + j * kc, bk, b + k0 * p->bk + (j0 + j) * p->bn, p->bn, p->bk, width, kc);
                    struct S(ahead) next = {0};
                    if (ahead && i0 == 0) next = S(next_panel)(p, b, n, j0, j0 + j, k0, (mc + mr - 1) / mr);
                    for (int64_t i = 0; i < mc; i += mr) {
                        int rows = mc - i < mr ? mc - i : mr;
                        S(fetch_share)(&next);
                        const T *ai = pack_a ? pa + i * kc : a + (i0 + i) * p->ar + k0 * p->ak;
                        if (fetch_a && j == 0 && i0 + i + 2 * mr <= m)
                            for (int r = 0; r < mr; r++) S(fetch)(ai + (mr + r) * p->ar, kc);
                        S(tile_fn) tile = wide ? S(wide_tiles)[vectors - 1] : S(tiles)[vectors - 1][rows];
                        if (!wide && rows == S(MR) && width == S(NR)) {
                            if (pack_a || p->ar == 1) tile = S(tile_neighbours);
                            else if (p->ak == 1) tile = S(tile_dense);
                        }
                        tile(kc, ai, pack_a ? 1 : p->ar, pack_a ? mr : p->ak, bj, pack_b ? bk : p->bk,
                             c + (i0 + i) * p->ldc + j0 + j, p->ldc, tail, pack_b, first,
                             row_bias ? row_bias + j0 + j : NULL);
                    }
                }
            }
        }
    }
    if (packed) scratch_give(packed);
}

#include "gemm_few.h"

static void S(gemm_part)(void *ctx, int64_t t) {
    const struct S(product) *p = ctx;
    int64_t j = t % p->column_parts * p->columns, i = t / p->column_parts % p->row_parts * p->rows;
    int64_t batch = t / p->column_parts / p->row_parts;
    int64_t m = p->m - i < p->rows ? p->m - i : p->rows, n = p->n - j < p->columns ? p->n - j : p->columns;
    (p->few ? S(gemm_few) : S(gemm_block))(p, m, n, p->a + batch * p->sa + i * p->ar, p->b + batch * p->sb + j * p->bn,
                  p->c + batch * p->sc + i * p->ldc + j, p->bias ? p->bias + j : NULL);
}

static void S(gemm)(int ta, int tb, int64_t m, int64_t n, int64_t k, const T *a, int64_t lda, const T *b, int64_t ldb,
                    T *c, int64_t ldc, const T *bias, int accumulate, int64_t batch, int64_t sa, int64_t sb, int64_t sc) {
    if (m == 0 || n == 0 || batch == 0) return;
    struct S(product) p = {m, n, k, ta ? 1 : lda, ta ? lda : 1, tb ? 1 : ldb, tb ? ldb : 1, ldc,
                           a, b, bias, c, accumulate, 0, sa, sb, sc, m, n, 1, 1};
    // One column is one row of the transposed product: its vectors then run along m.
    if (n == 1 && ldc == 1 && !bias && m > 1) {
        struct S(product) q = {1, m, k, p.bn, p.bk, p.ak, p.ar, m, b, a, NULL, c, accumulate, 0, sb, sa, sc, 1, m, 1, 1};
        p = q;
    }
    p.few = S(few_rows)(&p);
    // Each thread computes a product of its own: cut whichever side is longer until there is work for all.
    int64_t threads = drun_threads(), work = p.m * p.n * (k + 1);
    if (threads > 1 && work * batch > 1 << 18)
        while (p.row_parts * p.column_parts * batch < 2 * threads && p.rows * p.columns * (k + 1) > 1 << 17) {
            if (p.rows >= p.columns && p.rows > 2 * S(MR)) p.rows = (p.rows / 2 + S(MR) - 1) / S(MR) * S(MR);
            else if (p.columns > 2 * S(NR)) p.columns = (p.columns / 2 + S(NR) - 1) / S(NR) * S(NR);
            else break;
            p.row_parts = (p.m + p.rows - 1) / p.rows;
            p.column_parts = (p.n + p.columns - 1) / p.columns;
        }
    if (work * batch <= 1 << 18)
        for (int64_t t = 0; t < batch; t++) S(gemm_part)(&p, t);
    else
        parallel_for(p.row_parts * p.column_parts * batch, S(gemm_part), &p);
}
