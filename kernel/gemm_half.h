// Matrix products of bfloat16, added up in float32: C = A B (+ C) (+ bias on each row).
//
// Each element of C is a sum over blocks of 32 values of k, added in order, from zero. A block's sum is that of
// two chains of 16 fused multiply-adds in increasing k, each from zero: over the even values of k and over the
// odd ones. That is what the tile instructions of Intel's AMX do, and what those for pairs of AVX512-BF16 can be made
// to do; the other paths do the same with float32's multiply-adds. Both take denormals for zero and make none: they
// are used only where the operands are so large that no sum could be one (see whole_range).
//
// Operands may also be float32, which is rounded to bfloat16 on the way.

enum {
    TILE_LINES = 16,                // of a tile: rows of A, columns of B
    TILE_DEEP = 32,                 // values of k of a tile
    TILE_SIZE = TILE_LINES * TILE_DEEP,  // elements of a tile
    HALF_A = 512 << 10,        // bytes of A that are used while they are in the second-level cache
    HALF_B = 1 << 20,          // bytes of B likewise
    HALF_PACKED = 8 << 20      // bytes of A that are packed at once
};

// An operand: line i begins at data + i * line, its k-th element k * step further on; one of the two is 1.
struct half_operand {
    const void *data;
    int wide; // float32
    int64_t line, step;
};

INLINE const void *half_at(const struct half_operand *o, int64_t line, int64_t k) {
    return (const char *)o->data + (line * o->line + k * o->step) * (o->wide ? 4 : 2);
}

// n elements of adjacent memory as bfloat16.
INLINE void take_half(uint16_t *to, const void *from, int wide, int64_t n) {
    if (wide) for (int64_t i = 0; i < n; i++) to[i] = narrow_bf16(((const float *)from)[i]);
    else memcpy(to, from, n * 2);
}

// Pairs of n lines side by side, of an even value of k and the odd one after it.
INLINE void pair_lines(uint32_t *to, const void *even, const void *odd, int wide, int n) {
    if (wide) {
        const float *e = even, *o = odd;
        for (int i = 0; i < n; i++) to[i] = narrow_bf16(e[i]) | (uint32_t)narrow_bf16(o[i]) << 16;
    } else {
        const uint16_t *e = even, *o = odd;
        for (int i = 0; i < n; i++) to[i] = e[i] | (uint32_t)o[i] << 16;
    }
}

// 16 x 16 pairs, rows for columns.
static void turn_pairs(uint32_t *t) {
#if VB == 64
    vf32 r[16];
    for (int i = 0; i < 16; i++) r[i] = load_f32((const float *)t + 16 * i);
    transpose_f32(r);
    for (int i = 0; i < 16; i++) store_f32((float *)t + 16 * i, r[i]);
#else
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < i; j++) {
            uint32_t x = t[16 * i + j];
            t[16 * i + j] = t[16 * j + i];
            t[16 * j + i] = x;
        }
#endif
}

// A tile of lines x deep elements, zeros beyond. by_line: lines of pairs of k, as A has them; else for each pair
// of k the lines side by side, as B has them.
static void pack_tile(uint32_t *tile, const struct half_operand *o, int64_t line, int64_t k, int lines, int deep, int by_line) {
    if (lines < TILE_LINES || deep < TILE_DEEP) memset(tile, 0, TILE_SIZE * 2);
    if (o->step == 1) {
        uint16_t *t = (uint16_t *)tile;
        for (int i = 0; i < lines; i++)
            if (deep == TILE_DEEP) take_half(t + i * TILE_DEEP, half_at(o, line + i, k), o->wide, TILE_DEEP);
            else take_half(t + i * TILE_DEEP, half_at(o, line + i, k), o->wide, deep);
    } else {
        static const float zeros[TILE_LINES];
        for (int p = 0; p < (deep + 1) / 2; p++) {
            const void *even = half_at(o, line, k + 2 * p), *odd = 2 * p + 1 < deep ? half_at(o, line, k + 2 * p + 1) : zeros;
            __builtin_prefetch((const char *)even + 128); // of panels to come: rows may lie a page apart
            __builtin_prefetch((const char *)odd + 128);
            if (lines == TILE_LINES) pair_lines(tile + p * TILE_LINES, even, odd, o->wide, TILE_LINES);
            else pair_lines(tile + p * TILE_LINES, even, odd, o->wide, lines);
        }
    }
    if ((o->step == 1) != by_line) turn_pairs(tile);
}

