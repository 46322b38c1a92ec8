// Elementary functions of float vectors. Each is a fixed sequence of IEEE operations, so a lane's result is
// the same on every path. Errors are given in ULP in doc.go and tested.

// x = n ln 2 + r with |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the
// low bits. ln 2 is split in two so that n times its head is exact.
INLINE vf32 exp_reduce_f32(vf32 x, vi32 *n) {
    vf32 magic = set_f32(12582912.0f);
    vf32 t = fma_f32(x, set_f32(1.44269504f), magic);
    *n = as_vi32(as_vu32(t) - as_vu32(magic));
    t -= magic;
    vf32 r = fma_f32(t, set_f32(-6.93145752e-1f), x);
    return fma_f32(t, set_f32(-1.42860677e-6f), r);
}

// e^r - 1 - r over r^2, a minimax polynomial on [-ln 2 / 2, ln 2 / 2].
INLINE vf32 exp_tail_f32(vf32 r) {
    vf32 p = set_f32(1.37805939e-3f);
    p = fma_f32(p, r, set_f32(8.37312452e-3f));
    p = fma_f32(p, r, set_f32(4.16695364e-2f));
    p = fma_f32(p, r, set_f32(1.66664720e-1f));
    return fma_f32(p, r, set_f32(4.99999851e-1f));
}

// Beyond the limits the result is 0 or infinity; clamping keeps n in range.
INLINE vf32 exp_f32(vf32 x) {
    vi32 n;
    vf32 r = exp_reduce_f32(clamp_f32(x, -105.0f, 89.0f), &n);
    vf32 p = fma_f32(exp_tail_f32(r), r, set_f32(1.0f));
    p = fma_f32(p, r, set_f32(1.0f));
    return ldexp_f32(p, n);
}

INLINE vf32 expm1_f32(vf32 x) {
    vi32 n;
    vf32 r = exp_reduce_f32(clamp_f32(x, -30.0f, 89.0f), &n);
    vf32 p = fma_f32(exp_tail_f32(r) * r, r, r), one = set_f32(1.0f);
    vf32 scale = ldexp_f32(one, n - 1);
    vf32 y = fma_f32(scale, p, scale - 0.5f) * 2.0f;
    return sel_f32(x == 0.0f, x, y);
}

// After N. Juffa: x = 2^e m with m in [2/3, 4/3), log1p of m - 1 by a polynomial.
INLINE vf32 log_f32(vf32 x) {
    vi32 tiny = (x < 1.17549435e-38f) & (x > 0.0f);
    vf32 a = sel_f32(tiny, x * 8388608.0f, x);
    vi32 e = as_vi32(as_vu32(a) - 0x3f2aaaab) & (int32_t)0xff800000;
    vf32 f = as_vf32(as_vu32(a) - as_vu32(e)) - 1.0f, s = f * f;
    vf32 i = __builtin_convertvector(e, vf32) * 1.1920929e-7f + sel_f32(tiny, set_f32(-23.0f), set_f32(0));
    vf32 r = fma_f32(set_f32(-0.130310059f), s, set_f32(-0.121483520f));
    vf32 t = fma_f32(set_f32(0.140869141f), s, set_f32(0.139814854f));
    r = fma_f32(r, s, set_f32(-0.166846126f));
    t = fma_f32(t, s, set_f32(0.200120345f));
    r = fma_f32(r, s, set_f32(-0.249996200f));
    r = fma_f32(t, f, r);
    r = fma_f32(r, f, set_f32(0.333331972f));
    r = fma_f32(r, f, set_f32(-0.5f));
    r = fma_f32(r, s, f);
    r = fma_f32(i, set_f32(0.693147182f), r);
    r = sel_f32(x < __builtin_inff(), r, x + x);
    r = sel_f32(x < 0.0f, set_f32(__builtin_nanf("")), r);
    return sel_f32(x == 0.0f, set_f32(-__builtin_inff()), r);
}

// Below 0.57 an odd polynomial, above 1 - 2 / (e^2x + 1).
INLINE vf32 tanh_f32(vf32 x) {
    vf32 a = abs_f32(x), s = x * x;
    vf32 e = exp_f32(a * 2.0f);
    vf32 big = sign_of_f32(1.0f - 2.0f / (e + 1.0f), x);
    vf32 p = set_f32(1.57394409e-2f);
    p = fma_f32(p, s, set_f32(-5.23025580e-2f));
    p = fma_f32(p, s, set_f32(1.33152664e-1f));
    p = fma_f32(p, s, set_f32(-3.33327681e-1f));
    p = sign_of_f32(fma_f32(p * s, x, x), x); // of -0, too
    return sel_f32(a < 0.57f, p, sel_f32(x == x, big, x));
}

