// Vectors of VB bytes, whichever instruction set the including path is compiled for. Paths differ in how
// many lanes they do at once, never in what they do to a lane.
typedef float vf32 __attribute__((vector_size(VB)));
typedef double vf64 __attribute__((vector_size(VB)));
typedef int32_t vi32 __attribute__((vector_size(VB)));
typedef int64_t vi64 __attribute__((vector_size(VB)));
typedef uint32_t vu32 __attribute__((vector_size(VB))); // arithmetic on bits may wrap around, which C
typedef uint64_t vu64 __attribute__((vector_size(VB))); // leaves undefined of signed numbers

// A vector's bits as another type. Kernels on devices include the functions written with these, math32.h and the like,
// with scalars in place of vectors (opencl/device.h); a mask is then 1 where here its bits are all ones.
#define as_vf32(x) ((vf32)(x))
#define as_vf64(x) ((vf64)(x))
#define as_vi32(x) ((vi32)(x))
#define as_vi64(x) ((vi64)(x))
#define as_vu32(x) ((vu32)(x))
#define as_vu64(x) ((vu64)(x))
#define FIRST_LANE(x) (x)[0]
#define TABLE static const
#define GLOBAL // a pointer to memory that all work-items of a device share

#define INLINE static inline __attribute__((always_inline))

typedef vf32 __attribute__((aligned(4), may_alias)) vf32_any;
typedef vf64 __attribute__((aligned(8), may_alias)) vf64_any;
INLINE vf32 load_f32(const float *p) { return *(const vf32_any *)p; }
INLINE vf64 load_f64(const double *p) { return *(const vf64_any *)p; }
INLINE void store_f32(float *p, vf32 v) { *(vf32_any *)p = v; }
INLINE void store_f64(double *p, vf64 v) { *(vf64_any *)p = v; }

