// Reductions of two contributions, for Gloo's algorithms.
#ifndef DRUN_GLOO_REDUCE_H
#define DRUN_GLOO_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "shim.h"

// out[i] = a[i] op b[i]; out may be a.
using Combine = void (*)(void *out, const void *a, const void *b, size_t n);

// The function for a type and an operation, or null if there is none.
Combine combiner(int dtype, int op);

#endif
