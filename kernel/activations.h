// Activations with parameters a and b over dense arrays. While gradients are recorded their slopes are computed with
// them, from the same exponential, and kept instead of x: a backward pass is one multiplication.

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

// Each gives its value and sets *slope to its derivative; `with` names what both need.
#define ACTIVATION(name, with, value, derivative)                       \
    INLINE V S(name##_sloped)(V x, V a, V b, V *slope) {                \
        (void)a, (void)b;                                               \
        with;                                                           \
        *slope = derivative;                                            \
        return value;                                                   \
    }
ACTIVATION(leaky, , S(sel)(x > 0, x, x * a), S(sel)(x > 0, S(set)(1), a))
ACTIVATION(elu, , S(sel)(x > 0, x, a * S(expm1)(x)), S(sel)(x > 0, S(set)(1), a * S(exp)(x)))
// a is beta, b the threshold above which the function is the identity.
ACTIVATION(softplus, , S(sel)(x * a > b, x, S(softplus)(x * a) / a), S(sel)(x * a > b, S(set)(1), S(sigmoid)(x * a)))
ACTIVATION(mish, V t = S(tanh_softplus)(x), x * t, t + x * S(sigmoid)(x) * (1 - t * t))
ACTIVATION(gelu, V e; V c = S(normal_cdf)(x, &e), S(sel)(x == -(T)INFINITY, S(set)(0), x * c),
           S(fma)(x * (T)0.39894228040143267794, e, c))
ACTIVATION(gelu_tanh, V t = S(tanh)(S(gelu_inner)(x)), (T)0.5 * x * (1 + t),
           (T)0.5 * (1 + t) +
               (T)0.5 * x * (1 - t * t) * ((T)0.79788456080286535588 * S(fma)(x * x, S(set)((T)(3 * 0.044715)), S(set)(1))))
ACTIVATION(silu, V s = S(sigmoid)(x), S(sel)(x == -(T)INFINITY, S(set)(0), x * s), s * S(fma)(x, 1 - s, S(set)(1)))
// Half the square up to a, then a line of slope a.
ACTIVATION(huber, , S(sel)(S(abs)(x) <= a, (T)0.5 * x * x, a * (S(abs)(x) - (T)0.5 * a)),
           S(sel)(S(abs)(x) <= a, x, S(sel)(x == x, S(sign_of)(S(abs)(a), x), x)))

#ifndef ON_DEVICE
struct S(activation) {
    int op;
    T a, b;
    T *o, *slope;
    const T *x;
};

#define ACTIVATION_LOOP(name)                                                                                    \
    for (int64_t i = from; i < to; i += N) {                                                                     \
        int k = S(some)(to - i);                                                                                 \
        V slope, y = S(name##_sloped)(S(load_n)(u->x + i, k), a, b, &slope);                                     \
        S(store_n)(u->o + i, S(canon)(y), k);                                                                    \
        if (u->slope) S(store_n)(u->slope + i, S(canon)(slope), k);                                              \
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
    case GELU: ACTIVATION_LOOP(gelu)
    case GELU_TANH: ACTIVATION_LOOP(gelu_tanh)
    case SILU: ACTIVATION_LOOP(silu)
    case HUBER: ACTIVATION_LOOP(huber)
    }
}

static void S(activation)(int op, int64_t n, double a, double b, T *o, T *slope, const T *x) {
    struct S(activation) u = {op, (T)a, (T)b, o, slope, x};
    parallel_range(n, 16384, S(activation_range), &u);
}
#endif
