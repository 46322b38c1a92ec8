// Elementwise kernels over reals: one dense loop per operation. walk.c brings strided and broadcast operands
// into dense blocks first (entry.h).

INLINE V S(reciprocal)(V x) { return 1 / x; }
INLINE V S(neg)(V x) { return -x; }
INLINE V S(square)(V x) { return x * x; }
INLINE V S(relu)(V x) { return S(sel)(x <= 0, S(set)(0), x); }
// Through e^-|x|, which cannot overflow.
INLINE V S(sigmoid)(V x) {
    V e = S(exp)(-S(abs)(x));
    return S(sel)(x < 0, e, S(set)(1)) / (1 + e);
}
INLINE V S(silu)(V x) { return x * S(sigmoid)(x); }
INLINE V S(sin)(V x) { return S(sine)(x, 0); }
INLINE V S(cos)(V x) { return S(sine)(x, 1); }
INLINE V S(sign)(V x) { return S(sel)(x > 0, S(set)(1), S(sel)(x < 0, S(set)(-1), x)); }
INLINE V S(floor)(V x) {
    V r = S(round_even)(x);
    return S(sel)(r > x, r - 1, r);
}
INLINE V S(ceil)(V x) {
    V r = S(round_even)(x);
    return S(sel)(r < x, S(sign_of)(r + 1, x), r);
}
INLINE V S(trunc)(V x) { return S(sel)(x < 0, S(ceil)(x), S(floor)(x)); }
// log(1 + x) with the rounding of 1 + x corrected.
INLINE V S(log1p)(V x) {
    V u = 1 + x;
    V y = S(log)(u) + (x - (u - 1)) / u;
    return S(sel)(u == 1, x, S(sel)(x == (T)INFINITY, x, S(sel)(x == -1, S(set)(-(T)INFINITY), y)));
}
INLINE V S(gelu)(V x) {
    V e, y = x * S(normal_cdf)(x, &e);
    return S(sel)(x == -(T)INFINITY, S(set)(0), y);
}

INLINE V S(min)(V a, V b) { return S(sel)((a < b) | (a != a), a, b); }
INLINE V S(max)(V a, V b) { return S(sel)((a > b) | (a != a), a, b); }

#ifndef MAP
#define MAP(name, expression)                                         \
    static void S(map_##name)(int64_t n, void *o_, const void *a_) {  \
        T *o = o_;                                                    \
        const T *a = a_;                                              \
        int64_t i = 0;                                                \
        for (; i + N <= n; i += N) {                                  \
            V x = S(load)(a + i);                                     \
            S(store)(o + i, S(canon)(expression));                    \
        }                                                             \
        if (i < n) {                                                  \
            V x = S(load_n)(a + i, n - i);                            \
            S(store_n)(o + i, S(canon)(expression), n - i);           \
        }                                                             \
    }
#define MAP2(name, expression)                                                       \
    static void S(map_##name)(int64_t n, void *o_, const void *a_, const void *b_) { \
        T *o = o_;                                                                   \
        const T *a = a_, *b = b_;                                                    \
        int64_t i = 0;                                                               \
        for (; i + N <= n; i += N) {                                                 \
            V x = S(load)(a + i), y = S(load)(b + i);                                \
            S(store)(o + i, S(canon)(expression));                                   \
        }                                                                            \
        if (i < n) {                                                                 \
            V x = S(load_n)(a + i, n - i), y = S(load_n)(b + i, n - i);              \
            S(store_n)(o + i, S(canon)(expression), n - i);                          \
        }                                                                            \
    }
#endif

MAP(neg, -x)
MAP(abs, S(abs)(x))
MAP(sign, S(sign)(x))
MAP(square, x * x)
MAP(sqrt, S(sqrt)(x))
MAP(reciprocal, 1 / x)
MAP(exp, S(exp)(x))
MAP(expm1, S(expm1)(x))
MAP(log, S(log)(x))
MAP(log1p, S(log1p)(x))
MAP(tanh, S(tanh)(x))
MAP(sigmoid, S(sigmoid)(x))
MAP(erf, S(erf)(x))
MAP(sin, S(sin)(x))
MAP(cos, S(cos)(x))
MAP(relu, S(relu)(x))
MAP(gelu, S(gelu)(x))
MAP(silu, S(sel)(x == -(T)INFINITY, S(set)(0), S(silu)(x)))
MAP(floor, S(floor)(x))
MAP(ceil, S(ceil)(x))
MAP(round, S(round_even)(x))
MAP(trunc, S(trunc)(x))

#ifndef ON_DEVICE
static void (*const S(unary_maps)[])(int64_t, void *, const void *) = {
    [NEG] = S(map_neg),     [ABS] = S(map_abs),     [SIGN] = S(map_sign),       [SQUARE] = S(map_square),
    [SQRT] = S(map_sqrt),   [EXP] = S(map_exp),     [EXPM1] = S(map_expm1),     [LOG] = S(map_log),
    [LOG1P] = S(map_log1p), [TANH] = S(map_tanh),   [SIGMOID] = S(map_sigmoid), [ERF] = S(map_erf),
    [SIN] = S(map_sin),     [COS] = S(map_cos),     [RELU] = S(map_relu),       [GELU] = S(map_gelu),
    [SILU] = S(map_silu),   [FLOOR] = S(map_floor), [CEIL] = S(map_ceil),       [ROUND] = S(map_round),
    [RECIPROCAL] = S(map_reciprocal), [TAN] = S(map_tan), [ASIN] = S(map_asin), [ACOS] = S(map_acos),
    [ATAN] = S(map_atan), [SINH] = S(map_sinh), [COSH] = S(map_cosh), [ASINH] = S(map_asinh), [ACOSH] = S(map_acosh),
    [ATANH] = S(map_atanh), [EXP2] = S(map_exp2), [LOG2] = S(map_log2), [LOG10] = S(map_log10), [RSQRT] = S(map_rsqrt),
    [ERFC] = S(map_erfc), [ERFINV] = S(map_erfinv), [LGAMMA] = S(map_lgamma), [DIGAMMA] = S(map_digamma),
    [TRIGAMMA] = S(map_trigamma), [TRUNC] = S(map_trunc),
};
#endif

