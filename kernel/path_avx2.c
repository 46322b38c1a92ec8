#if defined __x86_64__ && !defined SCALAR_ONLY
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define PATH avx2
#define VB 32
#include "path.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
