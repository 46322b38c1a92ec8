// Random numbers and dropout: the stream of random.h of package kernel.
#include "device.h"
#include "math64.h"
#include "lanes.h"

INLINE uint4 philox(ulong seed, ulong stream, ulong block) {
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32), c0 = (uint)block, c1 = (uint)(block >> 32), c2 = (uint)stream, c3 = (uint)(stream >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        ulong p = 0xD2511F53ul * c0, q = 0xCD9E8D57ul * c2;
        c0 = (uint)(q >> 32) ^ c1 ^ k0;
        c1 = (uint)q;
        c2 = (uint)(p >> 32) ^ c3 ^ k1;
        c3 = (uint)p;
    }
    return (uint4)(c0, c1, c2, c3);
}
// Draw i of draws of one word, or of two.
INLINE uint word(ulong seed, ulong stream, ulong i) {
    uint4 w = philox(seed, stream, i / 4);
    int at = i % 4;
    return at == 0 ? w.x : at == 1 ? w.y : at == 2 ? w.z : w.w;
}
INLINE uint2 pair(ulong seed, ulong stream, ulong i) {
    uint4 w = philox(seed, stream, i / 2);
    return i % 2 ? w.zw : w.xy;
}
INLINE ulong whole(uint2 w) { return (ulong)w.y << 32 | w.x; }

#define DRAW                    \
    long i = get_global_id(0);  \
    if (i >= n) return;         \
    at += (ulong)i

KERNEL void uniform(GLOBAL T *o, long o_at, long n, ulong seed, ulong stream, ulong at) {
    DRAW;
#ifdef DOUBLE
    o[o_at + i] = (double)(whole(pair(seed, stream, at)) >> 11) * 0x1p-53;
#else
    o[o_at + i] = (float)(word(seed, stream, at) >> 8) * 0x1p-24f;
#endif
}

KERNEL void normal(GLOBAL T *o, long o_at, long n, ulong seed, ulong stream, ulong at) {
    DRAW;
    uint2 w = pair(seed, stream, at);
    double u = ((double)w.x + 0.5) * 0x1p-32, v = (double)w.y * 0x1p-32, radius = sqrt_f64(log_f64(u) * -2.0);
    o[o_at + i] = (T)(radius * sin_quadrant_f64(v * 6.283185307179586, 1));
}

KERNEL void bounded(GLOBAL long *o, long o_at, long n, ulong seed, ulong stream, ulong at, long low, ulong range) {
    DRAW;
    ulong u = whole(pair(seed, stream, at));
    o[o_at + i] = (long)((ulong)low + (range ? mul_hi(u, range) : u));
}

KERNEL void dropout(GLOBAL T *o, long o_at, GLOBAL const T *x, long x_at, long n, double keep, ulong seed, ulong stream, ulong at) {
    DRAW;
    uint w = word(seed, stream, at);
#ifdef DOUBLE
    double v = x[x_at + i] / keep;
    o[o_at + i] = (double)(w >> 8) * 0x1p-24 < keep ? canon(v) : 0;
#else
    float v = x[x_at + i] * (float)(1 / keep);
    o[o_at + i] = (float)(w >> 8) * 0x1p-24f < (float)keep ? canon(v) : 0;
#endif
}