// The exponent of the smallest number but 0 in a tile, 512 if there is none.
static int least_exponent(const uint16_t *t) {
    uint16_t least = 0xffff;
    for (int i = 0; i < TILE_SIZE; i++) {
        uint16_t v = (t[i] & 0x7fff) - 1;
        least = v < least ? v : least;
    }
    return (least + 1) >> 7;
}

typedef vu32 __attribute__((aligned(4), may_alias)) vu32_any;

#ifdef PATH_TILES
#include "gemm_pairs.h"
#endif

// What multiplies blocks: multiply-adds of float32, tiles or pairs.
enum half_unit { BY_FLOATS, BY_TILES, BY_PAIRS };

// Panels of 16 lines, each of them its tiles along k. least: each panel's least exponent, unless by floats. Lines of
// adjacent k are read side by side, others k after k.
static void pack_half(uint16_t *to, const struct half_operand *o, int64_t from, int64_t lines, int64_t k, enum half_unit unit, int by_line,
                      int *least) {
    int64_t panels = (lines + TILE_LINES - 1) / TILE_LINES, blocks = (k + TILE_DEEP - 1) / TILE_DEEP;
    if (unit != BY_FLOATS) for (int64_t i = 0; i < panels; i++) least[i] = 512;
    for (int64_t n = 0; n < panels * blocks; n++) {
        int64_t i = o->step == 1 ? n / blocks : n % panels, l = o->step == 1 ? n % blocks : n / panels;
        int64_t width = lines - i * TILE_LINES, deep = k - l * TILE_DEEP;
        uint16_t *tile = to + (i * blocks + l) * TILE_SIZE;
        pack_tile((uint32_t *)tile, o, from + i * TILE_LINES, l * TILE_DEEP, width < TILE_LINES ? width : TILE_LINES,
                  deep < TILE_DEEP ? deep : TILE_DEEP, by_line);
        if (unit == BY_FLOATS) continue;
        int e = least_exponent(tile);
        least[i] = e < least[i] ? e : least[i];
#ifdef PATH_TILES
        if (unit == BY_PAIRS) exchange_ends((uint32_t *)tile, by_line);
#endif
    }
}

// Whether no product of these operands and no sum of such is a denormal: with 8 bits each, everything is a
// multiple of 2^(ea + eb - 2 * 134), which must not be below the smallest normal number.
INLINE int whole_range(int ea, int eb) { return ea > 0 && eb > 0 && ea + eb - 268 >= -126; }

// What happens to finished sums.
struct half_out {
    void *c;
    int wide, accumulate;
    int64_t ldc;
    const float *bias;
};

// Inlined, so that whole panels have loops of constant length.
INLINE void finish_half(const struct half_out *o, const float *sums, int64_t ld, int64_t i, int64_t j, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float x[2 * TILE_LINES];
        int64_t at = (i + r) * o->ldc + j;
        float *c = (float *)o->c + at;
        memcpy(x, sums + r * ld, cols * sizeof *x);
        if (o->accumulate) for (int s = 0; s < cols; s++) x[s] = c[s] + x[s];
        if (o->bias) for (int s = 0; s < cols; s++) x[s] += o->bias[j + s];
        if (o->wide) for (int s = 0; s < cols; s++) c[s] = NAN32(x[s]);
        else for (int s = 0; s < cols; s++) ((uint16_t *)o->c + at)[s] = narrow_bf16(x[s]);
    }
}

#ifdef PATH_TILES
typedef uint16_t vhalves __attribute__((vector_size(VB / 2)));
typedef vhalves __attribute__((aligned(2), may_alias)) vhalves_any;

// Stores a vector as narrow_bf16 gives each element.
INLINE void store_half(uint16_t *to, vf32 x) {
    vu32 u = (vu32)x, rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, is = (vu32)(x == x);
    *(vhalves_any *)to = __builtin_convertvector((rounded & is) | (0x7fc0 & ~is), vhalves);
}

