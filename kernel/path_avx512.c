#if defined __x86_64__ && !defined SCALAR_ONLY
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,amx-tile,amx-bf16,prefer-vector-width=512")
#endif
#define PATH avx512
#define VB 64
#define PATH_TILES
#include "path.h"

// The same kernels, with AVX512-BF16 for products of bfloat16.
#define k_gemm_half k_gemm_pairs
const struct kernels drun_avx512bf16 = {
    .name = "avx512bf16",
#define KERNEL(name, params, args) .name = k_##name,
#include "api.h"
#undef KERNEL
};
#undef k_gemm_half

// And with Intel's tile instructions (AMX).
#define k_gemm_half k_gemm_tiles
const struct kernels drun_amx = {
    .name = "amx",
#define KERNEL(name, params, args) .name = k_##name,
#include "api.h"
#undef KERNEL
};
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
