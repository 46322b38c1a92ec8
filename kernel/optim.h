// Optimizer updates over one flat buffer, PyTorch's formulas.

struct S(update) {
    T *p, *m, *v;
    const T *g;
    T lr, momentum, decay, beta1, beta2, rest1, rest2, eps, correction, scale;
    int nesterov, first, decoupled;
};

static void S(sgd_range)(void *ctx, int64_t from, int64_t to) {
    struct S(update) *u = ctx;
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        V p = S(load_n)(u->p + i, k), g = S(load_n)(u->g + i, k);
        g = u->decay != 0 ? S(fma)(p, S(set)(u->decay), g) : g;
        if (u->m) {
            V m = u->first ? g : S(fma)(S(load_n)(u->m + i, k), S(set)(u->momentum), g);
            S(store_n)(u->m + i, S(canon)(m), k);
            g = u->nesterov ? S(fma)(m, S(set)(u->momentum), g) : m;
        }
        S(store_n)(u->p + i, S(canon)(S(fma)(g, S(set)(-u->lr), p)), k);
    }
}

static void S(sgd)(int64_t n, T *p, const T *g, T *m, double lr, double momentum, double decay, int nesterov, int first) {
    struct S(update) u = {.p = p, .g = g, .m = m, .lr = (T)lr, .momentum = (T)momentum, .decay = (T)decay,
                          .nesterov = nesterov, .first = first};
    parallel_range(n, 32768, S(sgd_range), &u);
}

static void S(adam_range)(void *ctx, int64_t from, int64_t to) {
    struct S(update) *u = ctx;
    V beta1 = S(set)(u->beta1), beta2 = S(set)(u->beta2), rest1 = S(set)(u->rest1), rest2 = S(set)(u->rest2);
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        V p = S(load_n)(u->p + i, k), g = S(load_n)(u->g + i, k);
        if (u->decay != 0) {
            if (u->decoupled) p = S(fma)(p, S(set)(-u->decay), p);
            else g = S(fma)(p, S(set)(u->decay), g);
        }
        V m = S(fma)(S(load_n)(u->m + i, k), beta1, g * rest1);
        V v = S(fma)(S(load_n)(u->v + i, k), beta2, g * g * rest2);
        S(store_n)(u->m + i, S(canon)(m), k);
        S(store_n)(u->v + i, S(canon)(v), k);
        V d = S(fma)(S(sqrt)(v), S(set)(u->correction), S(set)(u->eps));
        S(store_n)(u->p + i, S(canon)(p - m * u->scale / d), k);
    }
}

// x^n by squaring, so that no library's pow decides the bits.
INLINE double S(whole_power)(double x, int64_t n) {
    double r = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) r *= x;
    return r;
}

static void S(adam)(int64_t n, T *p, const T *g, T *m, T *v, double lr, double beta1, double beta2, double eps,
                    double decay, int decoupled, int64_t step) {
    // What is derived from the settings is computed in double and rounded once, as PyTorch does.
    struct S(update) u = {.p = p, .g = g, .m = m, .v = v, .decay = (T)(decoupled ? lr * decay : decay), .beta1 = (T)beta1,
                          .beta2 = (T)beta2, .rest1 = (T)(1 - beta1), .rest2 = (T)(1 - beta2), .eps = (T)eps,
                          .decoupled = decoupled};
    u.scale = (T)(lr / (1 - S(whole_power)(beta1, step)));
    u.correction = (T)(1 / __builtin_sqrt(1 - S(whole_power)(beta2, step)));
    parallel_range(n, 32768, S(adam_range), &u);
}

static void S(scale_range)(void *ctx, int64_t from, int64_t to) {
    struct S(update) *u = ctx;
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        S(store_n)(u->p + i, S(canon)(S(load_n)(u->p + i, k) * u->scale), k);
    }
}

static void S(scale)(int64_t n, T *x, double by) {
    struct S(update) u = {.p = x, .scale = (T)by};
    parallel_range(n, 32768, S(scale_range), &u);
}
