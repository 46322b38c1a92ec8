// What all kernels are made of, for golden.go: the results of one operation each, side by side.
#include "device.h"
#define CAST(name, to, from, write, read) INLINE to cast_##name(from x) { return write(read(x)); }
#include "cast.h"

KERNEL void primitives(long n, GLOBAL const float *x, GLOBAL const double *y, GLOBAL const long *z, GLOBAL float *f, GLOBAL double *d,
                       GLOBAL long *l, GLOBAL ushort *h) {
    long i = get_global_id(0), k = i;
    if (i >= n) return;
    float a = x[i], b = x[(i + 1) % n], c = x[(i + 5) % n];
    f[k] = canon_f32(a + b), k += n;
    f[k] = canon_f32(a - b), k += n;
    f[k] = canon_f32(a * b), k += n;
    f[k] = canon_f32(a / b), k += n;
    f[k] = canon_f32(sqrt_f32(a)), k += n;
    f[k] = canon_f32(fma_f32(a, b, c)), k += n;
    f[k] = canon_f32(a * b + c), k += n;
    f[k] = canon_f32((float)y[i]), k += n;
    f[k] = (float)z[i], k += n;
    h[i] = cast_f16_f32(a), h[n + i] = cast_bf16_f32(a);
    f[k] = cast_f32_f16(h[i]), k += n;
    f[k] = cast_f32_bf16(h[n + i]);
    double p = y[i], q = y[(i + 1) % n], r = y[(i + 5) % n];
    k = i;
    d[k] = canon_f64(p + q), k += n;
    d[k] = canon_f64(p * q), k += n;
    d[k] = canon_f64(p / q), k += n;
    d[k] = canon_f64(sqrt_f64(p)), k += n;
    d[k] = canon_f64(fma_f64(p, q, r)), k += n;
    d[k] = canon_f64(p * q + r), k += n;
    d[k] = canon_f64((double)a), k += n;
    d[k] = (double)z[i];
    long u = z[i], v = z[(i + 1) % n];
    k = i;
    l[k] = v == 0 || v == -1 ? 0 : u / v, k += n;
    l[k] = v == 0 || v == -1 ? 0 : u % v, k += n;
    l[k] = u >> (v & 63), k += n;
    l[k] = (long)((ulong)u << (v & 63)), k += n;
    l[k] = (long)mul_hi((ulong)u, (ulong)v), k += n;
    l[k] = (uint)u * (uint)v, k += n;
    l[k] = (a < b) | (a == b) << 1 | (p <= q) << 2, k += n;
    l[k] = (long)clamp(canon_f64(p) == p ? p : 0.0, -1e9, 1e9);
}