// The fused multiply-add a*b + c, one rounding, and the square root: both exact by IEEE on every path.
#if VB == 64
INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return (vf32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return (vf64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE vf32 sqrt_f32(vf32 a) { return (vf32)_mm512_sqrt_ps((__m512)a); }
INLINE vf64 sqrt_f64(vf64 a) { return (vf64)_mm512_sqrt_pd((__m512d)a); }
INLINE vf32 load_n_f32(const float *p, int n) { return (vf32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
INLINE vf64 load_n_f64(const double *p, int n) { return (vf64)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
INLINE void store_n_f32(float *p, vf32 v, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v); }
INLINE void store_n_f64(double *p, vf64 v, int n) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v); }
#elif VB == 32
INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return (vf32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return (vf64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE vf32 sqrt_f32(vf32 a) { return (vf32)_mm256_sqrt_ps((__m256)a); }
INLINE vf64 sqrt_f64(vf64 a) { return (vf64)_mm256_sqrt_pd((__m256d)a); }
// A masked store takes a dozen times as long as a whole one on some processors, and most vectors are whole.
static const int32_t first_n[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
INLINE __m256i mask_f32(int n) { return _mm256_loadu_si256((const __m256i *)(first_n + 8 - n)); }
INLINE __m256i mask_f64(int n) { return _mm256_loadu_si256((const __m256i *)(first_n + 8 - 2 * n)); }
INLINE vf32 load_n_f32(const float *p, int n) {
    return (vf32)(n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, mask_f32(n)));
}
INLINE vf64 load_n_f64(const double *p, int n) {
    return (vf64)(n == 4 ? _mm256_loadu_pd(p) : _mm256_maskload_pd(p, mask_f64(n)));
}
INLINE void store_n_f32(float *p, vf32 v, int n) {
    if (n == 8) _mm256_storeu_ps(p, (__m256)v);
    else _mm256_maskstore_ps(p, mask_f32(n), (__m256)v);
}
INLINE void store_n_f64(double *p, vf64 v, int n) {
    if (n == 4) _mm256_storeu_pd(p, (__m256d)v);
    else _mm256_maskstore_pd(p, mask_f64(n), (__m256d)v);
}
#else
#if defined PATH_NEON
INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) { return (vf32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) { return (vf64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
INLINE vf32 sqrt_f32(vf32 a) { return (vf32)vsqrtq_f32((float32x4_t)a); }
INLINE vf64 sqrt_f64(vf64 a) { return (vf64)vsqrtq_f64((float64x2_t)a); }
#else
// fmaf, fma and sqrt are the libm functions whose result IEEE fixes to the last bit.
INLINE vf32 fma_f32(vf32 a, vf32 b, vf32 c) {
    vf32 r;
    for (int i = 0; i < 4; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
}
INLINE vf64 fma_f64(vf64 a, vf64 b, vf64 c) {
    vf64 r;
    for (int i = 0; i < 2; i++) r[i] = __builtin_fma(a[i], b[i], c[i]);
    return r;
}
INLINE vf32 sqrt_f32(vf32 a) {
    for (int i = 0; i < 4; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
INLINE vf64 sqrt_f64(vf64 a) {
    for (int i = 0; i < 2; i++) a[i] = __builtin_sqrt(a[i]);
    return a;
}
#endif
// Most vectors are whole; the compiler makes a call of memcpy of the rest.
INLINE vf32 load_n_f32(const float *p, int n) {
    if (n == 4) return load_f32(p);
    vf32 v = {0};
    for (int i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE vf64 load_n_f64(const double *p, int n) {
    if (n == 2) return load_f64(p);
    vf64 v = {0};
    for (int i = 0; i < n; i++) v[i] = p[i];
    return v;
}
INLINE void store_n_f32(float *p, vf32 v, int n) {
    if (n == 4) store_f32(p, v);
    else for (int i = 0; i < n; i++) p[i] = v[i];
}
INLINE void store_n_f64(double *p, vf64 v, int n) {
    if (n == 2) store_f64(p, v);
    else for (int i = 0; i < n; i++) p[i] = v[i];
}
#endif

INLINE vf32 set_f32(float x) { return x - (vf32){0}; }
INLINE vf64 set_f64(double x) { return x - (vf64){0}; }

// Where the mask's lane is all ones a, else b.
INLINE vf32 sel_f32(vi32 m, vf32 a, vf32 b) { return (vf32)((m & (vi32)a) | (~m & (vi32)b)); }
INLINE vf64 sel_f64(vi64 m, vf64 a, vf64 b) { return (vf64)((m & (vi64)a) | (~m & (vi64)b)); }

// x or the limit that it is beyond; NaN stays. The instructions give their second operand if one is NaN.
#if VB == 64
INLINE vf32 clamp_f32(vf32 x, float low, float high) {
    return (vf32)_mm512_max_ps(_mm512_set1_ps(low), _mm512_min_ps(_mm512_set1_ps(high), (__m512)x));
}
INLINE vf64 clamp_f64(vf64 x, double low, double high) {
    return (vf64)_mm512_max_pd(_mm512_set1_pd(low), _mm512_min_pd(_mm512_set1_pd(high), (__m512d)x));
}
#elif VB == 32
INLINE vf32 clamp_f32(vf32 x, float low, float high) {
    return (vf32)_mm256_max_ps(_mm256_set1_ps(low), _mm256_min_ps(_mm256_set1_ps(high), (__m256)x));
}
INLINE vf64 clamp_f64(vf64 x, double low, double high) {
    return (vf64)_mm256_max_pd(_mm256_set1_pd(low), _mm256_min_pd(_mm256_set1_pd(high), (__m256d)x));
}
#else
INLINE vf32 clamp_f32(vf32 x, float low, float high) {
    x = sel_f32(x > high, set_f32(high), x);
    return sel_f32(x < low, set_f32(low), x);
}
INLINE vf64 clamp_f64(vf64 x, double low, double high) {
    x = sel_f64(x > high, set_f64(high), x);
    return sel_f64(x < low, set_f64(low), x);
}
#endif

// 2^n x for integral n, at most 300 and 2,200 from 0, with one rounding where the result is subnormal.
#if VB == 64
INLINE vf32 ldexp_f32(vf32 x, vi32 n) { return (vf32)_mm512_scalef_ps((__m512)x, _mm512_cvtepi32_ps((__m512i)n)); }
INLINE vf64 ldexp_f64(vf64 x, vi64 n) { return (vf64)_mm512_scalef_pd((__m512d)x, _mm512_cvtepi64_pd((__m512i)n)); }
#else
INLINE vf32 ldexp_f32(vf32 x, vi32 n) {
    vi32 half = n >> 1;
    return x * (vf32)((vu32)(half + 127) << 23) * (vf32)((vu32)(n - half + 127) << 23);
}
INLINE vf64 ldexp_f64(vf64 x, vi64 n) {
    vi64 half = n >> 1;
    return x * (vf64)((vu64)(half + 1023) << 52) * (vf64)((vu64)(n - half + 1023) << 52);
}
#endif

// Clang takes the NaN of a square root for any NaN it likes, unless it does not see where the value comes from.
#if !defined __clang__
#define OPAQUE(v)
#elif defined __aarch64__
#define OPAQUE(v) __asm__("" : "+w"(v))
#elif VB == 64
#define OPAQUE(v) __asm__("" : "+v"(v))
#else
#define OPAQUE(v) __asm__("" : "+x"(v))
#endif

// Which NaN an operation passes on differs between instruction sets: every kernel stores this one.
INLINE vf32 canon_f32(vf32 v) {
    OPAQUE(v);
    return sel_f32(v == v, v, set_f32(__builtin_nanf("")));
}
INLINE vf64 canon_f64(vf64 v) {
    OPAQUE(v);
    return sel_f64(v == v, v, set_f64(__builtin_nan("")));
}

INLINE vf32 abs_f32(vf32 v) { return (vf32)((vi32)v & 0x7fffffff); }
INLINE vf64 abs_f64(vf64 v) { return (vf64)((vi64)v & 0x7fffffffffffffff); }
INLINE vf32 sign_of_f32(vf32 v, vf32 s) { return (vf32)((vi32)v | ((vi32)s & (int32_t)0x80000000)); }
INLINE vf64 sign_of_f64(vf64 v, vf64 s) { return (vf64)((vi64)v | ((vi64)s & (int64_t)0x8000000000000000)); }

// The lower and the upper halves of two vectors, lane by lane in turn.
#if VB == 64
INLINE vf32 low_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
INLINE vf32 high_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31); }
INLINE vf64 low_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE vf64 high_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#elif VB == 32
INLINE vf32 low_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE vf32 high_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE vf64 low_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vf64 high_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#else
INLINE vf32 low_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vf32 high_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
INLINE vf64 low_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 2); }
INLINE vf64 high_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif

// Every other lane of two vectors, from the first and from the second on.
#if VB == 64
INLINE vf32 even_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30); }
INLINE vf32 odd_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31); }
INLINE vf64 even_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
INLINE vf64 odd_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#elif VB == 32
INLINE vf32 even_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
INLINE vf32 odd_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
INLINE vf64 even_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
INLINE vf64 odd_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#else
INLINE vf32 even_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
INLINE vf32 odd_f32(vf32 a, vf32 b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
INLINE vf64 even_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 0, 2); }
INLINE vf64 odd_f64(vf64 a, vf64 b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif

// Moves the lanes that are not zero to the front, and with them those of another vector, as bits; returns how many they are.
#if VB == 64
INLINE int front_f32(vf32 *v, vf32 *with) {
    __mmask16 m = _mm512_cmp_ps_mask((__m512)*v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    *v = (vf32)_mm512_maskz_compress_ps(m, (__m512)*v), *with = (vf32)_mm512_maskz_compress_ps(m, (__m512)*with);
    return __builtin_popcount(m);
}
INLINE int front_f64(vf64 *v, vf64 *with) {
    __mmask8 m = _mm512_cmp_pd_mask((__m512d)*v, _mm512_setzero_pd(), _CMP_NEQ_UQ);
    *v = (vf64)_mm512_maskz_compress_pd(m, (__m512d)*v), *with = (vf64)_mm512_maskz_compress_pd(m, (__m512d)*with);
    return __builtin_popcount(m);
}
#endif

INLINE uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
INLINE float of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
