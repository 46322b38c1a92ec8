// The entries of a path's table: choose the typed kernel, walk the operands.

#include "integers.h"

// Elements of one dense block, and the fewest elements worth a thread of their own.
enum { BLOCK = 512, GRAIN = 32768 };

typedef void (*map1)(int64_t, void *, const void *);
typedef void (*map2)(int64_t, void *, const void *, const void *);

struct mapping {
    map1 f1;
    map2 f2;
    int out, in; // element sizes
};

// Runs a dense kernel over strided operands, block by block. A broadcast operand fills its block once.
static void map_inner(void *ctx, int64_t n, char **p, const int64_t *s) {
    const struct mapping *m = ctx;
    int two = m->f2 != NULL;
    int dense[3] = {s[0] == m->out, s[1] == m->in, !two || s[2] == m->in};
    if (dense[0] && dense[1] && dense[2]) {
        if (two) m->f2(n, p[0], p[1], p[2]);
        else m->f1(n, p[0], p[1]);
        return;
    }
    uint64_t block[3][BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t part = n - i < BLOCK ? n - i : BLOCK;
        char *q[3];
        for (int k = 0; k < 2 + two; k++) {
            q[k] = dense[k] ? p[k] + i * s[k] : (char *)block[k];
            if (k && !dense[k] && (s[k] || i == 0)) gather_elements(m->in, part, q[k], p[k] + i * s[k], s[k]);
        }
        if (two) m->f2(part, q[0], q[1], q[2]);
        else m->f1(part, q[0], q[1]);
        if (!dense[0]) scatter_elements(m->out, part, p[0] + i * s[0], s[0], q[0]);
    }
}

// The number of elements if all operands are dense in the order of the shape, else -1.
static int64_t dense_count(int nd, const int64_t *shape, const int64_t *so, const int64_t *sa, const int64_t *sb) {
    int64_t n = 1;
    for (int d = nd - 1; d >= 0; d--) {
        if (so[d] != n || sa[d] != n || sb[d] != n) return -1;
        n *= shape[d];
    }
    return n;
}

static void walk_map(struct mapping *m, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a,
                     const int64_t *sa, const void *b, const int64_t *sb) {
    if (m->f2) { // preparing a walk would take longer than adding small tensors
        int64_t n = dense_count(nd, shape, so, sa, sb);
        if (n > 0 && n <= GRAIN) {
            m->f2(n, o, a, b);
            return;
        }
    }
    struct walk w;
    walk_begin(&w, nd, shape, map_inner, m);
    walk_operand(&w, o, so, m->out);
    walk_operand(&w, a, sa, m->in);
    if (m->f2) walk_operand(&w, b, sb, m->in);
    walk_run(&w, GRAIN);
}

