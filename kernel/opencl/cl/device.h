// The language of the kernels in this folder, in OpenCL C; for another one this file alone would be another. It gives the
// functions that are shared with the kernels in C (math32.h and the like) scalars where those have vectors.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define ON_DEVICE
#define half halved // a type in OpenCL C, a name in the functions

typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef float vf32;
typedef double vf64;
typedef int vi32;
typedef long vi64;
typedef uint vu32;
typedef ulong vu64;

#define GLOBAL __global
#define LOCAL __local
#define KERNEL __kernel
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define INLINE static inline
#define TABLE __constant
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT8_MIN SCHAR_MIN
#define INT8_MAX SCHAR_MAX
#define UINT8_MAX UCHAR_MAX

#define as_vf32(x) as_float(x)
#define as_vf64(x) as_double(x)
#define as_vi32(x) as_int(x)
#define as_vi64(x) as_long(x)
#define as_vu32(x) as_uint(x)
#define as_vu64(x) as_ulong(x)
#define bits_of(x) as_uint(x)
#define of_bits(x) as_float(x)
#define FIRST_LANE(x) (x)
#define FMOD(a, b) fmod(a, b)
#undef INFINITY
#define INFINITY as_float(0x7f800000)
#define __builtin_inff() INFINITY
#define __builtin_inf() ((double)INFINITY)
#define __builtin_nanf(text) as_float(0x7fc00000)
#define __builtin_nan(text) as_double(0x7ff8000000000000)
#define __builtin_convertvector(x, type) ((type)(x))

INLINE float set_f32(float x) { return x; }
INLINE double set_f64(double x) { return x; }
INLINE float fma_f32(float a, float b, float c) { return fma(a, b, c); }
INLINE double fma_f64(double a, double b, double c) { return fma(a, b, c); }
INLINE double sqrt_f64(double a) { return sqrt(a); }
// Quotients and roots of floats are rounded correctly only if the device can do that and the program is built so; a device
// that cannot fails its golden cases.
INLINE float sqrt_f32(float a) { return sqrt(a); }
INLINE float sel_f32(int m, float a, float b) { return m ? a : b; }
INLINE double sel_f64(long m, double a, double b) { return m ? a : b; }
INLINE float clamp_f32(float x, float low, float high) {
    x = x > high ? high : x;
    return x < low ? low : x;
}
INLINE double clamp_f64(double x, double low, double high) {
    x = x > high ? high : x;
    return x < low ? low : x;
}
INLINE float ldexp_f32(float x, int n) {
    int low = n >> 1;
    return x * as_float((uint)(low + 127) << 23) * as_float((uint)(n - low + 127) << 23);
}
INLINE double ldexp_f64(double x, long n) {
    long low = n >> 1;
    return x * as_double((ulong)(low + 1023) << 52) * as_double((ulong)(n - low + 1023) << 52);
}
INLINE float canon_f32(float v) { return v == v ? v : as_float(0x7fc00000); }
INLINE double canon_f64(double v) { return v == v ? v : as_double(0x7ff8000000000000); }
INLINE float abs_f32(float v) { return as_float(as_uint(v) & 0x7fffffffu); }
INLINE double abs_f64(double v) { return as_double(as_ulong(v) & 0x7ffffffffffffffful); }
INLINE float sign_of_f32(float v, float s) { return as_float(as_uint(v) | (as_uint(s) & 0x80000000u)); }
INLINE double sign_of_f64(double v, double s) { return as_double(as_ulong(v) | (as_ulong(s) & 0x8000000000000000ul)); }

// See math64.h: here a literal of an array has no address in private memory.
struct coefficients {
    double c[28];
};
INLINE double poly_f64(double x, int n, struct coefficients s) {
    double p = s.c[0];
    for (int i = 1; i < n; i++) p = fma(p, x, s.c[i]);
    return p;
}
#define POLY(x, ...) poly_f64(x, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (struct coefficients){{__VA_ARGS__}})
