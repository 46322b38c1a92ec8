// Reductions without a rounding: integers (sums into int64), any and all, positions, prefix sums.

// for (o over outer and inner) with x running along the reduced dimension.
#define EACH_LINE(type, ...)                                                            \
    for (int64_t l = 0; l < outer * inner; l++) {                                       \
        const type *x = (const type *)a + l / inner * n * inner + l % inner;            \
        __VA_ARGS__                                                                     \
    }

#define INT_REDUCE(suffix, type)                                                                              \
    static void reduce_##suffix(int op, int64_t outer, int64_t n, int64_t inner, void *o, const void *a) {    \
        switch (op) {                                                                                         \
        case RSUM:                                                                                            \
            EACH_LINE(type, {                                                                                 \
                uint64_t s = 0;                                                                               \
                if (inner == 1) for (int64_t i = 0; i < n; i++) s += (uint64_t)x[i];                          \
                else for (int64_t i = 0; i < n; i++) s += (uint64_t)x[i * inner];                             \
                ((int64_t *)o)[l] = (int64_t)s;                                                               \
            }) break;                                                                                         \
        case RPROD:                                                                                           \
            EACH_LINE(type, {                                                                                 \
                uint64_t s = 1;                                                                               \
                for (int64_t i = 0; i < n; i++) s *= (uint64_t)x[i * inner];                                  \
                ((int64_t *)o)[l] = (int64_t)s;                                                               \
            }) break;                                                                                         \
        case RMIN:                                                                                            \
            EACH_LINE(type, {                                                                                 \
                type s = x[0];                                                                                \
                for (int64_t i = 1; i < n; i++) s = x[i * inner] < s ? x[i * inner] : s;                      \
                ((type *)o)[l] = s;                                                                           \
            }) break;                                                                                         \
        case RMAX:                                                                                            \
            EACH_LINE(type, {                                                                                 \
                type s = x[0];                                                                                \
                for (int64_t i = 1; i < n; i++) s = x[i * inner] > s ? x[i * inner] : s;                      \
                ((type *)o)[l] = s;                                                                           \
            }) break;                                                                                         \
        }                                                                                                     \
    }
INT_REDUCE(i64, int64_t)
INT_REDUCE(i32, int32_t)
INT_REDUCE(i8, int8_t)
INT_REDUCE(u8, uint8_t)

#define TRUTH(suffix, type)                                                                                   \
    static void truth_##suffix(int all, int64_t outer, int64_t n, int64_t inner, uint8_t *o, const void *a) { \
        EACH_LINE(type, {                                                                                     \
            int64_t i = 0;                                                                                    \
            while (i < n && (x[i * inner] != 0) == all) i++;                                                  \
            o[l] = (i == n) == all;                                                                           \
        })                                                                                                    \
    }                                                                                                         \
    /* The first position of the extreme value; a NaN counts as more extreme than any number. */              \
    static void arg_reduce_##suffix(int op, int64_t outer, int64_t n, int64_t inner, int64_t *index,          \
                                    const void *a) {                                                          \
        EACH_LINE(type, {                                                                                     \
            int64_t at = 0;                                                                                   \
            type best = x[0];                                                                                 \
            for (int64_t i = 1; i < n && best == best; i++) {                                                 \
                type y = x[i * inner];                                                                        \
                if ((op == RMAX ? y > best : y < best) || y != y) best = y, at = i;                           \
            }                                                                                                 \
            index[l] = at;                                                                                    \
        })                                                                                                    \
    }
TRUTH(f32, float)
TRUTH(f64, double)
TRUTH(i64, int64_t)
TRUTH(i32, int32_t)
TRUTH(i8, int8_t)
TRUTH(u8, uint8_t)

#define BY_TYPE(name, ...)                                  \
    switch (dt) {                                           \
    case F32: name##_f32(__VA_ARGS__); break;               \
    case F64: name##_f64(__VA_ARGS__); break;               \
    case I64: name##_i64(__VA_ARGS__); break;               \
    case I32: name##_i32(__VA_ARGS__); break;               \
    case I8: name##_i8(__VA_ARGS__); break;                 \
    default: name##_u8(__VA_ARGS__);                        \
    }

static void k_reduce(int op, int dt, int64_t outer, int64_t n, int64_t inner, void *o, const void *a) {
    if (op == RANY || op == RALL) BY_TYPE(truth, op == RALL, outer, n, inner, o, a)
    else BY_TYPE(reduce, op, outer, n, inner, o, a)
}

static void k_arg_reduce(int op, int dt, int64_t outer, int64_t n, int64_t inner, int64_t *index, const void *a) {
    BY_TYPE(arg_reduce, op, outer, n, inner, index, a)
}

// Running sums and products.
#define CUMULATE(name, suffix, type, first, op)                                                           \
    static void name##_##suffix(int64_t outer, int64_t n, int64_t inner, void *o_, const void *a_) {      \
        for (int64_t p = 0; p < outer; p++)                                                               \
            for (int64_t k = 0; k < n; k++) {                                                             \
                type *o = (type *)o_ + (p * n + k) * inner;                                               \
                const type *a = (const type *)a_ + (p * n + k) * inner;                                   \
                for (int64_t i = 0; i < inner; i++) {                                                     \
                    type x = k ? o[i - inner] : first;                                                    \
                    type y = x op a[i];                                                                   \
                    o[i] = y == y ? y : (type)__builtin_nan("");                                          \
                }                                                                                         \
            }                                                                                             \
    }
