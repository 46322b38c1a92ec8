// Hyperbolic functions and their inverses, powers and logarithms of 2 and 10, and functions of probability, in double;
// float goes through double.

INLINE vf64 sinh_f64(vf64 x) {
    vf64 a = abs_f64(x), t = expm1_f64(a), e = exp_f64(0.5 * a);
    return sign_of_f64(sel_f64(a < 22.0, 0.5 * (t + t / (t + 1.0)), 0.5 * e * e), x); // e^a itself may overflow
}
INLINE vf64 cosh_f64(vf64 x) {
    vf64 a = abs_f64(x), t = exp_f64(a), e = exp_f64(0.5 * a);
    return sel_f64(a < 22.0, 0.5 * t + 0.5 / t, 0.5 * e * e);
}

INLINE vf64 log1p_of_f64(vf64 x) {
    vf64 u = 1.0 + x, y = log_f64(u) + (x - (u - 1.0)) / u;
    return sel_f64(u == 1.0, x, sel_f64((x == __builtin_inf()) | (x == -1.0), log_f64(u), y));
}
INLINE vf64 asinh_f64(vf64 x) {
    vf64 a = abs_f64(x), z = a * a;
    vf64 y = sel_f64(a < 0x1p28, log1p_of_f64(a + z / (1.0 + sqrt_f64(z + 1.0))), log_f64(a) + 6.93147180559945286227e-01);
    return sign_of_f64(y, x);
}
INLINE vf64 acosh_f64(vf64 x) {
    vf64 t = x - 1.0;
    vf64 y = sel_f64(x < 0x1p28, log1p_of_f64(t + sqrt_f64(2.0 * t + t * t)), log_f64(x) + 6.93147180559945286227e-01);
    return sel_f64(x >= 1.0, y, set_f64(__builtin_nan("")));
}
INLINE vf64 atanh_f64(vf64 x) {
    vf64 a = abs_f64(x);
    return sign_of_f64(0.5 * log1p_of_f64(2.0 * a / (1.0 - a)), x);
}

INLINE vf64 exp2_f64(vf64 x) {
    vf64 a = clamp_f64(x, -1100.0, 1100.0), n = round_even_f64(a);
    vi64 i = as_vi64(as_vu64(n + 0x1.8p52) - as_vu64(set_f64(0x1.8p52)));
    vf64 r = 6.93147180559945286227e-01 * (a - n);
    return ldexp_f64(fma_f64(exp_tail_f64(r) * r, r, r) + 1.0, i);
}

// x = 2^k m with m near 1: its logarithm to another base is k·log(2) + log(m), scaled.
INLINE vf64 split_f64(vf64 x, vf64 *k) {
    vi64 tiny = (x < 0x1p-1022) & (x > 0.0);
    vf64 a = sel_f64(tiny, x * 0x1p54, x);
    vi64 e = as_vi64(as_vu64(a) - 0x3fe6a09e667f3bcd) & (int64_t)0xfff0000000000000;
    *k = as_vf64((e >> 52) + 0x4338000000000000) - 0x1.8p52 - sel_f64(tiny, set_f64(54.0), set_f64(0));
    return as_vf64(as_vu64(a) - as_vu64(e));
}
INLINE vf64 log2_f64(vf64 x) {
    vf64 k, l = log_f64(split_f64(x, &k)), y = fma_f64(l, set_f64(1.44269504088896338700e+00), k);
    return sel_f64((x > 0.0) & (x < __builtin_inf()), y, log_f64(x));
}
INLINE vf64 log10_f64(vf64 x) {
    vf64 k, l = log_f64(split_f64(x, &k));
    vf64 y = fma_f64(k, set_f64(3.01029995663611771306e-01), fma_f64(l, set_f64(4.34294481903251816668e-01), k * 3.69423907715893078616e-13));
    return sel_f64((x > 0.0) & (x < __builtin_inf()), y, log_f64(x));
}
INLINE vf64 rsqrt_f64(vf64 x) { return 1.0 / sqrt_f64(x); }

