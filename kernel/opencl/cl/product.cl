// Matrix products C = A B (+ C) (+ bias): an element is one chain of fused multiply-adds in increasing k for each block of BLOCK
// values of k, and the blocks are added in order. With PAIRS, for bfloat16, a block is two chains, over the even and the odd values of k.
//
// Attention is causal in two ways. SEES 1: A's rows are queries, and row i takes part only up to the keys that the last query of
// its strip sees. SEES 2: C's rows are keys, and a key begins with the first query of the strip that sees it. See attention.h of package kernel.
#include "device.h"
#include "lanes.h"

#ifndef BLOCK
#define BLOCK 256
#endif
enum { QUERIES = 64, STRIP = 12 };

#ifdef HALF
#define CAST(name, to, from, write, read)
#include "cast.h"
typedef ushort R;
#define GIVE(x) narrow_bf16(x)
#else
typedef T R;
#define GIVE(x) canon(x)
#endif

// The heads of a batch entry lie sah, sbh and sch apart. accumulate: 1 adds to C, 2 to zeros.
#define ARGUMENTS                                                                                                              \
    GLOBAL R *c, long c_at, GLOBAL const T *a, long a_at, GLOBAL const T *b, long b_at, GLOBAL const T *bias, long bias_at,    \
        long m, long n, long k, long ar, long ak, long bk, long bn, long ldc, long heads, long sa, long sah, long sb, long sbh, \
        long sc, long sch, int accumulate
#define BEGIN                                                       \
    long batch = get_global_id(2) / heads, head = get_global_id(2) % heads; \
    a += a_at + batch * sa + head * sah;                            \
    b += b_at + batch * sb + head * sbh;                            \
    c += c_at + batch * sc + head * sch

// The values of k that row i takes part in; `from` is beyond `first`, where its blocks begin.
INLINE void range(long i, long m, long k, long *first, long *from, long *to) {
    *first = *from = 0, *to = k;
#if SEES == 1
    long block = i / QUERIES * QUERIES, end = min(block + QUERIES, m);
    *to = min(end, k);
    if (*to <= 256) *to = min(min(block + ((i - block) / STRIP + 1) * STRIP, end), k);
#elif SEES == 2
    *first = i / QUERIES * QUERIES;
    *from = *first + (i - *first) / STRIP * STRIP;
#endif
}

// The last steps of a result: what C has, the bias.
INLINE T finish(T x, GLOBAL const R *c, GLOBAL const T *bias, int accumulate) {
#ifdef PAIRS
#ifndef HALF
    if (accumulate == 1) x = *c + x;
#endif
#endif
    return bias ? x + *bias : x;
}
#ifdef PAIRS
#define START(type, accumulate, c) ((type)0)
#define JOIN(total, acc, first) (total + (acc[0] + acc[1]))
enum { CHAINS = 2 };
#else
#define START(type, accumulate, c) ((accumulate) == 1 ? (c) : (type)0)
#define JOIN(total, acc, first) ((first) ? acc[0] : total + acc[0])
enum { CHAINS = 1 };
#endif

