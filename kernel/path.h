// All kernels of one path. A path_*.c file sets PATH, VB and the compiler's target, then includes this.
#include <math.h>
#include <string.h>
#include "internal.h"
#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#include "simd.h"

// power.h needs both types' functions, the tables of elementwise.h need it.
static void map_pow_f32(int64_t n, void *o, const void *a, const void *b);
static void map_pow_f64(int64_t n, void *o, const void *a, const void *b);

#include "math32.h"
#include "math64.h"
#include "trig.h"
#include "arc.h"
#include "special.h"

// The templates are written for one real type T with vectors V of N lanes and masks I; S(name) is name_f32
// or name_f64.
#define T float
#define V vf32
#define I vi32
#define INT int32_t
#define S(name) name##_f32
#define N (VB / 4)
#include "templates.h"
#define T double
#define V vf64
#define I vi64
#define INT int64_t
#define S(name) name##_f64
#define N (VB / 8)
#include "templates.h"

#include "power.h"
#include "entry.h"
#include "gemm_half.h"

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
const struct kernels CONCAT(drun_, PATH) = {
    .name = TEXT(PATH),
#define KERNEL(name, params, args) .name = k_##name,
#include "api.h"
#undef KERNEL
};