INLINE vf64 erfc_f64(vf64 x) {
    vf64 a = abs_f64(x), near, middle, far;
    erf_parts_f64(x, 28.0, &near, &middle, &far);
    vf64 y = sel_f64(x < 0.25, 1.0 - fma_f64(x, near, x), 0.5 - (x - 0.5 + x * near));
    vf64 up = 1.54937088489532470703e-01 - middle, down = 1.0 + (8.45062911510467529297e-01 + middle);
    y = sel_f64(a < 0.84375, y, sel_f64(x < 0.0, sel_f64(a < 1.25, down, 2.0 - far), sel_f64(a < 1.25, up, far)));
    y = sel_f64(x > 28.0, set_f64(0), y);
    return sel_f64(x == x, y, x);
}

// Wichura's algorithm AS 241 (1988) for the normal distribution's quantiles, of which this is one of (x + 1) / 2.
INLINE vf64 erfinv_f64(vf64 x) {
    vf64 a = abs_f64(x), q = 0.5 * x, r = 0.180625 - q * q;
    vf64 near = q * POLY(r, 2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                         1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0) /
                POLY(r, 5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                     5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0);
    vf64 t = sqrt_f64(-log_f64(0.5 * (1.0 - a))), u = t - 1.6, v = t - 5.0;
    vf64 middle = POLY(u, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
                       3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0) /
                  POLY(u, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                       6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0);
    vf64 far = POLY(v, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
                    2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0) /
               POLY(v, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
                    1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0);
    vf64 y = 0.70710678118654752440 * sel_f64(a <= 0.85, near, sign_of_f64(sel_f64(t <= 5.0, middle, far), x));
    y = sel_f64(a == 1.0, sign_of_f64(set_f64(__builtin_inf()), x), y);
    return sel_f64(a <= 1.0, y, set_f64(__builtin_nan("")));
}

// sin(πx) with the multiple of 2 taken off exactly.
INLINE vf64 sin_pi_f64(vf64 x) {
    vf64 n = round_even_f64(x), r = sine_f64(3.14159265358979311600e+00 * (x - n), 0), h = n * 0.5;
    return sel_f64(round_even_f64(h) == h, r, -r);
}
INLINE vf64 cos_pi_f64(vf64 x) {
    vf64 n = round_even_f64(x), r = sine_f64(3.14159265358979311600e+00 * (x - n), 1), h = n * 0.5;
    return sel_f64(round_even_f64(h) == h, r, -r);
}

