// Updates of further optimizers over one flat buffer: RMSprop and Adagrad with PyTorch's formulas, Lion after
// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), algorithm 2.

struct S(rule) {
    T *p, *v, *m, *a;
    const T *g;
    T lr, decay, beta1, rest1, beta2, rest2, eps, momentum;
};

// v is the mean of squares; m, if any, the momentum; a, if any, the mean of gradients that centres the squares.
static void S(rmsprop_range)(void *ctx, int64_t from, int64_t to) {
    struct S(rule) *u = ctx;
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        V p = S(load_n)(u->p + i, k), g = S(load_n)(u->g + i, k);
        if (u->decay != 0) g = S(fma)(p, S(set)(u->decay), g);
        V v = S(fma)(S(load_n)(u->v + i, k), S(set)(u->beta1), g * g * u->rest1), square = v;
        S(store_n)(u->v + i, S(canon)(v), k);
        if (u->a) {
            V a = S(fma)(S(load_n)(u->a + i, k), S(set)(u->beta1), g * u->rest1);
            S(store_n)(u->a + i, S(canon)(a), k);
            square = S(fma)(-a, a, v);
        }
        V step = g / (S(sqrt)(square) + u->eps);
        if (u->m) {
            step = S(fma)(S(load_n)(u->m + i, k), S(set)(u->momentum), step);
            S(store_n)(u->m + i, S(canon)(step), k);
        }
        S(store_n)(u->p + i, S(canon)(S(fma)(step, S(set)(-u->lr), p)), k);
    }
}

static void S(rmsprop)(int64_t n, T *p, const T *g, T *v, T *m, T *a, double lr, double alpha, double eps, double decay,
                       double momentum) {
    struct S(rule) u = {.p = p, .g = g, .v = v, .m = m, .a = a, .lr = (T)lr, .beta1 = (T)alpha, .rest1 = (T)(1 - alpha),
                        .eps = (T)eps, .decay = (T)decay, .momentum = (T)momentum};
    parallel_range(n, 32768, S(rmsprop_range), &u);
}

// v is the sum of squares; lr is the rate of this step.
static void S(adagrad_range)(void *ctx, int64_t from, int64_t to) {
    struct S(rule) *u = ctx;
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        V p = S(load_n)(u->p + i, k), g = S(load_n)(u->g + i, k);
        if (u->decay != 0) g = S(fma)(p, S(set)(u->decay), g);
        V v = S(fma)(g, g, S(load_n)(u->v + i, k));
        S(store_n)(u->v + i, S(canon)(v), k);
        S(store_n)(u->p + i, S(canon)(S(fma)(g / (S(sqrt)(v) + u->eps), S(set)(-u->lr), p)), k);
    }
}

static void S(adagrad)(int64_t n, T *p, const T *g, T *v, double lr, double eps, double decay) {
    struct S(rule) u = {.p = p, .g = g, .v = v, .lr = (T)lr, .eps = (T)eps, .decay = (T)decay};
    parallel_range(n, 32768, S(adagrad_range), &u);
}

// decay is lr · weight_decay: the weights decay apart from the gradient.
static void S(lion_range)(void *ctx, int64_t from, int64_t to) {
    struct S(rule) *u = ctx;
    for (int64_t i = from; i < to; i += N) {
        int k = S(some)(to - i);
        V p = S(load_n)(u->p + i, k), g = S(load_n)(u->g + i, k), m = S(load_n)(u->m + i, k);
        if (u->decay != 0) p = S(fma)(p, S(set)(-u->decay), p);
        V c = S(fma)(m, S(set)(u->beta1), g * u->rest1);
        S(store_n)(u->m + i, S(canon)(S(fma)(m, S(set)(u->beta2), g * u->rest2)), k);
        S(store_n)(u->p + i, S(canon)(S(fma)(S(sign)(c), S(set)(-u->lr), p)), k);
    }
}

static void S(lion)(int64_t n, T *p, const T *g, T *m, double lr, double beta1, double beta2, double decay) {
    struct S(rule) u = {.p = p, .g = g, .m = m, .lr = (T)lr, .beta1 = (T)beta1, .rest1 = (T)(1 - beta1), .beta2 = (T)beta2,
                        .rest2 = (T)(1 - beta2), .decay = (T)(lr * decay)};
    parallel_range(n, 32768, S(lion_range), &u);
}
