// Every kernel that exists once for each instruction set: name, parameters, arguments.
// kernel.h declares from this list what Go calls, dispatch.c forwards it to the chosen path, and
// path.h collects a path's functions into one table. Sizes and strides count elements.
//
// SCRATCHED marks those that need scratch memory: the function that Go calls returns the bytes that could not be allocated, or 0.
//
// No include guard: included several times with different meanings of KERNEL.
#ifndef SCRATCHED
#define SCRATCHED KERNEL
#endif

#define ND int nd, const int64_t *shape
#define OUT mem *o, const int64_t *so
#define IN(x) const mem *x, const int64_t *s##x

KERNEL(binary, (int op, int dt, ND, OUT, IN(a), IN(b)), (op, dt, nd, shape, o, so, a, sa, b, sb))
KERNEL(compare, (int op, int dt, ND, OUT, IN(a), IN(b)), (op, dt, nd, shape, o, so, a, sa, b, sb))
KERNEL(unary, (int op, int dt, ND, OUT, IN(a)), (op, dt, nd, shape, o, so, a, sa))
KERNEL(unary_grad, (int op, int dt, ND, OUT, IN(a), IN(b)), (op, dt, nd, shape, o, so, a, sa, b, sb))
KERNEL(cast, (int to, int from, ND, OUT, IN(a)), (to, from, nd, shape, o, so, a, sa))

KERNEL(reduce, (int op, int dt, int64_t outer, int64_t n, int64_t inner, mem *o, const mem *a),
       (op, dt, outer, n, inner, o, a))
KERNEL(arg_reduce, (int op, int dt, int64_t outer, int64_t n, int64_t inner, int64_t *index, const mem *a),
       (op, dt, outer, n, inner, index, a))
KERNEL(cumsum, (int dt, int64_t outer, int64_t n, int64_t inner, mem *o, const mem *a), (dt, outer, n, inner, o, a))
KERNEL(cumprod, (int dt, int64_t outer, int64_t n, int64_t inner, mem *o, const mem *a), (dt, outer, n, inner, o, a))
KERNEL(cumprod_grad, (int dt, int64_t outer, int64_t n, int64_t inner, mem *dx, const mem *dy, const mem *x),
       (dt, outer, n, inner, dx, dy, x))
KERNEL(square_sum, (int dt, int64_t n, const mem *a, double *o), (dt, n, a, o))

SCRATCHED(gemm, (int dt, int ta, int tb, int64_t m, int64_t n, int64_t k, const mem *a, int64_t lda, const mem *b,
              int64_t ldb, mem *c, int64_t ldc, const mem *bias, int accumulate, int64_t batch, int64_t sa,
              int64_t sb, int64_t sc),
       (dt, ta, tb, m, n, k, a, lda, b, ldb, c, ldc, bias, accumulate, batch, sa, sb, sc))

SCRATCHED(gemm_half, (int dt, int ta, int tb, int64_t m, int64_t n, int64_t k, int da, const mem *a, int64_t lda, int db,
              const mem *b, int64_t ldb, mem *c, int64_t ldc, const mem *bias, int accumulate, int64_t batch, int64_t sa,
              int64_t sb, int64_t sc),
       (dt, ta, tb, m, n, k, da, a, lda, db, b, ldb, c, ldc, bias, accumulate, batch, sa, sb, sc))

KERNEL(softmax, (int dt, int logarithm, int64_t rows, int64_t n, mem *o, const mem *x), (dt, logarithm, rows, n, o, x))
KERNEL(softmax_grad, (int dt, int logarithm, int64_t rows, int64_t n, mem *dx, const mem *dy, const mem *y),
       (dt, logarithm, rows, n, dx, dy, y))
KERNEL(cross_entropy, (int dt, int64_t rows, int64_t n, mem *loss, mem *lse, const mem *x, const int64_t *target),
       (dt, rows, n, loss, lse, x, target))
