// Tangent and the inverse trigonometric functions, in double; float goes through double.

// fdlibm's method: |x| is moved by an angle whose tangent is 0, 1/2, 1, 3/2 or infinite to at most 7/16.
INLINE vf64 atan_f64(vf64 x) {
    vf64 a = abs_f64(x), one = set_f64(1);
    vi64 half = a >= 0.4375, unit = a >= 0.6875, more = a >= 1.1875, far = a >= 2.4375;
    vf64 over = sel_f64(half, 2.0 * a - 1.0, a), under = sel_f64(half, 2.0 + a, one);
    over = sel_f64(unit, a - 1.0, over), under = sel_f64(unit, a + 1.0, under);
    over = sel_f64(more, a - 1.5, over), under = sel_f64(more, fma_f64(a, set_f64(1.5), one), under);
    over = sel_f64(far, -one, over), under = sel_f64(far, a, under);
    vf64 high = sel_f64(half, set_f64(4.63647609000806093515e-01), set_f64(0)), low = sel_f64(half, set_f64(2.26987774529616870924e-17), set_f64(0));
    high = sel_f64(unit, set_f64(7.85398163397448278999e-01), high), low = sel_f64(unit, set_f64(3.06161699786838301793e-17), low);
    high = sel_f64(more, set_f64(9.82793723247329054082e-01), high), low = sel_f64(more, set_f64(1.39033110312309984516e-17), low);
    high = sel_f64(far, set_f64(1.57079632679489655800e+00), high), low = sel_f64(far, set_f64(6.12323399573676603587e-17), low);
    vf64 t = over / under, z = t * t;
    vf64 p = POLY(z, 1.62858201153657823623e-02, -3.65315727442169155270e-02, 4.97687799461593236017e-02, -5.83357013379057348645e-02,
                  6.66107313738753120669e-02, -7.69187620504482999495e-02, 9.09088713343650656196e-02, -1.11111104054623557880e-01,
                  1.42857142725034663711e-01, -1.99999999998764832476e-01, 3.33333333333329318027e-01);
    return sign_of_f64(high - (fma_f64(t * z, p, -low) - t), x);
}

INLINE vf64 tan_f64(vf64 x) { return sine_f64(x, 0) / sine_f64(x, 1); }
INLINE vf64 asin_f64(vf64 x) { return atan_f64(x / sqrt_f64(fma_f64(-x, x, set_f64(1)))); }
INLINE vf64 acos_f64(vf64 x) { return 2.0 * atan_f64(sqrt_f64((1.0 - x) / (1.0 + x))); }

// The angle of the point (x, y), with C's values at zeros and infinities.
INLINE vf64 atan2_f64(vf64 y, vf64 x) {
    vf64 a = abs_f64(x), b = abs_f64(y), inf = set_f64(__builtin_inf());
    vf64 ratio = sel_f64((b == 0.0) & (a == 0.0), set_f64(0), sel_f64((b == inf) & (a == inf), set_f64(1), b / a));
    vf64 r = atan_f64(ratio);
    r = sel_f64(as_vf64(as_vi64(x) >> 63) == 0.0, r, 3.14159265358979311600e+00 - (r - 1.22464679914735317720e-16));
    return sign_of_f64(r, y);
}

#ifndef ARCS
#define ARC(name, s, type)                                                                \
    static void map_##name##_##s(int64_t n, void *o_, const void *a_) {                   \
        enum { LANES = VB / 8 };                                                          \
        type *o = o_;                                                                     \
        const type *a = a_;                                                               \
        for (int64_t i = 0; i < n; i += LANES) {                                          \
            int k = n - i < LANES ? (int)(n - i) : LANES;                                 \
            double x[LANES] = {0};                                                        \
            for (int l = 0; l < k; l++) x[l] = a[i + l];                                  \
            store_f64(x, canon_f64(name##_f64(load_f64(x))));                             \
            for (int l = 0; l < k; l++) o[i + l] = (type)x[l];                            \
        }                                                                                 \
    }
#define ARCS(name) ARC(name, f32, float) ARC(name, f64, double)
#endif
ARCS(tan)
ARCS(asin)
ARCS(acos)
ARCS(atan)

#ifndef ATAN2_ARC
#define ATAN2_ARC(s, type)                                                                    \
    static void map_atan2_##s(int64_t n, void *o_, const void *a_, const void *b_) {      \
        enum { LANES = VB / 8 };                                                          \
        type *o = o_;                                                                     \
        const type *a = a_, *b = b_;                                                      \
        for (int64_t i = 0; i < n; i += LANES) {                                          \
            int k = n - i < LANES ? (int)(n - i) : LANES;                                 \
            double y[LANES] = {0}, x[LANES] = {0};                                        \
            for (int l = 0; l < k; l++) y[l] = a[i + l], x[l] = b[i + l];                 \
            store_f64(x, canon_f64(atan2_f64(load_f64(y), load_f64(x))));                 \
            for (int l = 0; l < k; l++) o[i + l] = (type)x[l];                            \
        }                                                                                 \
    }
#endif
ATAN2_ARC(f32, float)
ATAN2_ARC(f64, double)