#ifdef TILED
// For devices with local memory of their own. A group of 16 x 16 work-items computes 64 x 64 elements, of which each has 4 x 4.
enum { SIDE = 64, DEEP = 16 };
KERNEL void product(ARGUMENTS) {
    LOCAL T left[DEEP][SIDE + 1], right[DEEP][SIDE + 1];
    BEGIN;
    int x = get_local_id(0), y = get_local_id(1);
    long j0 = get_group_id(0) * SIDE, i0 = get_group_id(1) * SIDE, i = i0 + 4 * y, first, from, to, none, last;
    range(min(i0 + SIDE, m) - 1, m, k, &none, &none, &last);
    range(i, m, k, &first, &from, &to);
    T total[4][4], acc[4][4][CHAINS];
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) {
            long j = j0 + x + 16 * s;
            total[r][s] = START(T, i + r < m && j < n ? accumulate : 0, c[(i + r) * ldc + j]);
        }
    for (long k0 = first; k0 == first || k0 < last; k0 += BLOCK) {
        for (int r = 0; r < 4; r++)
            for (int s = 0; s < 4; s++)
                for (int h = 0; h < CHAINS; h++) acc[r][s][h] = 0;
        for (long l0 = k0; l0 < min(k0 + BLOCK, last); l0 += DEEP) {
            BARRIER;
            for (int e = y * 16 + x; e < SIDE * DEEP; e += 256) {
                int l = ak == 1 ? e % DEEP : e / SIDE, at = ak == 1 ? e / DEEP : e % SIDE;
                left[l][at] = i0 + at < m && l0 + l < k ? a[(i0 + at) * ar + (l0 + l) * ak] : 0;
                l = bn == 1 ? e / SIDE : e % DEEP, at = bn == 1 ? e % SIDE : e / DEEP;
                right[l][at] = j0 + at < n && l0 + l < k ? b[(j0 + at) * bn + (l0 + l) * bk] : 0;
            }
            BARRIER;
            for (int l = 0; l < DEEP && l0 + l < to; l++)
                for (int r = 0; r < 4 && l0 + l >= from; r++)
                    for (int s = 0; s < 4; s++) {
                        int h = CHAINS == 2 ? l % 2 : 0;
                        acc[r][s][h] = fma(left[l][4 * y + r], right[l][x + 16 * s], acc[r][s][h]);
                    }
        }
        for (int r = 0; r < 4; r++)
            for (int s = 0; s < 4; s++)
                if (k0 == first || k0 < to) total[r][s] = JOIN(total[r][s], acc[r][s], k0 == first && !accumulate);
    }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) {
            long j = j0 + x + 16 * s;
            if (i + r >= m || j >= n) continue;
            GLOBAL R *result = c + (i + r) * ldc + j;
#if SEES == 2
            if (i + r >= k) total[r][s] = 0; // a key that no query sees
#endif
            *result = GIVE(finish(total[r][s], result, bias ? bias + bias_at + j : bias, accumulate));
        }
}
#else
#ifdef DOUBLE
typedef double16 V;
#else
typedef float16 V;
#endif
#ifndef ROWS
#define ROWS 4 // which divide a strip
#endif
#define COLUMNS 16

INLINE V take(GLOBAL const T *p, long n) {
    if (n >= COLUMNS) return vload16(0, p);
    T v[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) v[i] = i < n ? p[i] : 0;
    return vload16(0, v);
}
#ifdef HALF
#define TAKE_C(p, n) 0
#else
#define TAKE_C(p, n) take(p, n)
#endif

// A work-item computes ROWS rows of COLUMNS neighbouring columns; B's columns are adjacent.
KERNEL void product(ARGUMENTS) {
    BEGIN;
    long j = get_global_id(0) * COLUMNS, i = get_global_id(1) * ROWS, width = n - j, first, from, to;
    if (width <= 0) return;
    range(i, m, k, &first, &from, &to);
    GLOBAL const T *row[ROWS];
    for (int r = 0; r < ROWS; r++) row[r] = a + min(i + r, m - 1) * ar;
    b += j;
    c += i * ldc + j;
    V total[ROWS];
    for (int r = 0; r < ROWS; r++) total[r] = START(V, i + r < m ? accumulate : 0, TAKE_C(c + r * ldc, width));
    for (long k0 = first; k0 == first || k0 < to; k0 += BLOCK) {
        long end = min(k0 + BLOCK, to);
        V acc[ROWS][CHAINS];
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < CHAINS; h++) acc[r][h] = (V)0;
        for (int h = 0; h < CHAINS; h++)
            for (long l = max(k0, from) + h; l < end; l += CHAINS) {
                V y = take(b + l * bk, width);
                for (int r = 0; r < ROWS; r++) acc[r][h] = fma((V)row[r][l * ak], y, acc[r][h]);
            }
        for (int r = 0; r < ROWS; r++) total[r] = JOIN(total[r], acc[r], k0 == first && !accumulate);
    }
    for (int r = 0; r < ROWS && i + r < m; r++) {
        T v[COLUMNS];
        vstore16(total[r], 0, v);
        for (int l = 0; l < COLUMNS; l++)
            if (l < width) {
#if SEES == 2
                if (i + r >= k) v[l] = 0; // a key that no query sees
#endif
                GLOBAL R *at = c + r * ldc + l;
                *at = GIVE(finish(v[l], at, bias ? bias + bias_at + j + l : bias, accumulate));
            }
    }
}
#endif

// Turns matrices of rows x columns, whose rows are ld apart, into columns x rows.
KERNEL void turn(GLOBAL T *o, GLOBAL const T *a, long a_at, long rows, long columns, long ld, long heads, long step, long head) {
    LOCAL T tile[16][17];
    long i = get_group_id(1) * 16, j = get_group_id(0) * 16, batch = get_global_id(2);
    int x = get_local_id(0), y = get_local_id(1);
    a += a_at + batch / heads * step + batch % heads * head, o += batch * rows * columns;
    if (i + y < rows && j + x < columns) tile[y][x] = a[(i + y) * ld + j + x];
    BARRIER;
    if (j + y < columns && i + x < rows) o[(j + y) * rows + i + x] = tile[x][y];
}
