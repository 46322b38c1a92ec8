// x^y: the logarithm of |x| as the sum of two doubles, its product with y likewise, and e to that. Before the
// last rounding the error stays well below half an ULP, so that a power that is a double comes out exact.
// float goes through double. The special cases are C's.

struct two {
    vf64 high, low;
};

// For finite x > 0: x = 2^k m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh s with s = (m - 1) / (m + 1).
INLINE struct two log_two(vf64 x) {
    vi64 tiny = x < 0x1p-1022;
    vf64 a = sel_f64(tiny, x * 0x1p54, x);
    vi64 e = (as_vi64(a) - 0x3fe6a09e667f3bcd) & (int64_t)0xfff0000000000000;
    vf64 f = as_vf64(as_vi64(a) - e) - 1.0;
    vf64 k = as_vf64((e >> 52) + 0x4338000000000000) - 0x1.8p52 - sel_f64(tiny, set_f64(54.0), set_f64(0));
    vf64 d = f + 2.0, d_low = f - (d - 2.0), s = f / d, s_low = fma_f64(-s, d_low, fma_f64(-s, d, f)) / d;
    vf64 z = s * s, z_low = fma_f64(s, s, -z) + 2.0 * s * s_low;
    // atanh s = s + s c with c = z/3 + z^2 (1/5 + z/7 + ...), of which only the first term needs its low part.
    vf64 p = POLY(z, 1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                  1.0 / 7, 1.0 / 5);
    vf64 third = set_f64(0x1.5555555555555p-2), u = z * third, q = z * z * p;
    vf64 u_low = fma_f64(z, third, -u) + fma_f64(z, set_f64(0x1.5555555555555p-56), z_low * third);
    vf64 c = u + q, c_low = (u - c) + q + u_low;
    vf64 w = s * c, w_low = fma_f64(s, c, -w) + fma_f64(s, c_low, s_low * c);
    vf64 r = s + w, r_low = (s - r) + w + (w_low + s_low);
    vf64 kh = k * 6.93147180369123816490e-01, high = kh + 2.0 * r;
    return (struct two){high, (kh - high) + 2.0 * r + fma_f64(k, set_f64(1.90821492927058770002e-10), 2.0 * r_low)};
}

// e^(x + low), for a low that is small beside x.
INLINE vf64 exp_two(vf64 x, vf64 low) {
    low = sel_f64(abs_f64(x) < 800.0, low, set_f64(0));
    x = clamp_f64(x, -800.0, 800.0);
    vf64 magic = set_f64(0x1.8p52), t = fma_f64(x, set_f64(1.4426950408889634), magic);
    vi64 n = as_vi64(t) - as_vi64(magic);
    t -= magic;
    vf64 head = fma_f64(t, set_f64(-6.93147180369123816490e-01), x);
    low = fma_f64(t, set_f64(-1.90821492927058770002e-10), low);
    vf64 r = head + low;
    low = (head - r) + low;
    vf64 tail = fma_f64(r * r, exp_tail_f64(r), fma_f64(low, r, low)), sum = 1.0 + r;
    return ldexp_f64(sum + ((1.0 - sum) + r + tail), n);
}

INLINE vf64 power_f64(vf64 x, vf64 y) {
    vf64 inf = set_f64(__builtin_inf()), zero = set_f64(0), one = set_f64(1), a = abs_f64(x), b = abs_f64(y);
    struct two l = log_two(sel_f64((a > 0.0) & (a < inf), a, one));
    vf64 exponent = sel_f64(b < inf, y, one), high = exponent * l.high;
    vf64 r = exp_two(high, fma_f64(exponent, l.high, -high) + exponent * l.low);
    r = sel_f64(a == 0.0, sel_f64(y < 0.0, inf, zero), r);
    r = sel_f64(a == inf, sel_f64(y < 0.0, zero, inf), r);
    r = sel_f64(b == inf, sel_f64(a == 1.0, one, sel_f64((a > 1.0) == (y > 0.0), inf, zero)), r);
    vf64 half = y * 0.5;
    vi64 whole = round_even_f64(y) == y, odd = whole & (round_even_f64(half) != half) & (b < inf);
    r = sel_f64(odd, as_vf64(as_vi64(r) ^ (as_vi64(x) & (int64_t)0x8000000000000000)), r);
    r = sel_f64((x < 0.0) & ~whole & (a < inf), set_f64(__builtin_nan("")), r);
    r = sel_f64((x != x) | (y != y), set_f64(__builtin_nan("")), r);
    r = sel_f64((y == 0.0) | (x == 1.0), one, r);
    return sel_f64(y == 2.0, x * x, r);
}

#ifndef POW
#define POW(s, type)                                                                \
    static void map_pow_##s(int64_t n, void *o_, const void *a_, const void *b_) {  \
        enum { LANES = VB / 8 };                                                    \
        type *o = o_;                                                               \
        const type *a = a_, *b = b_;                                                \
        for (int64_t i = 0; i < n; i += LANES) {                                    \
            int k = n - i < LANES ? (int)(n - i) : LANES, squares = 1;              \
            double x[LANES] = {0}, y[LANES] = {0};                                  \
            for (int l = 0; l < k; l++) x[l] = a[i + l], y[l] = b[i + l];           \
            for (int l = 0; l < k; l++) squares &= y[l] == 2;                       \
            vf64 v = load_f64(x);                                                   \
            store_f64(x, canon_f64(squares ? v * v : power_f64(v, load_f64(y))));   \
            for (int l = 0; l < k; l++) o[i + l] = (type)x[l];                      \
        }                                                                           \
    }
#endif
POW(f32, float)
POW(f64, double)
