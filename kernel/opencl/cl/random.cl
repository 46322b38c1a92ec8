// Dropout: the stream of random.h of package kernel.
#include "device.h"
#include "lanes.h"

INLINE uint philox(ulong seed, ulong stream, ulong block, int word) {
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32), c0 = (uint)block, c1 = (uint)(block >> 32), c2 = (uint)stream, c3 = (uint)(stream >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        ulong p = 0xD2511F53ul * c0, q = 0xCD9E8D57ul * c2;
        c0 = (uint)(q >> 32) ^ c1 ^ k0;
        c1 = (uint)q;
        c2 = (uint)(p >> 32) ^ c3 ^ k1;
        c3 = (uint)p;
    }
    return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}

KERNEL void dropout(GLOBAL T *o, long o_at, GLOBAL const T *x, long x_at, long n, double keep, ulong seed, ulong stream, ulong at) {
    long i = get_global_id(0);
    if (i >= n) return;
    ulong draw = at + (ulong)i;
    uint w = philox(seed, stream, draw / 4, draw % 4);
#ifdef DOUBLE
    double v = x[x_at + i] / keep;
    o[o_at + i] = (double)(w >> 8) * 0x1p-24 < keep ? canon(v) : 0;
#else
    float v = x[x_at + i] * (float)(1 / keep);
    o[o_at + i] = (float)(w >> 8) * 0x1p-24f < (float)keep ? canon(v) : 0;
#endif
}
