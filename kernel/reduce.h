// Reductions of reals. Along a contiguous row element i goes to lane i mod 16, and the lanes are folded as a
// binary tree: the same on every path. Rows are cut at fixed places, and only there may threads split them.

enum { S(CUT) = 4096, S(L) = 16 / N };

// How many of n remaining elements the next vector takes.
INLINE int S(some)(int64_t n) { return n < N ? (int)n : N; }

// Which lanes are among the first k.
INLINE I S(among)(int k) {
    I lane;
    for (int i = 0; i < N; i++) lane[i] = i;
    return lane < (INT)k;
}

// Folds 16 lanes into the result, which every lane of x then holds: of each pair of halves the lower is x, the upper y.
#define FOLD_LANES(acc, combine)                                                             \
    for (int w = S(L) / 2; w; w /= 2)                                                        \
        for (int l = 0; l < w; l++) {                                                        \
            V x = acc[l], y = acc[l + w];                                                    \
            acc[l] = combine;                                                                \
        }                                                                                    \
    for (int w = N / 2; w; w /= 2) {                                                         \
        V x = S(low)(acc[0], acc[0]), y = S(high)(acc[0], acc[0]);                           \
        acc[0] = combine;                                                                    \
    }                                                                                        \
    return acc[0][0];

#define FOLD(name, first, combine)                                                           \
    static T S(block_##name)(int64_t n, const T *a) {                                        \
        V acc[S(L)];                                                                         \
        for (int l = 0; l < S(L); l++) acc[l] = S(set)(first);                               \
        int64_t i = 0;                                                                       \
        for (; i + 16 <= n; i += 16)                                                         \
            for (int l = 0; l < S(L); l++) {                                                 \
                V x = acc[l], y = S(load)(a + i + l * N);                                    \
                acc[l] = combine;                                                            \
            }                                                                                \
        for (int l = 0; l < S(L) && i + l * N < n; l++) {                                    \
            int k = S(some)(n - i - l * N);                                                  \
            V x = acc[l], y = S(load_n)(a + i + l * N, k);                                   \
            acc[l] = S(sel)(S(among)(k), combine, x);                                        \
        }                                                                                    \
        FOLD_LANES(acc, combine)                                                             \
    }                                                                                        \
    static void S(columns_##name)(int64_t n, int64_t stride, int64_t width, T *o, const T *a) { \
        int64_t i = 0;                                                                       \
        for (; i < width; i += 4 * N) {                                                      \
            int64_t part = width - i < 4 * N ? width - i : 4 * N;                            \
            V total[4] = {S(set)(first), S(set)(first), S(set)(first), S(set)(first)};       \
            for (int64_t k = 0; k < n; k += 256) {                                           \
                int64_t end = k + 256 < n ? k + 256 : n;                                     \
                V acc[4] = {S(set)(first), S(set)(first), S(set)(first), S(set)(first)};     \
                for (int64_t r = k; r < end; r++) {                                          \
                    const T *row = a + r * stride + i;                                       \
                    if (part == 4 * N)                                                       \
                        for (int v = 0; v < 4; v++) {                                        \
                            V x = acc[v], y = S(load)(row + v * N);                          \
                            acc[v] = combine;                                                \
                        }                                                                    \
                    else                                                                     \
                        for (int v = 0; v * N < part; v++) {                                 \
                            V x = acc[v], y = S(load_n)(row + v * N, S(some)(part - v * N)); \
                            acc[v] = combine;                                                \
                        }                                                                    \
                }                                                                            \
                for (int v = 0; v < 4; v++) {                                                \
                    V x = total[v], y = acc[v];                                              \
                    total[v] = combine;                                                      \
                }                                                                            \
            }                                                                                \
            for (int v = 0; v * N < part; v++)                                               \
                S(store_n)(o + i + v * N, S(canon)(total[v]), S(some)(part - v * N));        \
        }                                                                                    \
    }

FOLD(sum, 0, x + y)
FOLD(min, (T)INFINITY, S(min)(x, y))
FOLD(prod, 1, x * y)
FOLD(max, -(T)INFINITY, S(max)(x, y))

// The 16 lanes' sum.
static T S(fold_sum)(const V *lanes) {
    V acc[S(L)];
    for (int l = 0; l < S(L); l++) acc[l] = lanes[l];
    FOLD_LANES(acc, x + y)
}

// The sum of squares folds its lanes by adding, unlike its elements.
static T S(block_square)(int64_t n, const T *a) {
    V acc[S(L)];
    for (int l = 0; l < S(L); l++) acc[l] = S(set)(0);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < S(L); l++) {
            V y = S(load)(a + i + l * N);
            acc[l] = S(fma)(y, y, acc[l]);
        }
    for (int l = 0; l < S(L) && i + l * N < n; l++) { // absent elements are zeros, which leave a sum of squares as it is
        V y = S(load_n)(a + i + l * N, S(some)(n - i - l * N));
        acc[l] = S(fma)(y, y, acc[l]);
    }
    return S(fold_sum)(acc);
}

