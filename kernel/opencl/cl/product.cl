// Matrix products C = A B (+ C) (+ bias): an element is one chain of fused multiply-adds in increasing k for each block of 256 values of k, and the
// blocks are added in order.
#include "device.h"
#include "lanes.h"

#ifdef DOUBLE
typedef double16 V;
#else
typedef float16 V;
#endif
#define BLOCK 256
#define ROWS 4
#define COLUMNS 16

INLINE V take(GLOBAL const T *p, long n) {
    if (n >= COLUMNS) return vload16(0, p);
    T v[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) v[i] = i < n ? p[i] : 0;
    return vload16(0, v);
}

// A work-item computes ROWS rows of COLUMNS neighbouring columns; B's columns are adjacent.
KERNEL void product(GLOBAL T *c, long c_at, GLOBAL const T *a, long a_at, GLOBAL const T *b, long b_at, GLOBAL const T *bias, long bias_at, long m,
                    long n, long k, long ar, long ak, long bk, long ldc, long sa, long sb, long sc, int accumulate) {
    long j = get_global_id(0) * COLUMNS, i = get_global_id(1) * ROWS, batch = get_global_id(2), width = n - j;
    if (width <= 0) return;
    GLOBAL const T *row[ROWS];
    for (int r = 0; r < ROWS; r++) row[r] = a + a_at + batch * sa + min(i + r, m - 1) * ar;
    b += b_at + batch * sb + j;
    c += c_at + batch * sc + i * ldc + j;
    V total[ROWS];
    for (int r = 0; r < ROWS; r++) total[r] = accumulate && i + r < m ? take(c + r * ldc, width) : (V)0;
    for (long k0 = 0; k0 < k; k0 += BLOCK) {
        long end = min(k0 + BLOCK, k);
        V acc[ROWS];
        for (int r = 0; r < ROWS; r++) acc[r] = (V)0;
        for (long l = k0; l < end; l++) {
            V y = take(b + l * bk, width);
            for (int r = 0; r < ROWS; r++) acc[r] = fma((V)row[r][l * ak], y, acc[r]);
        }
        int first = k0 == 0 && !accumulate;
        for (int r = 0; r < ROWS; r++) total[r] = first ? acc[r] : total[r] + acc[r];
    }
    for (int r = 0; r < ROWS; r++) {
        if (i + r >= m) break;
        V x = total[r];
        if (bias) x += take(bias + bias_at + j, width);
        T v[COLUMNS];
        vstore16(x, 0, v);
        for (int l = 0; l < COLUMNS; l++)
            if (l < width) c[r * ldc + l] = canon(v[l]);
    }
}

// Turns matrices of rows x columns, whose rows are ld apart, into columns x rows.
KERNEL void turn(GLOBAL T *o, GLOBAL const T *a, long a_at, long rows, long columns, long ld, long step) {
    LOCAL T tile[16][17];
    long i = get_group_id(1) * 16, j = get_group_id(0) * 16, batch = get_global_id(2);
    int x = get_local_id(0), y = get_local_id(1);
    a += a_at + batch * step, o += batch * rows * columns;
    if (i + y < rows && j + x < columns) tile[y][x] = a[(i + y) * ld + j + x];
    BARRIER;
    if (j + y < columns && i + x < rows) o[(j + y) * rows + i + x] = tile[x][y];
}
