// Convolutions of images, NCHW, and their gradients: sums in blocks of 256 kernel cells that are added in order, zeros of the padding multiplied like
// any other number. See conv.h and conv_weight.h of package kernel.
#include "device.h"
#include "lanes.h"
#include "window.h"

// Results of one position that a work-item computes: of neighbouring filters, or channels.
enum { TOGETHER = 8, BLOCK = 256 };

// A sum of TOGETHER results: a chain for each block.
struct sums {
    T total[TOGETHER], acc[TOGETHER];
    int in_block, first;
};
INLINE void begin(struct sums *s) {
    for (int f = 0; f < TOGETHER; f++) s->total[f] = s->acc[f] = 0;
    s->in_block = 0, s->first = 1;
}
INLINE void end_block(struct sums *s) {
    for (int f = 0; f < TOGETHER; f++) {
        s->total[f] = s->first ? s->acc[f] : s->total[f] + s->acc[f];
        s->acc[f] = 0;
    }
    s->in_block = s->first = 0;
}

KERNEL void conv2d(struct window g, GLOBAL T *y, long y_at, GLOBAL const T *x, long x_at, GLOBAL const T *w, long w_at, GLOBAL const T *bias,
                   long bias_at) {
    long at = get_global_id(0), f0 = get_global_id(1) * TOGETHER, image = get_global_id(2), size = g.oh * g.ow;
    if (at >= size) return;
    long top = at / g.ow * g.sh - g.ph, left = at % g.ow * g.sw - g.pw, depth = g.channels * g.kh * g.kw;
    x += x_at + image * g.xs, y += y_at + image * g.ys + at, w += w_at;
    struct sums s;
    begin(&s);
    for (long c = 0, k = 0; c < g.channels; c++)
        for (long i = 0; i < g.kh; i++)
            for (long j = 0; j < g.kw; j++, k++) {
                long row = top + i * g.dh, column = left + j * g.dw;
                T v = row >= 0 && row < g.height && column >= 0 && column < g.width ? x[(c * g.height + row) * g.width + column] : 0;
                for (int f = 0; f < TOGETHER; f++) s.acc[f] = fma(w[min(f0 + f, g.filters - 1) * depth + k], v, s.acc[f]);
                if (++s.in_block == BLOCK) end_block(&s);
            }
    if (s.in_block || s.first) end_block(&s);
    for (int f = 0; f < TOGETHER && f0 + f < g.filters; f++) y[(f0 + f) * size] = canon(s.total[f] + (bias ? bias[bias_at + f0 + f] : 0));
}

// Only the cells that meet an input's place count: with strides, those of one remainder.
KERNEL void conv2d_grad_input(struct window g, GLOBAL T *dx, long dx_at, GLOBAL const T *dy, long dy_at, GLOBAL const T *w, long w_at,
                              GLOBAL const T *bias, long bias_at) {
    long at = get_global_id(0), c0 = get_global_id(1) * TOGETHER, image = get_global_id(2), size = g.height * g.width, cells = g.kh * g.kw;
    if (at >= size) return;
    long y = at / g.width, x = at % g.width;
    dy += dy_at + image * g.ys, dx += dx_at + image * g.xs + at, w += w_at;
    struct sums s;
    begin(&s);
    for (long f = 0; f < g.filters; f++)
        for (long i = 0; i < g.kh; i++) {
            long from = y + g.ph - i * g.dh, row = from / g.sh;
            if (from % g.sh) continue;
            for (long j = 0; j < g.kw; j++) {
                long beside = x + g.pw - j * g.dw, column = beside / g.sw;
                if (beside % g.sw) continue;
                T v = from >= 0 && row < g.oh && beside >= 0 && column < g.ow ? dy[(f * g.oh + row) * g.ow + column] : 0;
                for (int c = 0; c < TOGETHER; c++)
                    s.acc[c] = fma(w[(f * g.channels + min(c0 + c, g.channels - 1)) * cells + i * g.kw + j], v, s.acc[c]);
                if (++s.in_block == BLOCK) end_block(&s);
            }
        }
    if (s.in_block || s.first) end_block(&s);
    for (int c = 0; c < TOGETHER && c0 + c < g.channels; c++) dx[(c0 + c) * size] = canon(s.total[c] + (bias ? bias[bias_at + c0 + c] : 0));
}

// A work-item sums cell k of one filter's weight, or its bias if k is beyond them, over the images of a group, in chunks of output rows.
KERNEL void conv2d_grad_weight(struct window g, GLOBAL T *sums, GLOBAL const T *dy, long dy_at, GLOBAL const T *x, long x_at, long groups,
                               long chunk) {
    long k = get_global_id(0), f = get_global_id(1), group = get_global_id(2), cells = g.kh * g.kw, depth = g.channels * cells;
    if (k > depth) return;
    long c = k / cells, i = k % cells / g.kw, j = k % g.kw;
    T total = 0;
    for (long image = group * g.batch / groups; image < (group + 1) * g.batch / groups; image++) {
        GLOBAL const T *d = dy + dy_at + image * g.ys + f * g.oh * g.ow, *from = x + x_at + image * g.xs + c * g.height * g.width;
        for (long chunk0 = 0; chunk0 < g.oh; chunk0 += chunk) {
            T sum = 0;
            for (long oy = chunk0; oy < min(chunk0 + chunk, g.oh); oy++) {
                long row = oy * g.sh - g.ph + i * g.dh;
                int inside = row >= 0 && row < g.height;
                for (long ox = 0; ox < g.ow; ox++) {
                    long column = ox * g.sw - g.pw + j * g.dw;
                    T v = d[oy * g.ow + ox];
                    if (k == depth) sum += v;
                    else sum = fma(inside && column >= 0 && column < g.width ? from[row * g.width + column] : 0, v, sum);
                }
            }
            total += sum;
        }
    }
    sums[(group * (depth + 1) + k) * g.filters + f] = total;
}

// Adds the groups' sums to the gradients of weights and biases.
KERNEL void add_groups(GLOBAL T *dw, long dw_at, GLOBAL T *dbias, long dbias_at, GLOBAL const T *sums, long groups, long depth, long filters) {
    long i = get_global_id(0), all = (depth + 1) * filters, k = i / filters, f = i % filters;
    if (i >= all) return;
    T sum = sums[i];
    for (long group = 1; group < groups; group++) sum += sums[group * all + i];
    if (k < depth && dw) dw[dw_at + f * depth + k] = canon(dw[dw_at + f * depth + k] + sum);
    if (k == depth && dbias) dbias[dbias_at + f] = canon(dbias[dbias_at + f] + sum);
}
