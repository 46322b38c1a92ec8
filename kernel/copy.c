// Kernels that move bytes: the same on every instruction set.
#include <string.h>
#include "internal.h"

struct move {
    int size;
    int64_t rows, columns, out_row, in_column; // of a transpose; strides in bytes
};

enum { GRAIN = 65536 };

static void copy_inner(void *ctx, int64_t n, char **p, const int64_t *s) {
    int size = ((struct move *)ctx)->size;
    if (s[0] == size) {
        gather_elements(size, n, p[0], p[1], s[1]);
        return;
    }
    if (s[1] == size) {
        scatter_elements(size, n, p[0], s[0], p[1]);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(p[0] + i * s[0], p[1] + i * s[1], size);
}

#define TRANSPOSE(type)                                                                          \
    for (int64_t i = i0; i < i1; i++)                                                            \
        for (int64_t j = j0; j < j1; j++)                                                        \
            *(type *)(p[0] + i * m->out_row + j * size) = *(type *)(p[1] + j * m->in_column + i * size)

// Copies whole matrices, tile by tile so that both sides stay in the cache.
static void transpose_inner(void *ctx, int64_t n, char **at, const int64_t *s) {
    const struct move *m = ctx;
    int size = m->size;
    enum { TILE = 16 };
    for (int64_t t = 0; t < n; t++) {
        char *p[2] = {at[0] + t * s[0], at[1] + t * s[1]};
        for (int64_t i0 = 0; i0 < m->rows; i0 += TILE)
            for (int64_t j0 = 0; j0 < m->columns; j0 += TILE) {
                int64_t i1 = i0 + TILE < m->rows ? i0 + TILE : m->rows;
                int64_t j1 = j0 + TILE < m->columns ? j0 + TILE : m->columns;
                switch (size) {
                case 1: TRANSPOSE(uint8_t); break;
                case 2: TRANSPOSE(uint16_t); break;
                case 4: TRANSPOSE(uint32_t); break;
                default: TRANSPOSE(uint64_t);
                }
            }
    }
}

// Finds a dimension dense in the input, other than the last, which is dense in the output; takes both out of
// the walk. A single big matrix leaves blocks of its rows in the walk, for threads to share.
static int find_transpose(struct walk *w, struct move *m) {
    int last = w->nd - 1;
    if (last < 1 || w->stride[0][last] != m->size || w->stride[1][last] == m->size || w->shape[last] < 8) return 0;
    for (int d = 0; d < last; d++) {
        if (w->stride[1][d] != m->size || w->shape[d] < 8) continue;
        int64_t blocks = w->shape[d] % 64 ? 1 : w->shape[d] / 64;
        m->rows = w->shape[d] / blocks, m->out_row = w->stride[0][d];
        m->columns = w->shape[last], m->in_column = w->stride[1][last];
        w->total /= m->rows * m->columns;
        w->shape[d] = blocks, w->shape[last] = 1;
        w->stride[0][d] *= m->rows, w->stride[1][d] *= m->rows;
        return 1;
    }
    return 0;
}

void drun_copy(int size, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a, const int64_t *sa) {
    struct move m = {.size = size};
    struct walk w;
    walk_begin(&w, nd, shape, copy_inner, &m);
    walk_operand(&w, o, so, size);
    walk_operand(&w, a, sa, size);
    if (w.total > 256) walk_collapse(&w);
    if (w.total > 256 && find_transpose(&w, &m)) {
        w.inner = transpose_inner;
        walk_run(&w, GRAIN / (m.rows * m.columns) + 1);
    } else {
        walk_run(&w, GRAIN);
    }
}

#define WHERE(type)                                                                                             \
    for (int64_t i = 0; i < n; i++)                                                                             \
        *(type *)(p[0] + i * s[0]) = *(p[1] + i * s[1]) ? *(type *)(p[2] + i * s[2]) : *(type *)(p[3] + i * s[3])

static void where_inner(void *ctx, int64_t n, char **p, const int64_t *s) {
    switch (((struct move *)ctx)->size) {
    case 1: WHERE(uint8_t); break;
    case 2: WHERE(uint16_t); break;
    case 4: WHERE(uint32_t); break;
    default: WHERE(uint64_t);
    }
}

void drun_where(int size, int nd, const int64_t *shape, void *o, const int64_t *so, const void *c, const int64_t *sc,
                const void *a, const int64_t *sa, const void *b, const int64_t *sb) {
    struct move m = {.size = size};
    struct walk w;
    walk_begin(&w, nd, shape, where_inner, &m);
    walk_operand(&w, o, so, size);
    walk_operand(&w, c, sc, 1);
    walk_operand(&w, a, sa, size);
    walk_operand(&w, b, sb, size);
    walk_run(&w, GRAIN);
}

// o[p][i][...] = a[p][index[i]][...]
void drun_take(int size, int64_t outer, int64_t count, int64_t rows, int64_t inner, void *o, const void *a,
               const int64_t *index) {
    int64_t bytes = inner * size;
    char *to = o;
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < count; i++, to += bytes)
            memcpy(to, (const char *)a + (p * rows + index[i]) * bytes, bytes);
}

// o[p][i][j] = a[p][index[p][i][j]][j]
void drun_gather(int size, int64_t outer, int64_t to, int64_t from, int64_t inner, void *o, const void *a,
                 const int64_t *index) {
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < to * inner; i++) {
            int64_t at = p * to * inner + i;
            memcpy((char *)o + at * size, (const char *)a + ((p * from + index[at]) * inner + i % inner) * size, size);
        }
}

// o[p][index[p][i][j]][j] = a[p][i][j], in increasing i
void drun_scatter(int size, int64_t outer, int64_t from, int64_t to, int64_t inner, void *o, const void *a,
                  const int64_t *index) {
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < from * inner; i++) {
            int64_t at = p * from * inner + i;
            memcpy((char *)o + ((p * to + index[at]) * inner + i % inner) * size, (const char *)a + at * size, size);
        }
}

// o[p][index[i]][...] = a[p][i][...], in increasing i
void drun_put(int size, int64_t outer, int64_t count, int64_t rows, int64_t inner, void *o, const void *a,
              const int64_t *index) {
    int64_t bytes = inner * size;
    const char *from = a;
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < count; i++, from += bytes)
            memcpy((char *)o + (p * rows + index[i]) * bytes, from, bytes);
}