#define PICK(table, dt, op)                                                                                   \
    ((dt) == F32   ? table##_f32[op]                                                                          \
     : (dt) == F64 ? table##_f64[op]                                                                          \
     : (dt) == I64 ? table##_i64[op]                                                                          \
     : (dt) == I32 ? table##_i32[op]                                                                          \
     : (dt) == I8  ? table##_i8[op]                                                                           \
                   : table##_u8[op])

#define COMPARE(name, type, op)                                                                  \
    static void name(int64_t n, void *o_, const void *a_, const void *b_) {                      \
        uint8_t *o = o_;                                                                         \
        const type *a = a_, *b = b_;                                                             \
        for (int64_t i = 0; i < n; i++) o[i] = a[i] op b[i];                                     \
    }
#define COMPARES(suffix, type)                                                                    \
    COMPARE(eq_##suffix, type, ==)                                                                \
    COMPARE(ne_##suffix, type, !=)                                                                \
    COMPARE(lt_##suffix, type, <)                                                                 \
    COMPARE(le_##suffix, type, <=)                                                                \
    COMPARE(gt_##suffix, type, >)                                                                 \
    COMPARE(ge_##suffix, type, >=)                                                                \
    static const map2 compares_##suffix[] = {                                                     \
        [EQ] = eq_##suffix, [NE] = ne_##suffix, [LT] = lt_##suffix,                               \
        [LE] = le_##suffix, [GT] = gt_##suffix, [GE] = ge_##suffix};
COMPARES(f32, float)
COMPARES(f64, double)
COMPARES(i64, int64_t)
COMPARES(i32, int32_t)
COMPARES(i8, int8_t)
COMPARES(u8, uint8_t)

#define BINARY_PARAMS                                                                                          \
    int op, int dt, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a, const int64_t *sa, \
        const void *b, const int64_t *sb

static void k_binary(BINARY_PARAMS) {
    struct mapping m = {NULL, PICK(binary_maps, dt, op), dtype_size(dt), dtype_size(dt)};
    walk_map(&m, nd, shape, o, so, a, sa, b, sb);
}

static void k_compare(BINARY_PARAMS) {
    struct mapping m = {NULL, PICK(compares, dt, op), 1, dtype_size(dt)};
    walk_map(&m, nd, shape, o, so, a, sa, b, sb);
}

static void k_unary_grad(BINARY_PARAMS) {
    struct mapping m = {NULL, dt == F32 ? grad_maps_f32[op] : grad_maps_f64[op], dtype_size(dt), dtype_size(dt)};
    walk_map(&m, nd, shape, o, so, a, sa, b, sb);
}

static void not_bool(int64_t n, void *o, const void *a) {
    for (int64_t i = 0; i < n; i++) ((uint8_t *)o)[i] = !((const uint8_t *)a)[i];
}

static void k_unary(int op, int dt, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a,
                    const int64_t *sa) {
    struct mapping m = {dt == BOOL && op == NOT ? not_bool : PICK(unary_maps, dt, op), NULL, dtype_size(dt),
                        dtype_size(dt)};
    walk_map(&m, nd, shape, o, so, a, sa, NULL, NULL);
}

#include "cast.h"
#include "integer_reduce.h"
#include "random.h"
#include "ranks.h"

// Kernels over reals alone, whose parameters after dt are those of name_f32 and name_f64.
#define REAL(name, params, args)        \
    static void k_##name params {       \
        if (dt == F32) name##_f32 args; \
        else name##_f64 args;           \
    }
#define LINES int64_t outer, int64_t n, int64_t side, int64_t run
REAL(moments, (int dt, LINES, int64_t correction, void *mean, void *low, void *var, const void *a),
     (outer, n, side, run, correction, mean, low, var, a))
REAL(square_sums, (int dt, LINES, void *o, const void *a), (outer, n, side, run, o, a))
REAL(scale_lines, (int dt, LINES, void *y, const void *x, const void *mean, const void *low, const void *scale,
                   const void *gamma, const void *beta),
     (outer, n, side, run, y, x, mean, low, scale, gamma, beta))
REAL(batch_norm_grad, (int dt, int training, LINES, void *dx, void *dgamma, void *dbeta, void *sums, const void *dy,
                       const void *x, const void *mean, const void *low, const void *rstd, const void *gamma),
     (training, outer, n, side, run, dx, dgamma, dbeta, sums, dy, x, mean, low, rstd, gamma))
REAL(cumprod_grad, (int dt, int64_t outer, int64_t n, int64_t inner, void *dx, const void *dy, const void *x),
     (outer, n, inner, dx, dy, x))
REAL(square_sum, (int dt, int64_t n, const void *a, double *o), (n, a, o))
REAL(softmax, (int dt, int logarithm, int64_t rows, int64_t n, void *o, const void *x), (logarithm, rows, n, o, x))
REAL(softmax_grad, (int dt, int logarithm, int64_t rows, int64_t n, void *dx, const void *dy, const void *y),
     (logarithm, rows, n, dx, dy, y))
REAL(cross_entropy, (int dt, int64_t rows, int64_t n, void *loss, void *lse, const void *x, const int64_t *target),
     (rows, n, loss, lse, x, target))
REAL(cross_entropy_grad, (int dt, int64_t rows, int64_t n, void *dx, const void *dloss, int64_t sdloss, double scale,
                          const void *x, const void *lse, const int64_t *target),
     (rows, n, dx, dloss, sdloss, scale, x, lse, target))
REAL(layer_norm, (int dt, int64_t rows, int64_t n, double eps, void *y, void *mean, void *rstd, const void *x,
                  const void *gamma, const void *beta),
     (rows, n, eps, y, mean, rstd, x, gamma, beta))
REAL(layer_norm_grad, (int dt, int64_t rows, int64_t n, int add, void *dx, void *dgamma, void *dbeta, const void *dy,
                       const void *x, const void *gamma, const void *mean, const void *rstd),
     (rows, n, add, dx, dgamma, dbeta, dy, x, gamma, mean, rstd))
REAL(attention, (int dt, int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale, void *o,
                 void *lse, const void *q, const void *k, const void *v, const int64_t *at, const int64_t *ld),
     (causal, batch, rows, cols, d, e, scale, o, lse, q, k, v, at, ld))
REAL(attention_grad, (int dt, int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale,
                      void *dq, void *dk, void *dv, const void *dy, const void *lse, const void *q, const void *k,
                      const void *v, const int64_t *at, const int64_t *ld, const int64_t *to),
     (causal, batch, rows, cols, d, e, scale, dq, dk, dv, dy, lse, q, k, v, at, ld, to))
REAL(add_rows, (int dt, int64_t rows, int64_t n, void *o, const int64_t *index, const void *a), (rows, n, o, index, a))
REAL(conv2d, (int dt, const int64_t *g, void *y, const void *x, const void *w, const void *bias), (g, y, x, w, bias))
REAL(conv2d_max_pool, (int dt, const int64_t *g, const int64_t *pool, void *y, int32_t *index, const void *x, const void *w,
                       const void *bias),
     (g, pool, y, index, x, w, bias))
REAL(conv2d_grad_input, (int dt, const int64_t *g, void *dx, const void *dy, const int32_t *maxima, int64_t pooled, const void *w,
                         const void *bias),
     (g, dx, dy, maxima, pooled, w, bias))
REAL(conv2d_grad_weight, (int dt, const int64_t *g, void *dw, void *dbias, const void *dy, const int32_t *maxima, int64_t pooled,
                          const void *x),
     (g, dw, dbias, dy, maxima, pooled, x))
REAL(max_pool2d, (int dt, const int64_t *g, void *y, int32_t *index, const void *x), (g, y, index, x))
REAL(max_pool2d_grad, (int dt, const int64_t *g, void *dx, const void *dy, const int32_t *index), (g, dx, dy, index))
REAL(avg_pool2d, (int dt, const int64_t *g, void *y, const void *x), (g, y, x))
REAL(avg_pool2d_grad, (int dt, const int64_t *g, void *dx, const void *dy), (g, dx, dy))
REAL(sgd, (int dt, int64_t n, void *p, const void *g, void *m, double lr, double momentum, double decay, int nesterov,
           int first),
     (n, p, g, m, lr, momentum, decay, nesterov, first))
REAL(adam, (int dt, int64_t n, void *p, const void *g, void *m, void *v, double lr, double beta1, double beta2,
            double eps, double decay, int decoupled, int64_t step),
     (n, p, g, m, v, lr, beta1, beta2, eps, decay, decoupled, step))
REAL(group_norm, (int dt, int64_t rows, int64_t groups, int64_t each, int64_t run, double eps, void *y, void *mean,
                  void *rstd, const void *x, const void *gamma, const void *beta),
     (rows, groups, each, run, eps, y, mean, rstd, x, gamma, beta))
REAL(group_norm_grad, (int dt, int64_t rows, int64_t groups, int64_t each, int64_t run, void *dx, void *dgamma, void *dbeta,
                       void *sums, const void *dy, const void *x, const void *gamma, const void *mean, const void *rstd),
     (rows, groups, each, run, dx, dgamma, dbeta, sums, dy, x, gamma, mean, rstd))
REAL(cell_step, (int dt, int kind, int backward, int64_t n, int64_t width, int64_t t, int64_t out_step,
                 const int64_t *lengths, const uintptr_t *q),
     (kind, backward, n, width, t, out_step, lengths, q))
REAL(rmsprop, (int dt, int64_t n, void *p, const void *g, void *v, void *m, void *a, double lr, double alpha, double eps,
               double decay, double momentum),
     (n, p, g, v, m, a, lr, alpha, eps, decay, momentum))
REAL(adagrad, (int dt, int64_t n, void *p, const void *g, void *v, double lr, double eps, double decay),
     (n, p, g, v, lr, eps, decay))
REAL(lion, (int dt, int64_t n, void *p, const void *g, void *m, double lr, double beta1, double beta2, double decay),
     (n, p, g, m, lr, beta1, beta2, decay))
REAL(scale, (int dt, int64_t n, void *x, double by), (n, x, by))

// Activations of bfloat16 are those of float32, block by block, with slopes in float32.
struct half_activation {
    int op;
    float a, b, *slope;
    uint16_t *o;
    const uint16_t *x;
};

static void half_activation_range(void *ctx, int64_t from, int64_t to) {
    const struct half_activation *u = ctx;
    float x[BLOCK], y[BLOCK];
    for (int64_t i = from; i < to; i += BLOCK) {
        int64_t n = to - i < BLOCK ? to - i : BLOCK;
        for (int64_t j = 0; j < n; j++) x[j] = widen_bf16(u->x[i + j]);
        struct activation_f32 wide = {u->op, u->a, u->b, y, u->slope ? u->slope + i : NULL, x};
        activation_range_f32(&wide, 0, n);
        for (int64_t j = 0; j < n; j++) u->o[i + j] = narrow_bf16(y[j]);
    }
}

static void k_activation(int dt, int op, int64_t n, double a, double b, void *o, void *slope, const void *x) {
    struct half_activation half = {op, (float)a, (float)b, slope, o, x};
    if (dt == BF16) parallel_range(n, 16384, half_activation_range, &half);
    else if (dt == F32) activation_f32(op, n, a, b, o, slope, x);
    else activation_f64(op, n, a, b, o, slope, x);
}