// finish_half of whole rows of a pair of panels, without a way through memory.
static void finish_whole(const struct half_out *o, const float *sums, int64_t i, int64_t j, int rows) {
    for (int r = 0; r < rows; r++) {
        int64_t at = (i + r) * o->ldc + j;
        for (int v = 0; v < 2 * TILE_LINES; v += VB / 4) {
            vf32 x = load_f32(sums + r * 2 * TILE_LINES + v);
            if (o->accumulate) x = load_f32((float *)o->c + at + v) + x;
            if (o->bias) x += load_f32(o->bias + j + v);
            if (o->wide) store_f32((float *)o->c + at + v, canon_f32(x));
            else store_half((uint16_t *)o->c + at + v, x);
        }
    }
}

// Fetches where sums will go, before they are computed.
INLINE void fetch_half(const struct half_out *o, int64_t i, int64_t j, int rows, int cols) {
    int size = o->wide ? 4 : 2;
    for (int r = 0; r < rows; r++) {
        const char *c = (const char *)o->c + ((i + r) * o->ldc + j) * size;
        for (int at = 0; at < cols * size; at += 64) __builtin_prefetch(c + at, 1);
    }
}
#endif

// Rows of A at once, and vectors of a panel of B: a product's chains, as many as hide a multiply-add's latency.
enum { HALF_ROWS = VB == 64 ? 8 : 4, HALF_VECTORS = 64 / VB };

// Panels of A as float32, HALF_ROWS lines together: for each block the even values of k, then the odd ones.
// by_line: as tiles are packed for AMX, else as those of B.
static void widen_panels(float *to, const uint32_t *from, int64_t panels, int64_t blocks, int by_line) {
    uint32_t turned[TILE_SIZE / 2];
    for (int64_t i = 0; i < panels; i++, to += blocks * TILE_SIZE)
        for (int64_t b = 0; b < blocks; b++, from += TILE_SIZE / 2) {
            const uint32_t *tile = from;
            if (by_line) {
                memcpy(turned, from, sizeof turned);
                turn_pairs(turned);
                tile = turned;
            }
            for (int row = 0; row < TILE_LINES; row += HALF_ROWS) {
                float *even = to + (row * blocks + b * HALF_ROWS) * TILE_DEEP, *odd = even + 16 * HALF_ROWS;
                for (int p = 0; p < 16; p++)
                    for (int r = 0; r < HALF_ROWS; r++) {
                        uint32_t pair = tile[p * TILE_LINES + row + r], low = pair << 16, high = pair & 0xffff0000;
                        memcpy(even + p * HALF_ROWS + r, &low, 4);
                        memcpy(odd + p * HALF_ROWS + r, &high, 4);
                    }
            }
        }
}

// The even or the odd values of k of a packed pair.
INLINE vf32 half_of(const uint32_t *pairs, int odd) {
    vu32 pair = *(const vu32_any *)pairs;
    return (vf32)(odd ? pair & 0xffff0000 : pair << 16);
}

// One of a block's chains.
INLINE void half_chain(vf32 acc[HALF_ROWS][HALF_VECTORS], const float *a, const uint32_t *b, int odd) {
    _Pragma("GCC unroll 16") for (int r = 0; r < HALF_ROWS; r++)
        _Pragma("GCC unroll 4") for (int v = 0; v < HALF_VECTORS; v++) acc[r][v] = set_f32(0);
    _Pragma("GCC unroll 1") for (int p = 0; p < 16; p++) {
        vf32 y[HALF_VECTORS];
        _Pragma("GCC unroll 4") for (int v = 0; v < HALF_VECTORS; v++) y[v] = half_of(b + p * 16 + v * (VB / 4), odd);
        _Pragma("GCC unroll 16") for (int r = 0; r < HALF_ROWS; r++) {
            vf32 x = set_f32(a[p * HALF_ROWS + r]);
            _Pragma("GCC unroll 4") for (int v = 0; v < HALF_VECTORS; v++) acc[r][v] = fma_f32(x, y[v], acc[r][v]);
        }
    }
}

