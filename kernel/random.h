// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): block b of a stream is a
// function of (seed, stream, b) alone. One block is four 32-bit words, or two doubles or 64-bit words; element i of a stream is always
// drawn from the same words, however a draw is split.

struct philox {
    uint32_t w[4];
};

INLINE struct philox philox(uint64_t seed, uint64_t stream, uint64_t block) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
        uint64_t p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
    }
    return (struct philox){{c0, c1, c2, c3}};
}

struct draw {
    void *o;
    const void *x;
    uint64_t seed, stream, at, range;
    int64_t low;
    double keep;
};

// Words [first, first + n) of the stream; n a multiple of the caller's block.
static void philox_words(const struct draw *d, uint64_t first, int64_t n, uint32_t *w) {
    uint64_t block = first / 4;
    int64_t skip = first % 4;
    struct philox b;
    int64_t i = 0;
    if (skip) {
        b = philox(d->seed, d->stream, block++);
        for (; skip < 4 && i < n; skip++) w[i++] = b.w[skip];
    }
    for (; i + 4 <= n; i += 4) {
        b = philox(d->seed, d->stream, block++);
        memcpy(w + i, b.w, 16);
    }
    if (i < n) {
        b = philox(d->seed, d->stream, block);
        memcpy(w + i, b.w, (n - i) * 4);
    }
}
INLINE uint64_t word64(const uint32_t *w) { return (uint64_t)w[1] << 32 | w[0]; }

enum { DRAW = 256 };

// One word an element for floats, two for doubles and integers.
#define EACH_DRAW(words, ...)                                                      \
    for (int64_t i = from; i < to; i += DRAW) {                                    \
        int64_t n = to - i < DRAW ? to - i : DRAW;                                 \
        uint32_t w[DRAW * (words)];                                                \
        philox_words(d, (d->at + (uint64_t)i) * (words), n * (words), w);          \
        for (int64_t j = 0; j < n; j++) { __VA_ARGS__ }                            \
    }

static void uniform_f32(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    EACH_DRAW(1, ((float *)d->o)[i + j] = (float)(w[j] >> 8) * 0x1p-24f;)
}
static void uniform_f64(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    EACH_DRAW(2, ((double *)d->o)[i + j] = (double)(word64(w + 2 * j) >> 11) * 0x1p-53;)
}
static void k_uniform(int dt, int64_t n, void *o, uint64_t seed, uint64_t stream, uint64_t at) {
    struct draw d = {.o = o, .seed = seed, .stream = stream, .at = at};
    parallel_range(n, 16384, dt == F32 ? uniform_f32 : uniform_f64, &d);
}

// Box and Muller, each element from two words of its own: sqrt(-2 ln u) cos(2 pi v), in double.
static void normal_block(const uint32_t *w, int64_t n, double *z) {
    enum { M = VB / 8 };
    for (int64_t j = 0; j < n; j += M) {
        double u[M], v[M];
        for (int l = 0; l < M; l++) {
            int64_t at = j + l < n ? j + l : n - 1;
            u[l] = ((double)w[2 * at] + 0.5) * 0x1p-32;
            v[l] = (double)w[2 * at + 1] * 0x1p-32;
        }
        vf64 radius = sqrt_f64(log_f64(load_f64(u)) * -2.0);
        store_n_f64(z + j, radius * cos_f64(load_f64(v) * 6.283185307179586), some_f64(n - j));
    }
}
static void normal_f32(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    double z[DRAW];
    EACH_DRAW(2, if (j == 0) normal_block(w, n, z); ((float *)d->o)[i + j] = (float)z[j];)
}
static void normal_f64(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    double z[DRAW];
    EACH_DRAW(2, if (j == 0) normal_block(w, n, z); ((double *)d->o)[i + j] = z[j];)
}
static void k_normal(int dt, int64_t n, void *o, uint64_t seed, uint64_t stream, uint64_t at) {
    struct draw d = {.o = o, .seed = seed, .stream = stream, .at = at};
    parallel_range(n, 8192, dt == F32 ? normal_f32 : normal_f64, &d);
}

// low + floor(u range / 2^64) for a 64-bit u; range 0 stands for 2^64. The bias is at most range / 2^64.
static void bounded_range(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    EACH_DRAW(2, {
        uint64_t u = word64(w + 2 * j);
        if (d->range) u = (uint64_t)((unsigned __int128)u * d->range >> 64);
        ((int64_t *)d->o)[i + j] = (int64_t)((uint64_t)d->low + u);
    })
}
static void k_bounded(int64_t n, int64_t *o, int64_t low, uint64_t range, uint64_t seed, uint64_t stream, uint64_t at) {
    struct draw d = {.o = o, .low = low, .range = range, .seed = seed, .stream = stream, .at = at};
    parallel_range(n, 8192, bounded_range, &d);
}

// x / keep where a uniform draw lies below keep, else 0; backward is the same call on the gradient.
static void dropout_f32(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    float scale = (float)(1 / d->keep), keep = (float)d->keep;
    EACH_DRAW(1, {
        float v = ((const float *)d->x)[i + j] * scale;
        ((float *)d->o)[i + j] = (float)(w[j] >> 8) * 0x1p-24f < keep ? (v == v ? v : __builtin_nanf("")) : 0;
    })
}
static void dropout_f64(void *ctx, int64_t from, int64_t to) {
    const struct draw *d = ctx;
    EACH_DRAW(1, {
        double v = ((const double *)d->x)[i + j] / d->keep;
        ((double *)d->o)[i + j] = (double)(w[j] >> 8) * 0x1p-24 < d->keep ? (v == v ? v : __builtin_nan("")) : 0;
    })
}
static void k_dropout(int dt, int64_t n, void *o, const void *x, double keep, uint64_t seed, uint64_t stream, uint64_t at) {
    struct draw d = {.o = o, .x = x, .keep = keep, .seed = seed, .stream = stream, .at = at};
    parallel_range(n, 16384, dt == F32 ? dropout_f32 : dropout_f64, &d);
}
