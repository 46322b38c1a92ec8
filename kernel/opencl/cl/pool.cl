// Pooling of images, NCHW, and its gradients; see pooling.h of package kernel. A work-item computes one result: of a gradient, the sum over
// the windows that reach a place, in their order.
#include "device.h"
#include "lanes.h"
#include "window.h"

// Where a window lies in its plane, without the padding.
#define WINDOW(at)                                                                                                 \
    long plane = (at) / (g.oh * g.ow), y0 = (at) / g.ow % g.oh * g.sh - g.ph, x0 = (at) % g.ow * g.sw - g.pw;      \
    long y1 = min(y0 + g.kh, g.height), x1 = min(x0 + g.kw, g.width);                                              \
    y0 = max(y0, 0l), x0 = max(x0, 0l)

KERNEL void max_pool(struct window g, GLOBAL T *y, long y_at, GLOBAL int *index, long index_at, GLOBAL const T *x, long x_at) {
    long at = get_global_id(0);
    if (at >= g.batch * g.channels * g.oh * g.ow) return;
    WINDOW(at);
    x += x_at + plane * g.height * g.width;
    T best = -(T)INFINITY;
    int where = (int)(y0 * g.width + x0);
    for (long i = y0; i < y1; i++)
        for (long j = x0; j < x1; j++) {
            T v = x[i * g.width + j];
            if (v > best || v != v) best = v, where = (int)(i * g.width + j);
        }
    y[y_at + at] = canon(best);
    index[index_at + at] = where;
}

KERNEL void avg_pool(struct window g, GLOBAL T *y, long y_at, GLOBAL const T *x, long x_at) {
    long at = get_global_id(0);
    if (at >= g.batch * g.channels * g.oh * g.ow) return;
    WINDOW(at);
    x += x_at + plane * g.height * g.width;
    T sum = 0;
    for (long i = y0; i < y1; i++)
        for (long j = x0; j < x1; j++) sum += x[i * g.width + j];
    y[y_at + at] = canon(sum * ((T)1 / (T)((double)g.kh * (double)g.kw)));
}

// index is that of the maxima; without one, the gradient of averages.
KERNEL void pool_grad(struct window g, GLOBAL T *dx, long dx_at, GLOBAL const T *dy, long dy_at, GLOBAL const int *index, long index_at) {
    long at = get_global_id(0), pixels = g.height * g.width, size = g.oh * g.ow;
    if (at >= g.batch * g.channels * pixels) return;
    long plane = at / pixels, pixel = at % pixels, y = pixel / g.width + g.ph, x = pixel % g.width + g.pw;
    dy += dy_at + plane * size, index += index ? index_at + plane * size : 0;
    T sum = 0, by = (T)1 / (T)((double)g.kh * (double)g.kw);
    for (long i = y < g.kh ? 0 : (y - g.kh) / g.sh + 1; i < g.oh && i * g.sh <= y; i++)
        for (long j = x < g.kw ? 0 : (x - g.kw) / g.sw + 1; j < g.ow && j * g.sw <= x; j++) {
            long o = i * g.ow + j;
            if (!index) sum += dy[o] * by;
            else if (index[o] == pixel) sum += dy[o];
        }
    dx[dx_at + at] = canon(sum);
}