// sums[row][column] of HALF_ROWS rows by 16 columns.
static void half_rows(float *sums, const float *a, const uint32_t *b, int64_t blocks) {
    memset(sums, 0, HALF_ROWS * TILE_LINES * sizeof(float));
    for (int64_t k = 0; k < blocks; k++, a += HALF_ROWS * TILE_DEEP, b += TILE_SIZE / 2) {
        vf32 acc[HALF_ROWS][HALF_VECTORS];
        float even[HALF_ROWS * TILE_LINES];
        half_chain(acc, a, b, 0);
        _Pragma("GCC unroll 16") for (int r = 0; r < HALF_ROWS; r++)
            _Pragma("GCC unroll 4") for (int v = 0; v < HALF_VECTORS; v++) store_f32(even + r * TILE_LINES + v * (VB / 4), acc[r][v]);
        half_chain(acc, a + HALF_ROWS * 16, b, 1);
        _Pragma("GCC unroll 16") for (int r = 0; r < HALF_ROWS; r++)
            _Pragma("GCC unroll 4") for (int v = 0; v < HALF_VECTORS; v++) {
                int at = r * TILE_LINES + v * (VB / 4);
                store_f32(sums + at, load_f32(sums + at) + (load_f32(even + at) + acc[r][v]));
            }
    }
}

#ifdef PATH_TILES
// Sums of one or two panels of A by one or two of B, row by row, 32 columns wide.
struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};
#define TILE_SUMS(ra, cb)                                                                                    \
    static void tile_sums_##ra##_##cb(float *sums, const uint16_t *a, const uint16_t *b, int64_t blocks) {   \
        const uint16_t *a1 = a + blocks * TILE_SIZE, *b1 = b + blocks * TILE_SIZE;                            \
        _tile_zero(0);                                                                                       \
        if (cb > 1) _tile_zero(1);                                                                           \
        if (ra > 1) _tile_zero(2);                                                                           \
        if (ra > 1 && cb > 1) _tile_zero(3);                                                                 \
        for (int64_t k = 0; k < blocks; k++) {                                                               \
            _tile_loadd(4, a + k * TILE_SIZE, 64);                                                           \
            _tile_loadd(6, b + k * TILE_SIZE, 64);                                                           \
            if (ra > 1) _tile_loadd(5, a1 + k * TILE_SIZE, 64);                                              \
            if (cb > 1) _tile_loadd(7, b1 + k * TILE_SIZE, 64);                                              \
            _tile_dpbf16ps(0, 4, 6);                                                                         \
            if (cb > 1) _tile_dpbf16ps(1, 4, 7);                                                             \
            if (ra > 1) _tile_dpbf16ps(2, 5, 6);                                                             \
            if (ra > 1 && cb > 1) _tile_dpbf16ps(3, 5, 7);                                                   \
        }                                                                                                    \
        _tile_stored(0, sums, 128);                                                                          \
        if (cb > 1) _tile_stored(1, sums + 16, 128);                                                         \
        if (ra > 1) _tile_stored(2, sums + 16 * 32, 128);                                                    \
        if (ra > 1 && cb > 1) _tile_stored(3, sums + 16 * 32 + 16, 128);                                     \
    }
TILE_SUMS(1, 1) TILE_SUMS(1, 2) TILE_SUMS(2, 1) TILE_SUMS(2, 2)
#undef TILE_SUMS
#endif

struct half_product {
    int64_t m, n, k, batch, rows, columns, row_parts, column_parts;
    struct half_operand a, b;
    struct half_out out;
    int64_t sa, sb, sc;
    enum half_unit unit;
};

// Rows of A, widened, by columns of packed B, without tile instructions.
static void half_block(const struct half_out *o, const float *a, const uint16_t *b, int64_t blocks, int64_t i, int64_t j, int rows, int cols) {
    float sums[HALF_ROWS * TILE_LINES];
    for (int c = 0; c < cols; c += TILE_LINES)
        for (int r = 0; r < rows; r += HALF_ROWS) {
            half_rows(sums, a + r * blocks * TILE_DEEP, (const uint32_t *)(b + c * blocks * TILE_DEEP), blocks);
            int some = rows - r < HALF_ROWS ? rows - r : HALF_ROWS;
            if (cols - c >= TILE_LINES) finish_half(o, sums, TILE_LINES, i + r, j + c, some, TILE_LINES);
            else finish_half(o, sums, TILE_LINES, i + r, j + c, some, cols - c);
        }
}

INLINE int64_t whole_panels(int64_t n) { return (n + TILE_LINES - 1) / TILE_LINES; }