KERNEL(cross_entropy_grad, (int dt, int64_t rows, int64_t n, mem *dx, const mem *dloss, int64_t sdloss, double scale,
                            const mem *x, const mem *lse, const int64_t *target),
       (dt, rows, n, dx, dloss, sdloss, scale, x, lse, target))
KERNEL(layer_norm, (int dt, int64_t rows, int64_t n, double eps, mem *y, mem *mean, mem *rstd, const mem *x,
                    const mem *gamma, const mem *beta),
       (dt, rows, n, eps, y, mean, rstd, x, gamma, beta))
KERNEL(layer_norm_grad, (int dt, int64_t rows, int64_t n, int add, mem *dx, mem *dgamma, mem *dbeta, const mem *dy,
                         const mem *x, const mem *gamma, const mem *mean, const mem *rstd),
       (dt, rows, n, add, dx, dgamma, dbeta, dy, x, gamma, mean, rstd))

// Lines of an array [outer, n, side, run]: over n and run, one for each of outer and side.
#define LINES int64_t outer, int64_t n, int64_t side, int64_t run
KERNEL(moments, (int dt, LINES, int64_t correction, mem *mean, mem *low, mem *var, const mem *a),
       (dt, outer, n, side, run, correction, mean, low, var, a))
KERNEL(square_sums, (int dt, LINES, mem *o, const mem *a), (dt, outer, n, side, run, o, a))
KERNEL(scale_lines, (int dt, LINES, mem *y, const mem *x, const mem *mean, const mem *low, const mem *scale, const mem *gamma,
                     const mem *beta),
       (dt, outer, n, side, run, y, x, mean, low, scale, gamma, beta))
KERNEL(batch_norm_grad, (int dt, int training, LINES, mem *dx, mem *dgamma, mem *dbeta, mem *sums, const mem *dy,
                         const mem *x, const mem *mean, const mem *low, const mem *rstd, const mem *gamma),
       (dt, training, outer, n, side, run, dx, dgamma, dbeta, sums, dy, x, mean, low, rstd, gamma))
#undef LINES

SCRATCHED(attention, (int dt, int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale, mem *o,
                   mem *lse, const mem *q, const mem *k, const mem *v, const int64_t *at, const int64_t *ld),
       (dt, causal, batch, rows, cols, d, e, scale, o, lse, q, k, v, at, ld))
SCRATCHED(attention_grad, (int dt, int causal, int64_t batch, int64_t rows, int64_t cols, int64_t d, int64_t e, double scale,
                        mem *dq, mem *dk, mem *dv, const mem *dy, const mem *lse, const mem *q, const mem *k,
                        const mem *v, const int64_t *at, const int64_t *ld, const int64_t *to),
       (dt, causal, batch, rows, cols, d, e, scale, dq, dk, dv, dy, lse, q, k, v, at, ld, to))

KERNEL(add_rows, (int dt, int64_t rows, int64_t n, mem *o, const int64_t *index, const mem *a),
       (dt, rows, n, o, index, a))
KERNEL(scatter_add, (int dt, int64_t outer, int64_t from, int64_t to, int64_t inner, mem *o, const int64_t *index,
                     const mem *a),
       (dt, outer, from, to, inner, o, index, a))

SCRATCHED(conv2d, (int dt, const int64_t *g, mem *y, const mem *x, const mem *w, const mem *bias), (dt, g, y, x, w, bias))
SCRATCHED(conv2d_max_pool, (int dt, const int64_t *g, const int64_t *pool, mem *y, int32_t *index, const mem *x, const mem *w,
                      const mem *bias),
       (dt, g, pool, y, index, x, w, bias))
SCRATCHED(conv2d_grad_input, (int dt, const int64_t *g, mem *dx, const mem *dy, const int32_t *maxima, int64_t pooled, const mem *w,
                      const mem *bias),
       (dt, g, dx, dy, maxima, pooled, w, bias))
SCRATCHED(conv2d_grad_weight, (int dt, const int64_t *g, mem *dw, mem *dbias, const mem *dy, const int32_t *maxima, int64_t pooled,
                      const mem *x),
       (dt, g, dw, dbias, dy, maxima, pooled, x))
