// Elementwise kernels over integers and bool (as uint8), for type TYPE; arithmetic wraps around. Division by
// zero gives 0: callers that want an error check first.
#ifndef ON_DEVICE
#define IMAP2(name, expression)                                                         \
    static void J(map_##name)(int64_t n, void *o_, const void *a_, const void *b_) {    \
        TYPE *o = o_;                                                                   \
        const TYPE *a = a_, *b = b_;                                                    \
        for (int64_t i = 0; i < n; i++) {                                               \
            TYPE x = a[i], y = b[i];                                                    \
            o[i] = (TYPE)(expression);                                                  \
        }                                                                               \
    }
#define IMAP(name, expression)                                           \
    static void J(map_##name)(int64_t n, void *o_, const void *a_) {     \
        TYPE *o = o_;                                                    \
        const TYPE *a = a_;                                              \
        for (int64_t i = 0; i < n; i++) {                                \
            TYPE x = a[i];                                               \
            o[i] = (TYPE)(expression);                                   \
        }                                                                \
    }
#endif

// Truncated division, with the one overflow (the most negative number by -1) wrapped.
INLINE TYPE J(quotient)(TYPE x, TYPE y) {
    if (y == 0) return 0;
    if (y == (TYPE)-1 && (TYPE)-1 < (TYPE)1) return (TYPE)(0 - (uint64_t)x);
    return x / y;
}
INLINE TYPE J(floordiv)(TYPE x, TYPE y) {
    TYPE q = J(quotient)(x, y);
    TYPE m = (TYPE)((uint64_t)x - (uint64_t)q * (uint64_t)y);
    return y != 0 && m != 0 && (m < 0) != (y < 0) ? q - 1 : q;
}
INLINE TYPE J(mod)(TYPE x, TYPE y) {
    return y == 0 ? 0 : (TYPE)((uint64_t)x - (uint64_t)J(floordiv)(x, y) * (uint64_t)y);
}
// By squaring; a negative exponent gives the truncated reciprocal.
INLINE TYPE J(pow)(TYPE x, TYPE y) {
    if (y < 0) return x == 1 ? 1 : x == (TYPE)-1 ? (y & 1 ? x : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (uint64_t e = (uint64_t)y; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return (TYPE)r;
}

IMAP2(add, (uint64_t)x + (uint64_t)y)
IMAP2(sub, (uint64_t)x - (uint64_t)y)
IMAP2(mul, (uint64_t)x * (uint64_t)y)
IMAP2(div, J(quotient)(x, y))
IMAP2(floordiv, J(floordiv)(x, y))
IMAP2(mod, J(mod)(x, y))
IMAP2(pow, J(pow)(x, y))
IMAP2(min, x < y ? x : y)
IMAP2(max, x > y ? x : y)
IMAP2(and, x & y)
IMAP2(or, x | y)
IMAP2(xor, x ^ y)
#ifndef ON_DEVICE
static void (*const J(binary_maps)[])(int64_t, void *, const void *, const void *) = {
    [ADD] = J(map_add),           [SUB] = J(map_sub), [MUL] = J(map_mul), [DIV] = J(map_div),
    [FLOORDIV] = J(map_floordiv), [MOD] = J(map_mod), [POW] = J(map_pow), [MIN] = J(map_min),
    [MAX] = J(map_max),           [AND] = J(map_and), [OR] = J(map_or),   [XOR] = J(map_xor),
};
#endif

IMAP(neg, 0 - (uint64_t)x)
IMAP(abs, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
IMAP(sign, (x > 0) - (x < 0))
IMAP(square, (uint64_t)x * (uint64_t)x)
IMAP(relu, x > 0 ? x : 0)
IMAP(same, x)
IMAP(not, ~(uint64_t)x)
#ifndef ON_DEVICE
static void (*const J(unary_maps)[])(int64_t, void *, const void *) = {
    [NEG] = J(map_neg),   [ABS] = J(map_abs),   [SIGN] = J(map_sign),  [SQUARE] = J(map_square),
    [RELU] = J(map_relu), [FLOOR] = J(map_same), [CEIL] = J(map_same), [ROUND] = J(map_same),
    [TRUNC] = J(map_same),    [NOT] = J(map_not),
};
#undef IMAP
#undef IMAP2
#endif
