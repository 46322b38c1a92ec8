// Kernels that move bytes: the same on every instruction set.
#include <string.h>
#include "internal.h"

struct move {
    int size;
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

void drun_copy(int size, int nd, const int64_t *shape, void *o, const int64_t *so, const void *a, const int64_t *sa) {
    struct move m = {size};
    struct walk w;
    walk_begin(&w, nd, shape, copy_inner, &m);
    walk_operand(&w, o, so, size);
    walk_operand(&w, a, sa, size);
    walk_run(&w, GRAIN);
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
    struct move m = {size};
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

struct bytes {
    char *to;
    const char *from;
};

static void copy_bytes(void *ctx, int64_t from, int64_t to) {
    struct bytes *b = ctx;
    memcpy(b->to + from, b->from + from, to - from);
}

void drun_memcpy(void *to, const void *from, int64_t n) {
    struct bytes b = {to, from};
    parallel_range(n, 1 << 20, copy_bytes, &b);
}