KERNEL(max_pool2d, (int dt, const int64_t *g, mem *y, int32_t *index, const mem *x), (dt, g, y, index, x))
KERNEL(max_pool2d_grad, (int dt, const int64_t *g, mem *dx, const mem *dy, const int32_t *index), (dt, g, dx, dy, index))
KERNEL(avg_pool2d, (int dt, const int64_t *g, mem *y, const mem *x), (dt, g, y, x))
KERNEL(avg_pool2d_grad, (int dt, const int64_t *g, mem *dx, const mem *dy), (dt, g, dx, dy))

KERNEL(sgd, (int dt, int64_t n, mem *p, const mem *g, mem *m, double lr, double momentum, double decay, int nesterov,
             int first),
       (dt, n, p, g, m, lr, momentum, decay, nesterov, first))
KERNEL(adam, (int dt, int64_t n, mem *p, const mem *g, mem *m, mem *v, double lr, double beta1, double beta2,
              double eps, double decay, int decoupled, int64_t step),
       (dt, n, p, g, m, v, lr, beta1, beta2, eps, decay, decoupled, step))
KERNEL(group_norm, (int dt, int64_t rows, int64_t groups, int64_t each, int64_t run, double eps, mem *y, mem *mean, mem *rstd,
                    const mem *x, const mem *gamma, const mem *beta),
       (dt, rows, groups, each, run, eps, y, mean, rstd, x, gamma, beta))
KERNEL(group_norm_grad, (int dt, int64_t rows, int64_t groups, int64_t each, int64_t run, mem *dx, mem *dgamma, mem *dbeta,
                         mem *sums, const mem *dy, const mem *x, const mem *gamma, const mem *mean, const mem *rstd),
       (dt, rows, groups, each, run, dx, dgamma, dbeta, sums, dy, x, gamma, mean, rstd))
KERNEL(cell_step, (int dt, int kind, int backward, int64_t n, int64_t width, int64_t t, int64_t out_step,
                   const int64_t *lengths, const uintptr_t *q),
       (dt, kind, backward, n, width, t, out_step, lengths, q))
KERNEL(activation, (int dt, int op, int64_t n, double a, double b, mem *o, mem *slope, const mem *x),
       (dt, op, n, a, b, o, slope, x))
KERNEL(rmsprop, (int dt, int64_t n, mem *p, const mem *g, mem *v, mem *m, mem *a, double lr, double alpha, double eps,
                 double decay, double momentum),
       (dt, n, p, g, v, m, a, lr, alpha, eps, decay, momentum))
KERNEL(adagrad, (int dt, int64_t n, mem *p, const mem *g, mem *v, double lr, double eps, double decay),
       (dt, n, p, g, v, lr, eps, decay))
KERNEL(lion, (int dt, int64_t n, mem *p, const mem *g, mem *m, double lr, double beta1, double beta2, double decay),
       (dt, n, p, g, m, lr, beta1, beta2, decay))
KERNEL(scale, (int dt, int64_t n, mem *x, double by), (dt, n, x, by))

KERNEL(uniform, (int dt, int64_t n, mem *o, uint64_t seed, uint64_t stream, uint64_t at), (dt, n, o, seed, stream, at))
KERNEL(normal, (int dt, int64_t n, mem *o, uint64_t seed, uint64_t stream, uint64_t at), (dt, n, o, seed, stream, at))
KERNEL(bounded, (int64_t n, int64_t *o, int64_t low, uint64_t range, uint64_t seed, uint64_t stream, uint64_t at),
       (n, o, low, range, seed, stream, at))
KERNEL(dropout, (int dt, int64_t n, mem *o, const mem *x, double keep, uint64_t seed, uint64_t stream, uint64_t at),
       (dt, n, o, x, keep, seed, stream, at))

KERNEL(reduce_ranks, (int op, int dt, int64_t n, mem *o, int ranks, const uintptr_t *src), (op, dt, n, o, ranks, src))

#undef ND
#undef OUT
#undef IN
#undef SCRATCHED
