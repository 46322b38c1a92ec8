// Conversions. A real becomes an integer by truncation, saturating, NaN as 0; anything becomes bool by != 0;
// half precisions round to nearest even; to and from complex the real part is converted, but complex is
// true if either part is nonzero.

INLINE float widen_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 0) return of_bits(bits_of((float)m * 0x1p-24f) | sign);
    if (e == 31 && m) return __builtin_nanf("");
    return of_bits(e == 31 ? sign | 0x7f800000 : sign | (e + 112) << 23 | m << 13);
}

INLINE uint16_t narrow_f16(float x) {
    uint32_t u = bits_of(x);
    uint16_t sign = u >> 16 & 0x8000;
    uint32_t a = u & 0x7fffffff;
    if (a > 0x7f800000) return 0x7e00;
    if (a >= 0x477ff000) return sign | 0x7c00;
    if (a < 0x38800000) {
        // Adding 0.5 leaves the subnormal's rounded bits at the bottom of the sum.
        return sign | (uint16_t)(bits_of(of_bits(a) + 0.5f) - 0x3f000000);
    }
    return sign | (uint16_t)((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}

INLINE float widen_bf16(uint16_t h) {
    float f = of_bits((uint32_t)h << 16);
    return f == f ? f : __builtin_nanf("");
}

INLINE uint16_t narrow_bf16(float x) {
    uint32_t u = bits_of(x);
    return x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// A double narrowed twice rounds twice; rounding to odd first makes the second rounding the only one.
INLINE float round_to_odd(double x) {
    float f = (float)x;
    uint32_t u = bits_of(f);
    if ((double)f != x && x == x && !(u & 1) && (u & 0x7fffffff) != 0) {
        u += (f < 0 ? (double)f > x : (double)f < x) ? 1 : -1;
        if ((u & 0x7fffffff) > 0x7f7fffff) u = (u & 0x80000000) | 0x7f7fffff;
        f = of_bits(u);
    }
    return f;
}

// An int64 narrowed by way of double likewise: of more bits than a double has, the last ones become one bit.
INLINE float int_to_odd(int64_t x) {
    int wide = x > (1LL << 53) || x < -(1LL << 53);
    return round_to_odd((double)(wide && (x & 0x7ff) ? (x & ~0x7ffLL) | 0x400 : x));
}

#define TO_INT(type, low, high, above)                     \
    INLINE type to_##type(double x) {                      \
        if (x != x) return 0;                              \
        return x <= low ? low : x >= above ? high : (type)x; \
    }
TO_INT(int64_t, INT64_MIN, INT64_MAX, 0x1p63)
TO_INT(int32_t, INT32_MIN, INT32_MAX, 0x1p31)
TO_INT(int8_t, INT8_MIN, INT8_MAX, 128)
TO_INT(uint8_t, 0, UINT8_MAX, 256)

// How each type is read (as itself) and how it is written from a real and from an integer.
#define SAME(x) (x)
#define NAN32(x) ((x) == (x) ? (float)(x) : __builtin_nanf(""))
#define NAN64(x) ((x) == (x) ? (double)(x) : __builtin_nan(""))
#define TRUE(x) ((x) != 0)

#ifndef ON_DEVICE
#define CAST(name, to, from, write, read)                                  \
    static void cast_##name(int64_t n, void *o_, const void *a_) {         \
        to *o = o_;                                                        \
        const from *a = a_;                                                \
        for (int64_t i = 0; i < n; i++) o[i] = write(read(a[i]));          \
    }
#endif
struct complex64 {
    float re, im;
};
#define PAIR(x) ((struct complex64){NAN32(x), 0})
#define REAL_PART(x) ((x).re)
#define EITHER_PART(x) ((x).re != 0 || (x).im != 0)

// From reals, and from the storage types, which are read as reals. any reads what is zero only where the element
// is, and wide what is rounded once to 16 bits.
#define FROM_REAL(s, from, read, any, wide)                      \
    CAST(f32_##s, float, from, NAN32, read)                      \
    CAST(f64_##s, double, from, NAN64, read)                     \
    CAST(i64_##s, int64_t, from, to_int64_t, read)               \
    CAST(i32_##s, int32_t, from, to_int32_t, read)               \
    CAST(i8_##s, int8_t, from, to_int8_t, read)                  \
    CAST(u8_##s, uint8_t, from, to_uint8_t, read)                \
    CAST(bool_##s, uint8_t, from, TRUE, any)                     \
    CAST(f16_##s, uint16_t, from, narrow_f16, wide)              \
    CAST(bf16_##s, uint16_t, from, narrow_bf16, wide)            \
    CAST(c64_##s, struct complex64, from, PAIR, read)
FROM_REAL(f32, float, SAME, SAME, round_to_odd)
FROM_REAL(f64, double, SAME, SAME, round_to_odd)
FROM_REAL(f16, uint16_t, widen_f16, widen_f16, widen_f16)
FROM_REAL(bf16, uint16_t, widen_bf16, widen_bf16, widen_bf16)
FROM_REAL(c64, struct complex64, REAL_PART, EITHER_PART, REAL_PART)

#define FROM_INT(s, from)                                        \
    CAST(f32_##s, float, from, (float), SAME)                    \
    CAST(f64_##s, double, from, (double), SAME)                  \
    CAST(i64_##s, int64_t, from, (int64_t), SAME)                \
    CAST(i32_##s, int32_t, from, (int32_t), SAME)                \
    CAST(i8_##s, int8_t, from, (int8_t), SAME)                   \
    CAST(u8_##s, uint8_t, from, (uint8_t), SAME)                 \
    CAST(bool_##s, uint8_t, from, TRUE, SAME)                    \
    CAST(f16_##s, uint16_t, from, narrow_f16, int_to_odd)           \
    CAST(bf16_##s, uint16_t, from, narrow_bf16, int_to_odd)         \
    CAST(c64_##s, struct complex64, from, PAIR, SAME)
FROM_INT(i64, int64_t)
FROM_INT(i32, int32_t)
FROM_INT(i8, int8_t)
FROM_INT(u8, uint8_t)

#ifndef ON_DEVICE
#define ROW(s)                                                                                                       \
    {[F32] = cast_f32_##s, [F64] = cast_f64_##s, [I64] = cast_i64_##s, [I32] = cast_i32_##s, [I8] = cast_i8_##s,      \
     [U8] = cast_u8_##s, [BOOL] = cast_bool_##s, [F16] = cast_f16_##s, [BF16] = cast_bf16_##s, [C64] = cast_c64_##s}
static const map1 casts[C64 + 1][C64 + 1] = {[F32] = ROW(f32), [F64] = ROW(f64), [I64] = ROW(i64), [I32] = ROW(i32),
                                             [I8] = ROW(i8), [U8] = ROW(u8), [BOOL] = ROW(u8), [F16] = ROW(f16),
                                             [BF16] = ROW(bf16), [C64] = ROW(c64)};

static void k_cast(int to, int from, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a,
                   const int64_t *sa) {
    struct mapping m = {casts[from][to], NULL, dtype_size(to), dtype_size(from)};
    if (to == from) drun_copy(m.in, nd, shape, o, so, a, sa);
    else walk_map(&m, nd, shape, o, so, a, sa, NULL, NULL);
}
#endif
