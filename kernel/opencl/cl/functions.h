// The elementwise functions of REALS or INTEGERS: map_NAME_TYPE of one or two operands, NAME_sloped_TYPE of activations.
#define MAP(name, expression) INLINE T S(map_##name)(T x) { return S(canon)(expression); }
#define MAP2(name, expression) INLINE T S(map_##name)(T x, T y) { return S(canon)(expression); }
#define MAP_EACH(name) INLINE T S(map_##name)(T x, T y) { return S(name)(x, y); }
#define ARCS(name)                                                                         \
    INLINE float map_##name##_f32(float x) { return (float)canon_f64(name##_f64((double)x)); } \
    INLINE double map_##name##_f64(double x) { return canon_f64(name##_f64(x)); }
#define ATAN2_ARC(s, type) INLINE type map_atan2_##s(type y, type x) { return (type)canon_f64(atan2_f64((double)y, (double)x)); }
#define POW(s, type) INLINE type map_pow_##s(type x, type y) { return (type)canon_f64(power_f64((double)x, (double)y)); }
#define IMAP(name, expression) INLINE TYPE J(map_##name)(TYPE x) { return (TYPE)(expression); }
#define IMAP2(name, expression) INLINE TYPE J(map_##name)(TYPE x, TYPE y) { return (TYPE)(expression); }

#ifdef REALS
#include "math32.h"
#include "math64.h"
#include "trig.h"

// A signed integer of 128 bits as a double, rounded to nearest, ties to even.
INLINE double int128(ulong high, ulong low) {
    int minus = (long)high < 0;
    if (minus) low = ~low + 1, high = ~high + (low == 0);
    if ((high | low) == 0) return 0;
    int zeros = high ? clz(high) : 64 + clz(low);
    if (zeros >= 64) high = low << (zeros - 64), low = 0;
    else if (zeros) high = high << zeros | low >> (64 - zeros), low <<= zeros;
    high |= low != 0; // the first 11 bits beyond a double's decide the rounding, and whether anything follows
    double x = ldexp(convert_double_rte(high), 64 - zeros);
    return minus ? -x : x;
}

// See trig.h, which has the same with integers of 128 bits.
INLINE double far_reduce(double x, int *q) {
    ulong u = as_ulong(x), m = (u & 0xffffffffffffful) | 0x10000000000000ul, z[3];
    int e = (int)(u >> 52 & 0x7ff) - 1075, at = e + 62, word = at / 64, shift = at % 64;
    for (int i = 0; i < 3; i++)
        z[i] = two_over_pi[word + i] << shift | (shift ? two_over_pi[word + i + 1] >> (64 - shift) : 0);
    ulong low = z[2] * m, carry = mul_hi(z[2], m), middle = z[1] * m + carry;
    ulong high = z[0] * m + mul_hi(z[1], m) + (middle < carry);
    ulong f1 = high << 2 | middle >> 62, f0 = middle << 2 | low >> 62;
    *q = (int)(high >> 62) + (int)(f1 >> 63);
    double r = int128(f1, f0) * 0x1p-128 * 1.57079632679489661923;
    if (x < 0) *q = -*q, r = -r;
    return r;
}
INLINE double far_sine(double x, int quadrant) {
    int q;
    double r = far_reduce(x, &q);
    return sin_quadrant_f64(r, q + quadrant);
}
INLINE float sine_f32(float x, int quadrant) {
    float a = abs_f32(x);
    return a > 5e3f && a < INFINITY ? (float)far_sine(x, quadrant) : sin_quadrant_f32(x, quadrant);
}
INLINE double sine_f64(double x, int quadrant) {
    double a = abs_f64(x);
    return a > 1e6 && a < INFINITY ? far_sine(x, quadrant) : sin_quadrant_f64(x, quadrant);
}

#include "arc.h"
#include "special.h"

#define T float
#define V float
#define I int
#define S(name) name##_f32
#include "elementwise.h"
#include "activations.h"
#undef T
#undef V
#undef I
#undef S
#define T double
#define V double
#define I long
#define S(name) name##_f64
#include "elementwise.h"
#include "activations.h"
#undef T
#undef V
#undef I
#undef S
#include "power.h"
#endif

#ifdef INTEGERS
#include "integers.h"
#endif