// The lines that so many bytes hold, in pairs of panels, at most all of them.
INLINE int64_t lines_in(int64_t bytes, int64_t blocks, int64_t all) {
    int64_t n = bytes / (blocks * TILE_DEEP * 2) / (2 * TILE_LINES) * (2 * TILE_LINES);
    if (n < 2 * TILE_LINES) n = 2 * TILE_LINES;
    return n < all ? n : all;
}

// A product of one thread.
static void half_part(const struct half_product *p, int64_t m, int64_t n, struct half_operand a, struct half_operand b, struct half_out o) {
    enum half_unit unit = p->unit;
    int64_t blocks = (p->k + TILE_DEEP - 1) / TILE_DEEP, panel = blocks * TILE_SIZE;
    if (blocks == 0) blocks = 1, panel = 0; // the sum of nothing
    int64_t packed_a = lines_in(HALF_PACKED, blocks, m), packed_b = lines_in(HALF_B, blocks, n);
    int64_t step = lines_in(unit ? HALF_A : HALF_A / 2, blocks, packed_a), widest = unit ? 2 * TILE_LINES : step;
    int64_t pa = whole_panels(packed_a), pb = whole_panels(packed_b);
    size_t tiles = (size_t)(pa + pb + (unit == BY_PAIRS ? 4 : 0)) * panel * 2, widened = whole_panels(widest) * panel * 4;
    char *room = scratch_take(64 + tiles + widened + (pa + pb) * sizeof(int));
    if (!room) return;
    uint16_t *ta = (uint16_t *)(((uintptr_t)room + 63) & ~(uintptr_t)63), *tb = ta + pa * panel;
    float *wide = (float *)((char *)ta + tiles);
    int *la = (int *)((char *)wide + widened), *lb = la + pa;
    if (panel == 0) blocks = 0;
#ifdef PATH_TILES
    if (unit == BY_TILES) {
        struct tile_shapes shapes = {.palette = 1};
        for (int i = 0; i < 8; i++) shapes.bytes[i] = 64, shapes.rows[i] = 16;
        _tile_loadconfig(&shapes);
    }
#endif
    for (int64_t i0 = 0; i0 < m; i0 += packed_a) {
        int64_t mc = m - i0 < packed_a ? m - i0 : packed_a;
        pack_half(ta, &a, i0, mc, p->k, unit, unit != BY_FLOATS, la);
        for (int64_t j0 = 0; j0 < n; j0 += packed_b) {
            int64_t nc = n - j0 < packed_b ? n - j0 : packed_b;
            pack_half(tb, &b, j0, nc, p->k, unit, 0, lb);
            for (int64_t i1 = 0; i1 < mc; i1 += step) {
                int64_t here = whole_panels(mc - i1 < step ? mc - i1 : step);
                if (!unit) widen_panels(wide, (uint32_t *)(ta + i1 / TILE_LINES * panel), here, blocks, 0);
                for (int64_t j = 0; j < nc; j += 2 * TILE_LINES)
                    for (int64_t i = i1; i < mc && i < i1 + step; i += 2 * TILE_LINES) {
                        int rows = mc - i < 2 * TILE_LINES ? mc - i : 2 * TILE_LINES, cols = nc - j < 2 * TILE_LINES ? nc - j : 2 * TILE_LINES;
                        const uint16_t *at = ta + i / TILE_LINES * panel, *bt = tb + j / TILE_LINES * panel;
#ifdef PATH_TILES
                        const int *ea = la + i / TILE_LINES, *eb = lb + j / TILE_LINES;
                        int ra = rows > TILE_LINES ? 2 : 1, cb = cols > TILE_LINES ? 2 : 1;
                        if (unit && blocks && whole_range(ra > 1 && ea[1] < *ea ? ea[1] : *ea, cb > 1 && eb[1] < *eb ? eb[1] : *eb)) {
                            float sums[32 * 32] __attribute__((aligned(64)));
                            fetch_half(&o, i0 + i, j0 + j, rows, cols);
                            if (unit == BY_PAIRS) pair_sums(sums, at, bt, blocks, rows, cb);
                            else if (ra == 2 && cb == 2) tile_sums_2_2(sums, at, bt, blocks);
                            else if (ra == 2) tile_sums_2_1(sums, at, bt, blocks);
                            else if (cb == 2) tile_sums_1_2(sums, at, bt, blocks);
                            else tile_sums_1_1(sums, at, bt, blocks);
                            if (cols == 2 * TILE_LINES) finish_whole(&o, sums, i0 + i, j0 + j, rows);
                            else finish_half(&o, sums, 32, i0 + i, j0 + j, rows, cols);
                            continue;
                        }
                        if (unit == BY_PAIRS) {
                            uint16_t *plain = tb + pb * panel;
                            at = unpaired(plain, at, ra * blocks, 1);
                            bt = unpaired(plain + 2 * panel, bt, cb * blocks, 0);
                        }
#endif
                        if (unit) widen_panels(wide, (const uint32_t *)at, whole_panels(rows), blocks, 1);
                        half_block(&o, unit ? wide : wide + (i - i1) * blocks * TILE_DEEP, bt, blocks, i0 + i, j0 + j, rows, cols);
                    }
            }
        }
    }
#ifdef PATH_TILES
    if (unit == BY_TILES) _tile_release();
#endif
    scratch_give(room);
}

