// Elementary functions of double vectors; see math32.h.

#ifndef POLY
INLINE vf64 poly_f64(vf64 x, int n, const double *c) {
    vf64 p = set_f64(c[0]);
    for (int i = 1; i < n; i++) p = fma_f64(p, x, set_f64(c[i]));
    return p;
}
#define POLY(x, ...) poly_f64(x, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (const double[]){__VA_ARGS__})
#endif

INLINE vf64 exp_reduce_f64(vf64 x, vi64 *n) {
    vf64 magic = set_f64(0x1.8p52);
    vf64 t = fma_f64(x, set_f64(1.4426950408889634), magic);
    *n = as_vi64(as_vu64(t) - as_vu64(magic));
    t -= magic;
    vf64 r = fma_f64(t, set_f64(-6.93147180369123816490e-01), x);
    return fma_f64(t, set_f64(-1.90821492927058770002e-10), r);
}

// e^r - 1 - r over r^2: the Taylor series, whose tail is below 2^-57 here.
INLINE vf64 exp_tail_f64(vf64 r) {
    return POLY(r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
}

INLINE vf64 exp_f64(vf64 x) {
    vi64 n;
    vf64 r = exp_reduce_f64(clamp_f64(x, -746.0, 710.0), &n);
    vf64 p = fma_f64(exp_tail_f64(r) * r, r, r) + 1.0;
    return ldexp_f64(p, n);
}

INLINE vf64 expm1_f64(vf64 x) {
    vi64 n;
    vf64 r = exp_reduce_f64(clamp_f64(x, -60.0, 710.0), &n);
    vf64 p = fma_f64(exp_tail_f64(r) * r, r, r), one = set_f64(1.0);
    vf64 scale = ldexp_f64(one, n - 1);
    vf64 y = fma_f64(scale, p, scale - 0.5) * 2.0;
    return sel_f64(x == 0.0, x, y);
}

// fdlibm's method: x = 2^e m with m in [sqrt(1/2), sqrt(2)), s = f / (2 + f), a polynomial in s^2.
INLINE vf64 log_f64(vf64 x) {
    vi64 tiny = (x < 0x1p-1022) & (x > 0.0);
    vf64 a = sel_f64(tiny, x * 0x1p54, x);
    vi64 e = as_vi64(as_vu64(a) - 0x3fe6a09e667f3bcd) & (int64_t)0xfff0000000000000;
    vf64 f = as_vf64(as_vu64(a) - as_vu64(e)) - 1.0;
    // e >> 52 lies in +-2200: adding it to 1.5 * 2^52 converts it exactly.
    vf64 k = as_vf64((e >> 52) + 0x4338000000000000) - 0x1.8p52 - sel_f64(tiny, set_f64(54.0), set_f64(0));
    vf64 s = f / (f + 2.0), z = s * s, half = 0.5 * f * f;
    vf64 r = z * POLY(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                      2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                      6.666666666666735130e-01);
    vf64 low = fma_f64(s, half + r, k * 1.90821492927058770002e-10);
    vf64 y = fma_f64(k, set_f64(6.93147180369123816490e-01), f - (half - low));
    y = sel_f64(x < __builtin_inf(), y, x + x);
    y = sel_f64(x < 0.0, set_f64(__builtin_nan("")), y);
    return sel_f64(x == 0.0, set_f64(-__builtin_inf()), y);
}

INLINE vf64 tanh_f64(vf64 x) {
    vf64 t = expm1_f64(abs_f64(x) * -2.0);
    vf64 y = sign_of_f64(-t / (t + 2.0), x);
    return sel_f64(x == x, y, x);
}

// e^(-x^2 - 0.5625 + tail): x^2 is split so that the exponent keeps its low bits.
INLINE vf64 erfc_scale_f64(vf64 a, vf64 ratio) {
    vf64 z = as_vf64(as_vi64(a) & (int64_t)0xffffffff00000000);
    return exp_f64(-z * z - 0.5625) * exp_f64((z - a) * (z + a) + ratio) / a;
}

// fdlibm's rational approximations of erf on [0, 0.84], [0.84, 1.25], and of erfc on [1.25, 1 / 0.35] and [1 / 0.35, 28].
INLINE void erf_parts_f64(vf64 x, double most, vf64 *near, vf64 *middle, vf64 *far) {
    vf64 a = abs_f64(x), z = x * x;
    vf64 p = POLY(z, -2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02,
                  -3.25042107247001499370e-01, 1.28379167095512558561e-01);
    vf64 q = POLY(z, -3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03,
                  6.50222499887672944485e-02, 3.97917223959155352819e-01, 1.0);
    *near = p / q;

    vf64 s = a - 1.0;
    p = POLY(s, -2.16637559486879084300e-03, 3.54783043256182359371e-02, -1.10894694282396677476e-01,
             3.18346619901161753674e-01, -3.72207876035701323847e-01, 4.14856118683748331666e-01,
             -2.36211856075265944077e-03);
    q = POLY(s, 1.19844998467991074170e-02, 1.36370839120290507362e-02, 1.26171219808761642112e-01,
             7.18286544141962662868e-02, 5.40397917702171048937e-01, 1.06420880400844228286e-01, 1.0);
    *middle = p / q;

    vf64 b = sel_f64(a < most, a, set_f64(most));
    vf64 u = 1.0 / (b * b);
    p = POLY(u, -9.81432934416914548592e+00, -8.12874355063065934246e+01, -1.84605092906711035994e+02,
             -1.62396669462573470355e+02, -6.23753324503260060396e+01, -1.05586262253232909814e+01,
             -6.93858572707181764372e-01, -9.86494403484714822705e-03);
    q = POLY(u, -6.04244152148580987438e-02, 6.57024977031928170135e+00, 1.08635005541779435134e+02,
             4.29008140027567833386e+02, 6.45387271733267880336e+02, 4.34565877475229228821e+02,
             1.37657754143519042600e+02, 1.96512716674392571292e+01, 1.0);
    vf64 p2 = POLY(u, -4.83519191608651397019e+02, -1.02509513161107724954e+03, -6.37566443368389627722e+02,
                   -1.60636384855821916062e+02, -1.77579549177547519889e+01, -7.99283237680523006574e-01,
                   -9.86494292470009928597e-03);
    vf64 q2 = POLY(u, -2.24409524465858183362e+01, 4.74528541206955367215e+02, 2.55305040643316442583e+03,
                   3.19985821950859553908e+03, 1.53672958608443695994e+03, 3.25792512996573918826e+02,
                   3.03380607434824582924e+01, 1.0);
    *far = erfc_scale_f64(b, sel_f64(b < 1 / 0.35, p / q, p2 / q2));
}

INLINE vf64 erf_f64(vf64 x) {
    vf64 a = abs_f64(x), near, middle, far;
    erf_parts_f64(x, 6.0, &near, &middle, &far);
    vf64 high = sel_f64(a < 1.25, 8.45062911510467529297e-01 + middle, 1.0 - far);
    vf64 y = sel_f64(a < 0.84375, fma_f64(x, near, x), sign_of_f64(high, x));
    return sel_f64(x == x, y, x);
}

INLINE vf64 normal_cdf_f64(vf64 x, vf64 *e) {
    *e = exp_f64(-0.5 * x * x);
    return 0.5 * (1 + erf_f64(x * 0.70710678118654752440));
}

INLINE vf64 round_even_f64(vf64 x) {
    vf64 magic = sign_of_f64(set_f64(0x1p52), x);
    return sign_of_f64(sel_f64(abs_f64(x) < 0x1p52, (x + magic) - magic, x), x);
}

// Cephes' polynomials on [-pi/4, pi/4] after a reduction by pi/2 in three parts.
INLINE vf64 sin_quadrant_f64(vf64 x, int quadrant) {
    vf64 big = set_f64(0x1.8p52);
    vf64 t = fma_f64(x, set_f64(0.63661977236758134308), big);
    vu64 q = as_vu64(t) - as_vu64(big) + (uint64_t)quadrant;
    t -= big;
    vf64 r = fma_f64(t, set_f64(-1.57079632679489655800e+00), x);
    r = fma_f64(t, set_f64(-6.12323399573676603587e-17), r);
    r = fma_f64(t, set_f64(1.49738490485916983692e-33), r);
    r = sel_f64(x == 0.0, x, r); // -0, too
    vf64 s = r * r;
    vf64 c = POLY(s, -1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7,
                  2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2);
    c = fma_f64(c * s, s, fma_f64(s, set_f64(-0.5), set_f64(1.0)));
    vf64 p = POLY(s, 1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6,
                  -1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1);
    p = sign_of_f64(fma_f64(p * s, r, r), r); // of -0, too
    vf64 y = sel_f64((q & 1) != 0, c, p);
    y = as_vf64(as_vu64(y) ^ (((q >> 1) & 1) << 63));
    return sel_f64(abs_f64(x) < __builtin_inf(), y, x - x);
}
