// A product of few rows by a transposed matrix, such as a linear layer of a small batch: to pack B would take as long
// as a dozen more rows. So it is made as C' = B A', whose long operand is read once, in place; A', which is short, is
// packed, and C is turned on its way out of the first cache. The chains are those of gemm.h.
// Most rows of A, and how many rows of B have their results turned together: whole tiles and whole vectors.
enum { S(FEW) = 64, S(FEW_STRIP) = 48 };

// Whether such a product is worth it: hardly any lane may be left empty.
static int S(few_rows)(const struct S(product) *p) {
    int64_t empty = (N - p->m % N) % N;
    return p->bk == 1 && p->bn != 1 && p->m >= S(MR) && empty <= p->m / 8 && p->m <= S(FEW) &&
           p->n >= S(MR) && p->k >= N && p->k <= S(KC) * S(NC) / S(FEW) && !p->accumulate;
}

// Writes rows x columns results, from[row * NR + column], as columns of C.
static void S(turn)(T *c, int64_t ldc, const T *from, int64_t rows, int64_t columns, const T *bias) {
    for (int64_t i = 0; i < rows; i += N) {
        int n = S(some)(rows - i);
        V beta = bias ? S(load_n)(bias + i, n) : S(set)(0);
        for (int64_t j = 0; j < columns; j += N) {
            int have = S(some)(columns - j);
            V r[N];
            _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) r[l] = S(load)(from + (i + l) * S(NR) + j);
            S(transpose)(r);
            _Pragma("GCC unroll 16") for (int l = 0; l < N; l++)
                if (l < have) S(store_n)(c + (j + l) * ldc + i, bias ? S(canon)(r[l] + beta) : r[l], n);
        }
    }
}

static void S(gemm_few)(const struct S(product) *p, int64_t m, int64_t n, const T *a, const T *b, T *c, const T *bias) {
    int64_t whole = (m + N - 1) / N * N;
    T *packed = scratch_take((whole * p->k + S(FEW_STRIP) * S(NR)) * sizeof(T)), *strip = packed + whole * p->k;
    if (!packed) return;
    for (int64_t j = 0; j < m; j += S(NR)) {
        int64_t width = m - j < S(NR) ? m - j : S(NR);
        S(pack)(packed + j * p->k, (width + N - 1) / N * N, a + j * p->ar, p->ar, p->ak, width, p->k);
    }
    memset(strip, 0, S(FEW_STRIP) * S(NR) * sizeof(T)); // what is turned beside results
    for (int64_t i0 = 0; i0 < n; i0 += S(FEW_STRIP)) {
        int64_t ni = n - i0 < S(FEW_STRIP) ? n - i0 : S(FEW_STRIP);
        for (int64_t j = 0; j < m; j += S(NR)) {
            int64_t width = m - j < S(NR) ? m - j : S(NR);
            int vectors = (width + N - 1) / N;
            for (int64_t i = 0; i < ni; i += S(MR)) {
                int rows = ni - i < S(MR) ? ni - i : S(MR);
                S(tile_fn) tile = rows == S(MR) && vectors == 2 ? S(tile_dense) : S(tiles)[vectors - 1][rows];
                for (int64_t k = 0; k < p->k; k += S(KC))
                    tile(p->k - k < S(KC) ? p->k - k : S(KC), b + (i0 + i) * p->bn + k, p->bn, 1,
                         packed + j * p->k + k * vectors * N, vectors * N, strip + i * S(NR), S(NR), N, 1, k == 0, NULL);
            }
            S(turn)(c + j * p->ldc + i0, p->ldc, strip, ni, width, bias ? bias + i0 : NULL);
        }
    }
    scratch_give(packed);
}