static void half_parts(void *ctx, int64_t t) {
    const struct half_product *p = ctx;
    int64_t j = t % p->column_parts * p->columns, i = t / p->column_parts % p->row_parts * p->rows;
    int64_t batch = t / p->column_parts / p->row_parts;
    struct half_operand a = p->a, b = p->b;
    a.data = (const char *)half_at(&a, i, 0) + batch * p->sa * (a.wide ? 4 : 2);
    b.data = (const char *)half_at(&b, j, 0) + batch * p->sb * (b.wide ? 4 : 2);
    struct half_out o = p->out;
    o.c = (char *)o.c + (batch * p->sc + i * o.ldc + j) * (o.wide ? 4 : 2);
    if (o.bias) o.bias += j;
    half_part(p, p->m - i < p->rows ? p->m - i : p->rows, p->n - j < p->columns ? p->n - j : p->columns, a, b, o);
}

INLINE void gemm_half(enum half_unit unit, int dt, int ta, int tb, int64_t m, int64_t n, int64_t k, int da, const void *a, int64_t lda, int db,
                      const void *b, int64_t ldb, void *c, int64_t ldc, const void *bias, int accumulate, int64_t batch, int64_t sa,
                      int64_t sb, int64_t sc) {
    if (m == 0 || n == 0 || batch == 0) return;
    struct half_product p = {m, n, k, batch, m, n, 1, 1,
                             {a, da == F32, ta ? 1 : lda, ta ? lda : 1}, {b, db == F32, tb ? ldb : 1, tb ? 1 : ldb},
                             {c, dt == F32, accumulate, ldc, bias}, sa, sb, sc, unit};
    int64_t threads = drun_threads(), work = m * n * (k + 1);
    if (threads > 1 && work * batch > 1 << 18)
        while (p.row_parts * p.column_parts * batch < 2 * threads && p.rows * p.columns * (k + 1) > 1 << 17) {
            int64_t *side = p.rows >= p.columns ? &p.rows : &p.columns;
            if (*side <= 2 * TILE_LINES) break;
            *side = (*side / 2 + 2 * TILE_LINES - 1) / (2 * TILE_LINES) * (2 * TILE_LINES);
            p.row_parts = (m + p.rows - 1) / p.rows;
            p.column_parts = (n + p.columns - 1) / p.columns;
        }
    int64_t parts = p.row_parts * p.column_parts * batch;
    if (work * batch <= 1 << 18)
        for (int64_t t = 0; t < parts; t++) half_parts(&p, t);
    else
        parallel_for(parts, half_parts, &p);
}

#define GEMM_HALF(name, unit)                                                                                                \
    static void name(int dt, int ta, int tb, int64_t m, int64_t n, int64_t k, int da, const void *a, int64_t lda, int db,    \
                     const void *b, int64_t ldb, void *c, int64_t ldc, const void *bias, int accumulate, int64_t batch,      \
                     int64_t sa, int64_t sb, int64_t sc) {                                                                   \
        gemm_half(unit, dt, ta, tb, m, n, k, da, a, lda, db, b, ldb, c, ldc, bias, accumulate, batch, sa, sb, sc);           \
    }
GEMM_HALF(k_gemm_half, BY_FLOATS)
#ifdef PATH_TILES
GEMM_HALF(k_gemm_tiles, BY_TILES)
GEMM_HALF(k_gemm_pairs, BY_PAIRS)
#endif
