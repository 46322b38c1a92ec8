// Sums of products of bfloat16 by AVX512-BF16. Its vdpbf16ps takes vectors of pairs and adds to each float32 the product of
// the upper halves, then that of the lower ones, each rounded as by a fused multiply-add (drun_pairs_in_order tries it).
// Denormals count as zero, as with AMX.
//
// A pair must be two neighbours of one chain. So tiles have the first and the last of each four values of k exchanged:
// where they have the pairs 1:0 and 3:2, upper half first, these have 1:3 of the odd chain and 0:2 of the even one.

// The exchange, which undoes itself. by_line: lines of pairs, else for each pair the lines side by side.
static void exchange_ends(uint32_t *tile, int by_line) {
    if (by_line) {
        typedef uint64_t vfours __attribute__((vector_size(VB), may_alias));
        for (int i = 0; i < TILE_SIZE / 2; i += VB / 4) {
            vfours *fours = (vfours *)(tile + i), x = *fours, differ = (x ^ x >> 48) & 0xffff;
            *fours = x ^ differ ^ differ << 48;
        }
    } else {
        typedef uint32_t vpairs __attribute__((vector_size(VB), may_alias));
        for (int i = 0; i < TILE_SIZE / 2; i += 2 * TILE_LINES) {
            vpairs *low = (vpairs *)(tile + i), *high = low + 1, x = *low, y = *high;
            *low = (x & 0xffff0000) | y >> 16;
            *high = (y & 0xffff) | x << 16;
        }
    }
}

// A copy of so many tiles without the exchange.
static const uint16_t *unpaired(uint16_t *to, const uint16_t *from, int64_t tiles, int by_line) {
    memcpy(to, from, tiles * TILE_SIZE * 2);
    for (int64_t i = 0; i < tiles; i++) exchange_ends((uint32_t *)(to + i * TILE_SIZE), by_line);
    return to;
}

INLINE vf32 add_pairs(vf32 sum, uint32_t a, vu32 b) {
    return (vf32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
}

// Sums of some rows of A by one or two panels of B, which lie `apart`: all in registers. first: they begin here.
INLINE void pair_rows(int rows, int panels, float *sums, const uint32_t *a, const uint32_t *b, int64_t apart, int64_t blocks, int first) {
    vf32 total[8][2];
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++)
            total[r][v] = first ? set_f32(0) : load_f32(sums + r * 2 * TILE_LINES + v * TILE_LINES);
    _Pragma("GCC unroll 1") for (int64_t k = 0; k < blocks; k++, a += TILE_SIZE / 2, b += TILE_SIZE / 2) {
        vf32 odd[8][2], even[8][2];
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
            _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++) odd[r][v] = even[r][v] = set_f32(0);
        _Pragma("GCC unroll 8") for (int p = 0; p < TILE_DEEP / 2; p += 2) {
            vu32 y[2], z[2];
            _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++) {
                y[v] = *(const vu32_any *)(b + v * apart + p * TILE_LINES);
                z[v] = *(const vu32_any *)(b + v * apart + (p + 1) * TILE_LINES);
            }
            _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
                _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++) {
                    odd[r][v] = add_pairs(odd[r][v], a[r * TILE_DEEP / 2 + p], y[v]);
                    even[r][v] = add_pairs(even[r][v], a[r * TILE_DEEP / 2 + p + 1], z[v]);
                }
        }
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
            _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++) total[r][v] += even[r][v] + odd[r][v];
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)
        _Pragma("GCC unroll 2") for (int v = 0; v < panels; v++) store_f32(sums + r * 2 * TILE_LINES + v * TILE_LINES, total[r][v]);
}

static void pair_rows_4_2(float *sums, const uint32_t *a, const uint32_t *b, int64_t apart, int64_t blocks, int first) {
    pair_rows(4, 2, sums, a, b, apart, blocks, first);
}
static void pair_rows_8_1(float *sums, const uint32_t *a, const uint32_t *b, int64_t apart, int64_t blocks, int first) {
    pair_rows(8, 1, sums, a, b, apart, blocks, first);
}

// Sums of up to two panels of A by one or two of B, row by row, 32 columns wide. B stays in the first-level cache for so
// many blocks.
enum { PAIR_BLOCKS = 8 };
static void pair_sums(float *sums, const uint16_t *a, const uint16_t *b, int64_t blocks, int rows, int panels) {
    int64_t panel = blocks * TILE_SIZE / 2;
    int step = panels > 1 ? 4 : 8;
    for (int64_t k = 0; k < blocks; k += PAIR_BLOCKS) {
        int64_t some = blocks - k < PAIR_BLOCKS ? blocks - k : PAIR_BLOCKS;
        const uint32_t *y = (const uint32_t *)b + k * TILE_SIZE / 2;
        for (int r = 0; r < rows; r += step) {
            const uint32_t *x = (const uint32_t *)a + r / TILE_LINES * panel + k * TILE_SIZE / 2 + r % TILE_LINES * TILE_DEEP / 2;
            (panels > 1 ? pair_rows_4_2 : pair_rows_8_1)(sums + r * 2 * TILE_LINES, x, y, panel, some, k == 0);
        }
    }
}

// Whether vdpbf16ps adds as said above: compared with multiply-adds of numbers that partly cancel, and of ones so large
// that a product rounded by itself would be infinite.
int drun_pairs_in_order(void) {
    uint32_t state = 1, same = 0xffff;
    for (int i = 0; i < 128; i++) {
        uint32_t x[3][16], least = i % 4 ? 124 : 248;
        for (int j = 0; j < 16; j++)
            for (int o = 0; o < 3; o++) {
                state ^= state << 13, state ^= state >> 17, state ^= state << 5;
                uint32_t e = (least + (state >> 7 & 3)) << 7, f = (least + (state >> 23 & 3)) << 7;
                x[o][j] = (state & 0x807f807f) | e | f << 16;
                if (i % 4 == 0 && o == 2) x[o][j] = (state & 0x80000000) | 0x7f800000; // an infinite sum so far
            }
        __m512i a = _mm512_loadu_si512(x[0]), b = _mm512_loadu_si512(x[1]), upper = _mm512_set1_epi32((int)0xffff0000);
        __m512 sum = _mm512_loadu_ps(x[2]), got = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
        sum = _mm512_fmadd_ps((__m512)_mm512_and_si512(a, upper), (__m512)_mm512_and_si512(b, upper), sum);
        sum = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(a, 16), (__m512)_mm512_slli_epi32(b, 16), sum);
        same &= _mm512_cmpeq_epi32_mask((__m512i)got, (__m512i)sum);
    }
    return same == 0xffff;
}
