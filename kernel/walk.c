// Strided walks: collapse dimensions, then hand dense-as-possible runs to an inner loop.
#include <string.h>
#include "internal.h"

void walk_begin(struct walk *w, int nd, const int64_t *shape, inner_fn inner, void *ctx) {
    w->operands = 0;
    w->nd = nd;
    w->total = 1;
    w->inner = inner;
    w->ctx = ctx;
    for (int d = 0; d < nd; d++) w->total *= w->shape[d] = shape[d];
}

void walk_operand(struct walk *w, const void *data, const int64_t *stride, int size) {
    int k = w->operands++;
    w->data[k] = (char *)data;
    for (int d = 0; d < w->nd; d++) w->stride[k][d] = stride[d] * size;
}

// Drops dimensions of size 1 and merges neighbours that all operands cross with one stride.
void walk_collapse(struct walk *w) {
    int out = 0;
    for (int d = 0; d < w->nd; d++) {
        if (w->shape[d] == 1) continue;
        int merge = out > 0;
        for (int k = 0; merge && k < w->operands; k++)
            merge = w->stride[k][out - 1] == w->stride[k][d] * w->shape[d];
        if (merge) out--;
        w->shape[out] = merge ? w->shape[out] * w->shape[d] : w->shape[d];
        for (int k = 0; k < w->operands; k++) w->stride[k][out] = w->stride[k][d];
        out++;
    }
    if (out == 0) {
        w->shape[0] = 1;
        for (int k = 0; k < w->operands; k++) w->stride[k][0] = 0;
        out = 1;
    }
    w->nd = out;
}

static void walk_part(void *ctx, int64_t from, int64_t to) {
    struct walk *w = ctx;
    int last = w->nd - 1;
    int64_t index[MAX_DIMS], stride[MAX_OPERANDS], rest = from;
    char *p[MAX_OPERANDS];
    for (int k = 0; k < w->operands; k++) p[k] = w->data[k], stride[k] = w->stride[k][last];
    for (int d = last; d >= 0; d--) {
        index[d] = rest % w->shape[d];
        rest /= w->shape[d];
        for (int k = 0; k < w->operands; k++) p[k] += index[d] * w->stride[k][d];
    }
    while (from < to) {
        int64_t n = w->shape[last] - index[last];
        if (n > to - from) n = to - from;
        char *run[MAX_OPERANDS];
        memcpy(run, p, sizeof run);
        w->inner(w->ctx, n, run, stride);
        from += n;
        if (from == to) break;
        for (int k = 0; k < w->operands; k++) p[k] -= index[last] * stride[k];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            for (int k = 0; k < w->operands; k++) p[k] += w->stride[k][d];
            if (++index[d] < w->shape[d]) break;
            for (int k = 0; k < w->operands; k++) p[k] -= w->shape[d] * w->stride[k][d];
            index[d] = 0;
        }
    }
}

void walk_run(struct walk *w, int64_t grain) {
    if (w->total == 0) return;
    walk_collapse(w);
    if (w->nd == 1 && w->total <= grain) {
        int64_t stride[MAX_OPERANDS];
        for (int k = 0; k < w->operands; k++) stride[k] = w->stride[k][0];
        w->inner(w->ctx, w->total, w->data, stride);
        return;
    }
    parallel_range(w->total, grain, walk_part, w);
}

void gather_elements(int size, int64_t n, void *to, const char *from, int64_t stride) {
    if (stride == size) {
        memcpy(to, from, n * size);
        return;
    }
    if (stride == 0 && size == 4) {
        uint32_t value = *(const uint32_t *)from;
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = value;
        return;
    }
    switch (size) {
    case 1: for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[i] = *(const uint8_t *)(from + i * stride); break;
    case 2: for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = *(const uint16_t *)(from + i * stride); break;
    case 4: for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = *(const uint32_t *)(from + i * stride); break;
    default: for (int64_t i = 0; i < n; i++) ((uint64_t *)to)[i] = *(const uint64_t *)(from + i * stride);
    }
}

void scatter_elements(int size, int64_t n, char *to, int64_t stride, const void *from) {
    if (stride == size) {
        memcpy(to, from, n * size);
        return;
    }
    switch (size) {
    case 1: for (int64_t i = 0; i < n; i++) *(uint8_t *)(to + i * stride) = ((const uint8_t *)from)[i]; break;
    case 2: for (int64_t i = 0; i < n; i++) *(uint16_t *)(to + i * stride) = ((const uint16_t *)from)[i]; break;
    case 4: for (int64_t i = 0; i < n; i++) *(uint32_t *)(to + i * stride) = ((const uint32_t *)from)[i]; break;
    default: for (int64_t i = 0; i < n; i++) *(uint64_t *)(to + i * stride) = ((const uint64_t *)from)[i];
    }
}
