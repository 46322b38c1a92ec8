// Sine and cosine of any argument. sin_quadrant is right while x fits a few multiples of pi/2 in its parts;
// beyond, lanes are reduced one by one with enough bits of 2/pi (Payne and Hanek, 1983).

TABLE uint64_t two_over_pi[] = {
    0, // so that a window of the bits may begin before the point
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
};

#ifndef ON_DEVICE
// r and the quadrant q with x = (4 i + q) pi/2 + r, for finite |x| >= 1.
static double far_reduce(double x, int *q) {
    uint64_t u;
    memcpy(&u, &x, 8);
    uint64_t m = (u & 0xfffffffffffff) | 0x10000000000000;
    // |x| = m 2^e. Bits of 2/pi that give multiples of 4 when multiplied by it are left out.
    int e = (int)(u >> 52 & 0x7ff) - 1075, at = e + 62, word = at / 64, shift = at % 64;
    uint64_t z[3];
    for (int i = 0; i < 3; i++)
        z[i] = two_over_pi[word + i] << shift | (shift ? two_over_pi[word + i + 1] >> (64 - shift) : 0);
    unsigned __int128 low = (unsigned __int128)z[2] * m, middle = (unsigned __int128)z[1] * m + (low >> 64);
    uint64_t high = z[0] * m + (uint64_t)(middle >> 64);
    unsigned __int128 fraction = (unsigned __int128)high << 66 | (unsigned __int128)(uint64_t)middle << 2 | (uint64_t)low >> 62;
    *q = (int)(high >> 62) + (int)(fraction >> 127);
    double r = (double)(__int128)fraction * 0x1p-128 * 1.57079632679489661923;
    if (x < 0) *q = -*q, r = -r;
    return r;
}

static double far_sine(double x, int quadrant) {
    int q;
    double r = far_reduce(x, &q);
    return sin_quadrant_f64(set_f64(r), q + quadrant)[0];
}

#define FAR(s, type, vector, lanes, limit)                                                      \
    static __attribute__((noinline)) vector far_lanes_##s(vector x, vector y, int quadrant) {   \
        for (int i = 0; i < lanes; i++) {                                                       \
            double a = __builtin_fabs((double)x[i]);                                            \
            if (a > limit && a < INFINITY) y[i] = (type)far_sine(x[i], quadrant);               \
        }                                                                                       \
        return y;                                                                               \
    }                                                                                           \
    INLINE vector sine_##s(vector x, int quadrant) {                                            \
        vector y = sin_quadrant_##s(x, quadrant), a = abs_##s(x);                               \
        type most = 0;                                                                          \
        for (int i = 0; i < lanes; i++) most = a[i] > most ? a[i] : most;                       \
        return most > (type)limit ? far_lanes_##s(x, y, quadrant) : y;                          \
    }
FAR(f32, float, vf32, VB / 4, 5e3)
FAR(f64, double, vf64, VB / 8, 1e6)
#endif
