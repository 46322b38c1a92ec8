// The C side of package kernel, as Go sees it. Callers validate: nothing here reports an error but that
// memory cannot be had.
#ifndef DRUN_KERNEL_H
#define DRUN_KERNEL_H

#include <stdint.h>

// Tensor memory. Go sees it as characters, because cgo inspects what a void * leads to on every call.
#ifdef DRUN_MEM
typedef DRUN_MEM mem;
#else
typedef void mem;
#endif

// As package dtype numbers them, which kernel.go checks.
enum { F32 = 1, F64, I64, I32, I8, U8, BOOL, F16, BF16, C64 };
enum { RANK_SUM, RANK_AVG, RANK_PRODUCT, RANK_MIN, RANK_MAX, RANK_BAND, RANK_BOR, RANK_BXOR };

enum { ADD, SUB, MUL, DIV, FLOORDIV, MOD, POW, MIN, MAX, AND, OR, XOR, ATAN2 };
enum { EQ, NE, LT, LE, GT, GE };
enum { NEG, ABS, SIGN, SQUARE, SQRT, RECIPROCAL, EXP, EXPM1, LOG, LOG1P, TANH, SIGMOID, ERF, SIN, COS, RELU, GELU, SILU,
       TAN, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH, EXP2, LOG2, LOG10, RSQRT, ERFC, ERFINV, LGAMMA, DIGAMMA,
       TRIGAMMA, FLOOR, CEIL, ROUND, TRUNC, NOT };
enum { LEAKY_RELU = NOT + 1, ELU, SOFTPLUS, MISH, GELU_TANH, HUBER }; // GELU and SILU are activations, too
enum { LSTM, GRU, RNN_TANH, RNN_RELU };
enum { RSUM, RMIN, RMAX, RANY, RALL, RPROD };

#define KERNEL(name, params, args) void drun_##name params;
#define SCRATCHED(name, params, args) int64_t drun_##name params;
#include "api.h"
#undef KERNEL

// Copies move bytes only and exist once for all instruction sets.
void drun_where(int size, int nd, const int64_t *shape, mem *o, const int64_t *so, const mem *c, const int64_t *sc,
                const mem *a, const int64_t *sa, const mem *b, const int64_t *sb);
void drun_copy(int size, int nd, const int64_t *shape, mem *o, const int64_t *so, const mem *a, const int64_t *sa);
void drun_take(int size, int64_t outer, int64_t count, int64_t rows, int64_t inner, mem *o, const mem *a,
               const int64_t *index);
void drun_gather(int size, int64_t outer, int64_t to, int64_t from, int64_t inner, mem *o, const mem *a,
                 const int64_t *index);
void drun_scatter(int size, int64_t outer, int64_t from, int64_t to, int64_t inner, mem *o, const mem *a,
                  const int64_t *index);
void drun_put(int size, int64_t outer, int64_t count, int64_t rows, int64_t inner, mem *o, const mem *a,
              const int64_t *index);

// Factorizations in double, the same for all instruction sets.
int64_t drun_lu(int64_t n, double *a, int64_t *pivot);
void drun_lu_solve(int64_t n, int64_t m, const double *lu, const int64_t *pivot, double *b);
int64_t drun_cholesky(int64_t n, double *a);
void drun_qr(int64_t m, int64_t n, int64_t columns, double *a, double *q, double *work);
int64_t drun_eigh(int64_t n, double *a, double *values, double *z, double *work);
int64_t drun_svd(int64_t n, double *g, double *j, double *values);

// The instruction-set paths, in the order of dispatch.c.
int drun_path_count(void);
const char *drun_path_name(int i);
int drun_path_usable(int i);
int drun_path(void);
void drun_set_path(int i);

void drun_set_threads(int n);
int drun_threads(void);

#endif
