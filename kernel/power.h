// x^y. Whole exponents up to 64 multiply (so 3^2 is 9), others are e^(y ln |x|) with C's special cases; float
// goes through double.

static double power_f64(double x, double y) {
    if (y == 0 || x == 1) return 1;
    int64_t whole = y >= -0x1p62 && y <= 0x1p62 ? (int64_t)y : 2;
    int is_whole = (double)whole == y || __builtin_fabs(y) > 0x1p62;
    if (is_whole && whole >= -64 && whole <= 64 && __builtin_fabs(y) <= 64) {
        double r = 1;
        for (int64_t e = whole < 0 ? -whole : whole; e; e >>= 1, x *= x)
            if (e & 1) r *= x;
        return whole < 0 ? 1 / r : r;
    }
    if (y == 0.5) return x == 0 ? 0 : x == -INFINITY ? INFINITY : sqrt_f64(set_f64(x))[0];
    if (__builtin_fabs(x) == 1 && __builtin_isinf(y)) return 1;
    if (x < 0 && !is_whole && !__builtin_isinf(x)) return __builtin_nan("");
    double r = exp_f64(log_f64(set_f64(__builtin_fabs(x))) * y)[0];
    return x < 0 && is_whole && whole & 1 ? -r : r;
}

static void map_pow_f64(int64_t n, void *o_, const void *a_, const void *b_) {
    double *o = o_;
    const double *a = a_, *b = b_;
    for (int64_t i = 0; i < n; i++) {
        double r = power_f64(a[i], b[i]);
        o[i] = r == r ? r : __builtin_nan("");
    }
}

static void map_pow_f32(int64_t n, void *o_, const void *a_, const void *b_) {
    float *o = o_;
    const float *a = a_, *b = b_;
    for (int64_t i = 0; i < n; i++) {
        double r = power_f64(a[i], b[i]);
        o[i] = r == r ? (float)r : __builtin_nanf("");
    }
}