// After N. Juffa: below 475/512 an odd polynomial, above 1 - e^-q(x).
INLINE vf32 erf_f32(vf32 x) {
    vf32 t = abs_f32(x), s = x * x;
    t = sel_f32(t > 4.0f, set_f32(4.0f), t);
    vf32 s4 = t * t;
    vf32 r = fma_f32(set_f32(-1.72853470e-5f), t, set_f32(3.83197126e-4f));
    vf32 u = fma_f32(set_f32(-3.88396438e-3f), t, set_f32(2.42546219e-2f));
    r = fma_f32(r, s4, u);
    r = fma_f32(r, t, set_f32(-1.06777877e-1f));
    r = fma_f32(r, t, set_f32(-6.34846687e-1f));
    r = fma_f32(r, t, set_f32(-1.28717512e-1f));
    r = fma_f32(r, t, -t);
    vf32 big = sign_of_f32(1.0f - exp_f32(r), x);
    vf32 p = set_f32(-5.96761703e-4f);
    p = fma_f32(p, s, set_f32(4.99119423e-3f));
    p = fma_f32(p, s, set_f32(-2.67681349e-2f));
    p = fma_f32(p, s, set_f32(1.12819925e-1f));
    p = fma_f32(p, s, set_f32(-3.76125336e-1f));
    p = fma_f32(p, s, set_f32(1.28379166e-1f));
    p = fma_f32(p, x, x);
    return sel_f32(t > 0.927734375f, big, sel_f32(x == x, p, x));
}

// The normal distribution's cumulative function, and in *e exp(-x^2 / 2). Of -|x| it is that times Mills' ratio (over
// the root of 2 pi), here a minimax polynomial on [0, 5.5]; what lies beyond is too small for its error to matter, and
// nothing is left below -13.
INLINE vf32 normal_cdf_f32(vf32 x, vf32 *e) {
    vf32 a = abs_f32(x);
    vi32 far = a > 13.0f;
    a = sel_f32(far, set_f32(13.0f), a);
    vi32 n;
    vf32 r = exp_reduce_f32(-0.5f * a * a, &n);
    vf32 p = fma_f32(exp_tail_f32(r), r, set_f32(1.0f));
    p = fma_f32(p, r, set_f32(1.0f));
    p = sel_f32(far, set_f32(0), p * as_vf32(as_vu32(n + 127) << 23));
    *e = p;
    a = sel_f32(a > 5.5f, set_f32(5.5f), a);
    vf32 m = set_f32(-4.875365001e-9f);
    m = fma_f32(m, a, set_f32(1.718501039e-7f));
    m = fma_f32(m, a, set_f32(-2.739701813e-6f));
    m = fma_f32(m, a, set_f32(2.634836346e-5f));
    m = fma_f32(m, a, set_f32(-1.727720228e-4f));
    m = fma_f32(m, a, set_f32(8.331714780e-4f));
    m = fma_f32(m, a, set_f32(-3.137911903e-3f));
    m = fma_f32(m, a, set_f32(9.743791074e-3f));
    m = fma_f32(m, a, set_f32(-2.612436749e-2f));
    m = fma_f32(m, a, set_f32(6.228519604e-2f));
    m = fma_f32(m, a, set_f32(-1.329227835e-1f));
    m = fma_f32(m, a, set_f32(2.499921024e-1f));
    m = fma_f32(m, a, set_f32(-3.989419043e-1f));
    m = fma_f32(m, a, set_f32(0.5f));
    m *= p;
    return sel_f32(x > 0.0f, 1.0f - m, m);
}

INLINE vf32 round_even_f32(vf32 x) {
    vf32 magic = sign_of_f32(set_f32(8388608.0f), x);
    return sign_of_f32(sel_f32(abs_f32(x) < 8388608.0f, (x + magic) - magic, x), x);
}

// sin for quadrant 0, cos for quadrant 1: x is reduced by multiples of pi/2 in three parts.
INLINE vf32 sin_quadrant_f32(vf32 x, int quadrant) {
    vf32 big = set_f32(0x1.8p23f);
    vf32 t = fma_f32(x, set_f32(0.636619772f), big);
    vu32 q = as_vu32(t) - as_vu32(big) + (uint32_t)quadrant;
    t -= big;
    vf32 r = fma_f32(t, set_f32(-1.57079601e+00f), x);
    r = fma_f32(t, set_f32(-3.13916473e-07f), r);
    r = fma_f32(t, set_f32(-5.39030253e-15f), r);
    vf32 s = r * r;
    vf32 c = fma_f32(set_f32(2.44677067e-5f), s, set_f32(-1.38877297e-3f));
    c = fma_f32(c, s, set_f32(4.16666567e-2f));
    c = fma_f32(c, s, set_f32(-0.5f));
    c = fma_f32(c, s, set_f32(1.0f));
    vf32 p = fma_f32(set_f32(2.86567956e-6f), s, set_f32(-1.98559923e-4f));
    p = fma_f32(p, s, set_f32(8.33338592e-3f));
    p = fma_f32(p, s, set_f32(-1.66666672e-1f));
    p = sign_of_f32(fma_f32(p * s, r, r), r); // of -0, too
    vf32 y = sel_f32((q & 1) != 0, c, p);
    y = as_vf32(as_vu32(y) ^ (((q >> 1) & 1) << 31));
    return sel_f32(abs_f32(x) < __builtin_inff(), y, x - x);
}