// The functions of the gamma family are moved to a large argument by their recurrences and expanded there (Stirling);
// negative arguments are reflected.
// ln Γ from 0.5 on: Stirling's series above 10; below, down to 1.5 … 2.5 and the series of ζ(k) - 1 around the zeros 1 and 2,
// which keeps the digits that differences would lose.
INLINE vf64 lgamma_up_f64(vf64 x) {
    vf64 z = sel_f64(x > 10.0, x, set_f64(10)), r = 1.0 / z, s = r * r;
    vf64 tail = r * POLY(s, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
    vf64 far = fma_f64(z - 0.5, log_f64(z), -z) + (0.91893853320467274178 + tail);
    far = sel_f64(z > 1e15, z * (log_f64(z) - 1.0), far);
    vf64 p = set_f64(1);
    z = sel_f64(x > 10.0, set_f64(2), x);
    for (int i = 0; i < 8; i++) {
        vi64 high = z > 2.5;
        z = sel_f64(high, z - 1.0, z);
        p = sel_f64(high, p * z, p);
    }
    vi64 one = z <= 1.5;
    vf64 d = z - sel_f64(one, set_f64(1), set_f64(2));
    vf64 series = d * d *
                  POLY(d, 0x1p-28 / 28, -0x1p-27 / 27, 1.4901554828365041e-08 / 26, -2.9803503514652280e-08 / 25, 5.9608189051259479e-08 / 24,
                       -1.1921992596531107e-07 / 23, 2.3845050272773299e-07 / 22, -4.7693298678780646e-07 / 21, 9.5396203387279611e-07 / 20,
                       -1.9082127165539389e-06 / 19, 3.8172932649998398e-06 / 18, -7.6371976378997622e-06 / 17, 1.5282259408651871e-05 / 16,
                       -3.0588236307020493e-05 / 15, 6.1248135058704829e-05 / 14, -1.2271334757848915e-04 / 13, 2.4608655330804830e-04 / 12,
                       -4.9418860411946456e-04 / 11, 9.9457512781808534e-04 / 10, -2.0083928260822144e-03 / 9, 4.0773561979443394e-03 / 8,
                       -8.3492773819228268e-03 / 7, 1.7343061984449140e-02 / 6, -3.6927755143369926e-02 / 5, 8.2323233711138192e-02 / 4,
                       -2.0205690315959429e-01 / 3, 6.4493406684822644e-01 / 2);
    series += d * 4.2278433509846713939e-01; // 1 - γ
    return sel_f64(x > 10.0, far, series + sel_f64(one, -log1p_of_f64(d), log_f64(p)));
}
INLINE vf64 lgamma_f64(vf64 x) {
    vf64 a = abs_f64(x), up = lgamma_up_f64(sel_f64(x < 0.5, 1.0 - x, x));
    vf64 y = sel_f64(x < 0.5, log_f64(3.14159265358979311600e+00 / abs_f64(sin_pi_f64(x))) - up, up);
    y = sel_f64(a < 1e-17, -log_f64(a), y);
    return sel_f64((a == __builtin_inf()) | ((x <= 0.0) & (round_even_f64(x) == x)), set_f64(__builtin_inf()), sel_f64(x == x, y, x));
}
INLINE vf64 digamma_f64(vf64 x) {
    vf64 z = sel_f64(x < 0.5, 1.0 - x, x), sum = set_f64(0);
    for (int i = 0; i < 10; i++) {
        vi64 low = z < 10.0;
        sum = sel_f64(low, sum + 1.0 / z, sum);
        z = sel_f64(low, z + 1.0, z);
    }
    vf64 r = 1.0 / z, s = r * r;
    vf64 y = log_f64(z) - 0.5 * r - s * POLY(s, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12) - sum;
    y = sel_f64(x < 0.5, y - 3.14159265358979311600e+00 * (cos_pi_f64(x) / sin_pi_f64(x)), y);
    y = sel_f64((x < 0.0) & (round_even_f64(x) == x), set_f64(__builtin_nan("")), y);
    return sel_f64(x == 0.0, sign_of_f64(set_f64(__builtin_inf()), -x), sel_f64(x == __builtin_inf(), x, y));
}
INLINE vf64 trigamma_f64(vf64 x) {
    vf64 z = sel_f64(x < 0.5, 1.0 - x, x), sum = set_f64(0);
    for (int i = 0; i < 10; i++) {
        vi64 low = z < 10.0;
        sum = sel_f64(low, sum + 1.0 / (z * z), sum);
        z = sel_f64(low, z + 1.0, z);
    }
    vf64 r = 1.0 / z, s = r * r, pi = 3.14159265358979311600e+00 / sin_pi_f64(x);
    vf64 y = r + 0.5 * s + r * s * POLY(s, 7.0 / 6, -691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6) + sum;
    return sel_f64(x == 0.0, set_f64(__builtin_inf()), sel_f64(x < 0.5, pi * pi - y, y));
}

ARCS(sinh)
ARCS(cosh)
ARCS(asinh)
ARCS(acosh)
ARCS(atanh)
ARCS(exp2)
ARCS(log2)
ARCS(log10)
ARCS(rsqrt)
ARCS(erfc)
ARCS(erfinv)
ARCS(lgamma)
ARCS(digamma)
ARCS(trigamma)
