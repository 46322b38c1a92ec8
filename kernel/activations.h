// Activations with parameters a and b, and their gradients g·f'(x), over dense arrays.

INLINE V S(softplus)(V x) { return S(sel)(x > 0, x, S(set)(0)) + S(log1p)(S(exp)(-S(abs)(x))); }
// tanh(softplus(x)) = (n² + 2n) / (n² + 2n + 2) with n = e^x; both divided by n² where x is above 0.
INLINE V S(tanh_softplus)(V x) {
    V n = S(exp)(-S(abs)(x)), low = n * (n + 2), high = 1 + 2 * n;
    V y = S(sel)(x > 0, high / (high + 2 * n * n), low / (low + 2));
    return S(sel)(x == x, y, x);
}
// The inner part of GELU's approximation by tanh: √(2/π)·(x + 0.044715·x³).
INLINE V S(gelu_inner)(V x) {
    return (T)0.79788456080286535588 * S(fma)(x * x * x, S(set)((T)0.044715), x);
}

#define ACTIVATION(name, value, slope)                                                                           \
    INLINE V S(name##_value)(V x, V a, V b) { (void)a, (void)b; return value; }                                  \
    INLINE V S(name##_slope)(V x, V a, V b) { (void)a, (void)b; return slope; }
ACTIVATION(leaky, S(sel)(x > 0, x, x * a), S(sel)(x > 0, S(set)(1), a))
ACTIVATION(elu, S(sel)(x > 0, x, a * S(expm1)(x)), S(sel)(x > 0, S(set)(1), a * S(exp)(x)))
// a is beta, b the threshold above which the function is the identity.
ACTIVATION(softplus, S(sel)(x * a > b, x, S(softplus)(x * a) / a), S(sel)(x * a > b, S(set)(1), S(sigmoid)(x * a)))
ACTIVATION(mish, x * S(tanh_softplus)(x),
           S(tanh_softplus)(x) + x * S(sigmoid)(x) * (1 - S(tanh_softplus)(x) * S(tanh_softplus)(x)))
ACTIVATION(gelu_tanh, (T)0.5 * x * (1 + S(tanh)(S(gelu_inner)(x))),
           (T)0.5 * (1 + S(tanh)(S(gelu_inner)(x))) +
               (T)0.5 * x * (1 - S(tanh)(S(gelu_inner)(x)) * S(tanh)(S(gelu_inner)(x))) *
                   ((T)0.79788456080286535588 * S(fma)(x * x, S(set)((T)(3 * 0.044715)), S(set)(1))))
// Half the square up to a, then a line of slope a.
ACTIVATION(huber, S(sel)(S(abs)(x) <= a, (T)0.5 * x * x, a * (S(abs)(x) - (T)0.5 * a)),
           S(sel)(S(abs)(x) <= a, x, S(sel)(x == x, S(sign_of)(S(abs)(a), x), x)))

struct S(activation) {
    int op;
    T a, b;
    T *o;
    const T *x, *g;
};

#define ACTIVATION_LOOP(name)                                                                                    \
    for (int64_t i = from; i < to; i += N) {                                                                     \
        int k = S(some)(to - i);                                                                                 \
        V x = S(load_n)(u->x + i, k);                                                                            \
        V y = u->g ? S(load_n)(u->g + i, k) * S(name##_slope)(x, a, b) : S(name##_value)(x, a, b);               \
        S(store_n)(u->o + i, S(canon)(y), k);                                                                    \
    }                                                                                                            \
    break;
static void S(activation_range)(void *ctx, int64_t from, int64_t to) {
    const struct S(activation) *u = ctx;
    V a = S(set)(u->a), b = S(set)(u->b);
    switch (u->op) {
    case LEAKY_RELU: ACTIVATION_LOOP(leaky)
    case ELU: ACTIVATION_LOOP(elu)
    case SOFTPLUS: ACTIVATION_LOOP(softplus)
    case MISH: ACTIVATION_LOOP(mish)
    case GELU_TANH: ACTIVATION_LOOP(gelu_tanh)
    case HUBER: ACTIVATION_LOOP(huber)
    }
}

static void S(activation)(int op, int64_t n, double a, double b, T *o, const T *x, const T *g) {
    struct S(activation) u = {op, (T)a, (T)b, o, x, g};
    parallel_range(n, 16384, S(activation_range), &u);
}