typedef T (*S(block_fn))(int64_t, const T *);
static double S(join)(int op, double x, double y) {
    switch (op) {
    case RMIN: return x < y || x != x ? x : y;
    case RMAX: return x > y || x != x ? x : y;
    case RPROD: return x * y;
    }
    return x + y;
}

static double S(row_part)(int op, S(block_fn) f, int64_t n, const T *a) {
    double total = f(n < S(CUT) ? n : S(CUT), a);
    for (int64_t i = S(CUT); i < n; i += S(CUT)) total = S(join)(op, total, f(n - i < S(CUT) ? n - i : S(CUT), a + i));
    return total;
}

// A long row has at most 256 parts of a length that depends on n alone.
enum { S(PARTS) = 256 };
struct S(long_row) {
    int op;
    S(block_fn) f;
    int64_t n, part;
    const T *a;
    double result[S(PARTS)];
};
static void S(run_part)(void *ctx, int64_t i) {
    struct S(long_row) *r = ctx;
    int64_t from = i * r->part, n = r->n - from < r->part ? r->n - from : r->part;
    r->result[i] = S(row_part)(r->op, r->f, n, r->a + from);
}
static double S(row)(int op, S(block_fn) f, int64_t n, const T *a) {
    if (n <= 16 * S(CUT)) return S(row_part)(op, f, n, a);
    struct S(long_row) r = {op, f, n, 0, a};
    int64_t cuts = (n + 16 * S(CUT) - 1) / (16 * S(CUT));
    r.part = (cuts + S(PARTS) - 1) / S(PARTS) * 16 * S(CUT);
    int64_t parts = (n + r.part - 1) / r.part;
    parallel_for(parts, S(run_part), &r);
    double total = r.result[0];
    for (int64_t i = 1; i < parts; i++) total = S(join)(op, total, r.result[i]);
    return total;
}

struct S(reduction) {
    int op;
    S(block_fn) block;
    void (*columns)(int64_t, int64_t, int64_t, T *, const T *);
    int64_t n, inner, tiles;
    T *o;
    const T *a;
};
enum { S(TILE) = 256 };

static T S(canon1)(double x) { return x != x ? (T)__builtin_nan("") : (T)x; }

static void S(reduce_rows)(void *ctx, int64_t from, int64_t to) {
    struct S(reduction) *r = ctx;
    for (int64_t i = from; i < to; i++)
        r->o[i] = S(canon1)(S(row_part)(r->op, r->block, r->n, r->a + i * r->n));
}
static void S(reduce_columns)(void *ctx, int64_t from, int64_t to) {
    struct S(reduction) *r = ctx;
    for (int64_t i = from; i < to; i++) {
        int64_t outer = i / r->tiles, column = i % r->tiles * S(TILE);
        int64_t width = r->inner - column < S(TILE) ? r->inner - column : S(TILE);
        r->columns(r->n, r->inner, width, r->o + outer * r->inner + column, r->a + outer * r->n * r->inner + column);
    }
}

static void S(reduce)(int op, int64_t outer, int64_t n, int64_t inner, T *o, const T *a) {
    static const struct {
        S(block_fn) block;
        void (*columns)(int64_t, int64_t, int64_t, T *, const T *);
    } kinds[] = {[RSUM] = {S(block_sum), S(columns_sum)},
                 [RMIN] = {S(block_min), S(columns_min)},
                 [RMAX] = {S(block_max), S(columns_max)},
                 [RPROD] = {S(block_prod), S(columns_prod)}};
    struct S(reduction) r = {op, kinds[op].block, kinds[op].columns, n, inner, (inner + S(TILE) - 1) / S(TILE), o, a};
    if (inner != 1) {
        int64_t tile = n * (inner < S(TILE) ? inner : S(TILE));
        parallel_range(outer * r.tiles, 1 + 32768 / (tile + 1), S(reduce_columns), &r);
    } else if (outer == 1) {
        o[0] = S(canon1)(S(row)(op, r.block, n, a));
    } else {
        parallel_range(outer, 1 + 32768 / (n + 1), S(reduce_rows), &r);
    }
}

static void S(square_sum)(int64_t n, const T *a, double *o) {
    double s = S(row)(RSUM, S(block_square), n, a);
    *o = s != s ? __builtin_nan("") : s;
}

// Adds up to + from over n elements.
static void S(add_to)(int64_t n, T *to, const T *from) {
    for (int64_t i = 0; i < n; i += N) {
        int k = S(some)(n - i);
        S(store_n)(to + i, S(canon)(S(load_n)(to + i, k) + S(load_n)(from + i, k)), k);
    }
}
