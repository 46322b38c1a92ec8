// What the C files share among themselves.
#ifndef DRUN_INTERNAL_H
#define DRUN_INTERNAL_H

#include <stddef.h>
#include "kernel.h"

// One table per instruction set.
struct kernels {
    const char *name;
#define KERNEL(name, params, args) void (*name) params;
#include "api.h"
#undef KERNEL
};
extern const struct kernels drun_scalar, drun_avx2, drun_avx512, drun_avx512bf16, drun_amx, drun_neon;

// Whether vdpbf16ps, which this processor has, adds in the order that is used.
int drun_pairs_in_order(void);

enum { MAX_DIMS = 32, MAX_OPERANDS = 4 };

// Calls run(ctx, i) once for each i in [0, n), on the pool's threads when there are any. Which thread runs
// which i is open, so a kernel's result may never depend on it.
void parallel_for(int64_t n, void (*run)(void *ctx, int64_t i), void *ctx);

// Cuts [0, n) into ranges of about grain elements or more and runs them in parallel.
void parallel_range(int64_t n, int64_t grain, void (*run)(void *ctx, int64_t from, int64_t to), void *ctx);

// A strided walk over several operands of one shape. Strides in bytes, 0 broadcasts.
typedef void (*inner_fn)(void *ctx, int64_t n, char **p, const int64_t *stride);
struct walk {
    int operands, nd;
    int64_t total, shape[MAX_DIMS], stride[MAX_OPERANDS][MAX_DIMS];
    char *data[MAX_OPERANDS];
    inner_fn inner;
    void *ctx;
};
void walk_begin(struct walk *w, int nd, const int64_t *shape, inner_fn inner, void *ctx);
void walk_operand(struct walk *w, const void *data, const int64_t *stride, int size);
void walk_collapse(struct walk *w);
void walk_run(struct walk *w, int64_t grain);

// Moves n elements of the given size between a strided and a dense place.
void gather_elements(int size, int64_t n, void *to, const char *from, int64_t stride);
void scatter_elements(int size, int64_t n, char *to, int64_t stride, const void *from);

static inline int dtype_size(int dt) {
    static const char size[] = {[F32] = 4, [F64] = 8, [I64] = 8, [I32] = 4, [I8] = 1, [U8] = 1, [BOOL] = 1, [F16] = 2,
                                [BF16] = 2, [C64] = 8};
    return size[dt];
}

// Scratch memory that outlives a call: taken and given back, so steady state allocates nothing. NULL when it
// cannot be had: a kernel then leaves its work undone, and dispatch.c tells the caller from the failures
// counted meanwhile. A call beside it may so be told of a failure that was not its own, never the reverse.
void *scratch_take(size_t bytes);
void scratch_give(void *p);
uint64_t scratch_failures(void);
int64_t scratch_missing(void); // bytes of the last failure

#endif