MAP2(add, x + y)
MAP2(sub, x - y)
MAP2(mul, x * y)
MAP2(div, x / y)
MAP2(mean, (x + y) * (T)0.5)
MAP2(min, S(min)(x, y))
MAP2(max, S(max)(x, y))

// Python's // and %: fmod is exact, and libm's is exact too, so it may be used.
#ifndef FMOD
#define FMOD(a, b) (sizeof(T) == 4 ? (T)fmodf((float)(a), (float)(b)) : (T)fmod(a, b))
#endif
INLINE T S(floordiv)(T a, T b) {
    T m = FMOD(a, b), q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1;
    if (b == 0) q = a / b;
    T f = FIRST_LANE(S(round_even)(S(set)(q)));
    if (f - q > (T)0.5) f -= 1;
    if (q - f > (T)0.5) f += 1;
    return f != f ? (T)__builtin_nan("") : f;
}
INLINE T S(mod)(T a, T b) {
    T m = FMOD(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    else if (m == 0) m = b < 0 ? -(T)0 : (T)0;
    return m != m ? (T)__builtin_nan("") : m;
}

#ifndef MAP_EACH
#define MAP_EACH(name)                                                               \
    static void S(map_##name)(int64_t n, void *o_, const void *a_, const void *b_) { \
        T *o = o_;                                                                   \
        const T *a = a_, *b = b_;                                                    \
        for (int64_t i = 0; i < n; i++) o[i] = S(name)(a[i], b[i]);                  \
    }
#endif
MAP_EACH(floordiv)
MAP_EACH(mod)

#ifndef ON_DEVICE
static void (*const S(binary_maps)[])(int64_t, void *, const void *, const void *) = {
    [ADD] = S(map_add),           [SUB] = S(map_sub), [MUL] = S(map_mul), [DIV] = S(map_div),
    [FLOORDIV] = S(map_floordiv), [MOD] = S(map_mod), [POW] = S(map_pow),       [MIN] = S(map_min),
    [MAX] = S(map_max), [ATAN2] = S(map_atan2),
};
#endif

// dx = dy f'(s), where s is what the forward saved: its input for abs, relu, log, log1p, square,
// sin, cos, asin, acos, atan and erf; its output for exp, expm1, tan, tanh, sigmoid, sqrt and reciprocal. x is dy, y is s.
MAP2(neg_grad, S(sel)(y == y, -x, -x))
MAP2(abs_grad, S(sel)(y == 0, S(set)(0), x * S(sign)(y)))
MAP2(square_grad, x * (2 * y))
MAP2(sqrt_grad, x / (2 * y))
MAP2(reciprocal_grad, -x * y * y)
MAP2(exp_grad, x * y)
MAP2(expm1_grad, x * (y + 1))
MAP2(log_grad, x / y)
MAP2(log1p_grad, x / (1 + y))
MAP2(tanh_grad, x * S(fma)(-y, y, S(set)(1)))
MAP2(sigmoid_grad, x * (y * (1 - y)))
MAP2(erf_grad, x * ((T)1.12837916709551257390 * S(exp)(-y * y)))
MAP2(sin_grad, x * S(cos)(y))
MAP2(cos_grad, -x * S(sin)(y))
MAP2(tan_grad, x * S(fma)(y, y, S(set)(1)))
MAP2(asin_grad, x / S(sqrt)(S(fma)(-y, y, S(set)(1))))
MAP2(acos_grad, -x / S(sqrt)(S(fma)(-y, y, S(set)(1))))
MAP2(atan_grad, x / S(fma)(y, y, S(set)(1)))
MAP2(relu_grad, S(sel)(y <= 0, S(set)(0), x))

#ifndef ON_DEVICE
static void (*const S(grad_maps)[])(int64_t, void *, const void *, const void *) = {
    [NEG] = S(map_neg_grad),     [ABS] = S(map_abs_grad),
    [SQUARE] = S(map_square_grad), [SQRT] = S(map_sqrt_grad), [RECIPROCAL] = S(map_reciprocal_grad),
    [EXP] = S(map_exp_grad),     [EXPM1] = S(map_expm1_grad), [LOG] = S(map_log_grad),
    [LOG1P] = S(map_log1p_grad), [TANH] = S(map_tanh_grad),   [SIGMOID] = S(map_sigmoid_grad),
    [ERF] = S(map_erf_grad),     [SIN] = S(map_sin_grad),     [COS] = S(map_cos_grad),
    [TAN] = S(map_tan_grad),     [ASIN] = S(map_asin_grad),   [ACOS] = S(map_acos_grad),
    [ATAN] = S(map_atan_grad),
    [RELU] = S(map_relu_grad),
};
#endif