// Integers go into int64.
#define INT_CUMULATE(name, suffix, type, first, op)                                                       \
    static void name##_##suffix(int64_t outer, int64_t n, int64_t inner, void *o_, const void *a_) {      \
        for (int64_t l = 0; l < outer * inner; l++) {                                                     \
            uint64_t s = first;                                                                           \
            for (int64_t k = 0; k < n; k++) {                                                             \
                int64_t i = (l / inner * n + k) * inner + l % inner;                                      \
                s = s op (uint64_t)((const type *)a_)[i];                                                 \
                ((int64_t *)o_)[i] = (int64_t)s;                                                          \
            }                                                                                             \
        }                                                                                                 \
    }
#define CUMULATES(name, first, op)                                                                        \
    CUMULATE(name, f32, float, first, op)                                                                 \
    CUMULATE(name, f64, double, first, op)                                                                \
    INT_CUMULATE(name, i64, int64_t, first, op)                                                           \
    INT_CUMULATE(name, i32, int32_t, first, op)                                                           \
    INT_CUMULATE(name, i8, int8_t, first, op)                                                             \
    INT_CUMULATE(name, u8, uint8_t, first, op)
CUMULATES(cumsum, 0, +)
CUMULATES(cumprod, 1, *)

static void k_cumsum(int dt, int64_t outer, int64_t n, int64_t inner, void *o, const void *a) {
    BY_TYPE(cumsum, outer, n, inner, o, a)
}
static void k_cumprod(int dt, int64_t outer, int64_t n, int64_t inner, void *o, const void *a) {
    BY_TYPE(cumprod, outer, n, inner, o, a)
}

// dx[i] = sum over j >= i of dy[j] times the product of x[0] ... x[j] without x[i]: the product before i, times a
// sum that grows from the end, so that zeros need no division.
#define CUMPROD_GRAD(suffix, type)                                                                                 \
    static void cumprod_grad_##suffix(int64_t outer, int64_t n, int64_t inner, type *dx, const type *dy, const type *x) { \
        for (int64_t l = 0; l < outer * inner; l++) {                                                              \
            int64_t at = l / inner * n * inner + l % inner;                                                        \
            type before = 1, after = 0;                                                                            \
            for (int64_t k = 0; k < n; k++) {                                                                      \
                dx[at + k * inner] = before;                                                                       \
                before *= x[at + k * inner];                                                                       \
            }                                                                                                      \
            for (int64_t k = n - 1; k >= 0; k--) {                                                                 \
                type rest = k + 1 < n ? x[at + (k + 1) * inner] * after : 0;                                       \
                after = dy[at + k * inner] + rest;                                                                 \
                type y = dx[at + k * inner] * after;                                                               \
                dx[at + k * inner] = y == y ? y : (type)__builtin_nan("");                                         \
            }                                                                                                      \
        }                                                                                                          \
    }
CUMPROD_GRAD(f32, float)
CUMPROD_GRAD(f64, double)

#define INT_SCATTER_ADD(suffix, type)                                                                               \
    static void scatter_add_##suffix(int64_t outer, int64_t from, int64_t to, int64_t inner, type *o,               \
                                     const int64_t *index, const type *a) {                                         \
        for (int64_t p = 0; p < outer; p++)                                                                         \
            for (int64_t i = 0; i < from * inner; i++) {                                                            \
                type *at = o + (p * to + index[p * from * inner + i]) * inner + i % inner;                          \
                *at = (type)((uint64_t)*at + (uint64_t)a[p * from * inner + i]);                                    \
            }                                                                                                       \
    }
INT_SCATTER_ADD(i64, int64_t)
INT_SCATTER_ADD(i32, int32_t)
INT_SCATTER_ADD(i8, int8_t)
INT_SCATTER_ADD(u8, uint8_t)

static void k_scatter_add(int dt, int64_t outer, int64_t from, int64_t to, int64_t inner, void *o, const int64_t *index,
                          const void *a) {
    BY_TYPE(scatter_add, outer, from, to, inner, o, index, a)
}

// Integer products are a plain loop: they index and count, they do not train.
#define INT_GEMM(suffix, type)                                                                                   \
    static void gemm_##suffix(int ta, int tb, int64_t m, int64_t n, int64_t k, const type *a, int64_t lda,       \
                              const type *b, int64_t ldb, type *c, int64_t ldc, const type *bias, int accumulate, \
                              int64_t batch, int64_t sa, int64_t sb, int64_t sc) {                               \
        for (int64_t t = 0; t < batch; t++, a += sa, b += sb, c += sc)                                           \
            for (int64_t i = 0; i < m; i++)                                                                      \
                for (int64_t j = 0; j < n; j++) {                                                                \
                    uint64_t s = (accumulate ? (uint64_t)c[i * ldc + j] : 0) + (bias ? (uint64_t)bias[j] : 0);   \
                    for (int64_t l = 0; l < k; l++)                                                              \
                        s += (uint64_t)a[ta ? l * lda + i : i * lda + l] *                                       \
                             (uint64_t)b[tb ? j * ldb + l : l * ldb + j];                                        \
                    c[i * ldc + j] = (type)s;                                                                    \
                }                                                                                                \
    }
INT_GEMM(i64, int64_t)
INT_GEMM(i32, int32_t)
INT_GEMM(i8, int8_t)
INT_GEMM(u8, uint8_t)

static void k_gemm(int dt, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                   int64_t ldb, void *c, int64_t ldc, const void *bias, int accumulate, int64_t batch, int64_t sa,
                   int64_t sb, int64_t sc) {
    BY_TYPE(gemm, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, bias, accumulate, batch, sa, sb, sc)
}
