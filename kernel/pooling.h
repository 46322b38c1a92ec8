// 2-d pooling, NCHW. The geometry is that of conv.h with one plane a channel; padding never wins a maximum
// and counts in an average, as in PyTorch's defaults.

struct S(pool) {
    struct S(conv) g;
    int32_t *index;
    const int32_t *from;
};

static void S(max_pool_planes)(void *ctx, int64_t from, int64_t to) {
    struct S(pool) *q = ctx;
    const struct S(conv) *p = &q->g;
    for (int64_t plane = from; plane < to; plane++) {
        const T *x = p->x + plane * p->height * p->width;
        T *y = p->y + plane * p->oh * p->ow;
        int32_t *index = q->index + plane * p->oh * p->ow;
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++) {
                int64_t y0 = oy * p->sh - p->ph, x0 = ox * p->sw - p->pw, at = -1;
                int64_t y1 = y0 + p->kh < p->height ? y0 + p->kh : p->height;
                int64_t x1 = x0 + p->kw < p->width ? x0 + p->kw : p->width;
                T best = -(T)INFINITY;
                for (int64_t i = y0 < 0 ? 0 : y0; i < y1; i++)
                    for (int64_t j = x0 < 0 ? 0 : x0; j < x1; j++) {
                        T v = x[i * p->width + j];
                        if (v > best || v != v || at < 0) best = v, at = i * p->width + j;
                    }
                y[oy * p->ow + ox] = best == best ? best : (T)__builtin_nan("");
                index[oy * p->ow + ox] = (int32_t)at;
            }
    }
}

static void S(max_pool2d)(const int64_t *g, T *y, int32_t *index, const T *x) {
    struct S(pool) q = {S(geometry)(g), index, NULL};
    q.g.y = y, q.g.x = x;
    parallel_range(q.g.batch * q.g.channels, 1 + 8192 / (q.g.oh * q.g.ow + 1), S(max_pool_planes), &q);
}

static void S(max_pool_grad_planes)(void *ctx, int64_t from, int64_t to) {
    struct S(pool) *q = ctx;
    const struct S(conv) *p = &q->g;
    int64_t size = p->oh * p->ow, pixels = p->height * p->width;
    memset(p->y + from * pixels, 0, (to - from) * pixels * sizeof(T));
    for (int64_t plane = from; plane < to; plane++)
        for (int64_t i = 0; i < size; i++) p->y[plane * pixels + q->from[plane * size + i]] += p->x[plane * size + i];
}

static void S(max_pool2d_grad)(const int64_t *g, T *dx, const T *dy, const int32_t *index) {
    struct S(pool) q = {S(geometry)(g), NULL, index};
    q.g.y = dx, q.g.x = dy;
    parallel_range(q.g.batch * q.g.channels, 1 + 8192 / (q.g.oh * q.g.ow + 1), S(max_pool_grad_planes), &q);
}

static void S(avg_pool_planes)(void *ctx, int64_t from, int64_t to) {
    struct S(pool) *q = ctx;
    const struct S(conv) *p = &q->g;
    int64_t pixels = p->height * p->width;
    int back = q->index != NULL;
    T by = (T)1 / (T)(p->kh * p->kw);
    if (back) memset(p->y + from * pixels, 0, (to - from) * pixels * sizeof(T));
    for (int64_t plane = from; plane < to; plane++)
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++) {
                int64_t y0 = oy * p->sh - p->ph, x0 = ox * p->sw - p->pw;
                int64_t y1 = y0 + p->kh < p->height ? y0 + p->kh : p->height;
                int64_t x1 = x0 + p->kw < p->width ? x0 + p->kw : p->width;
                int64_t o = (plane * p->oh + oy) * p->ow + ox;
                T s = 0;
                for (int64_t i = y0 < 0 ? 0 : y0; i < y1; i++)
                    for (int64_t j = x0 < 0 ? 0 : x0; j < x1; j++) {
                        int64_t at = plane * pixels + i * p->width + j;
                        if (back) p->y[at] += p->x[o] * by;
                        else s += p->x[at];
                    }
                if (!back) p->y[o] = s == s ? s * by : (T)__builtin_nan("");
            }
}

static void S(avg_pool2d)(const int64_t *g, T *y, const T *x) {
    struct S(pool) q = {S(geometry)(g), NULL, NULL};
    q.g.y = y, q.g.x = x;
    parallel_range(q.g.batch * q.g.channels, 1 + 8192 / (q.g.oh * q.g.ow + 1), S(avg_pool_planes), &q);
}

static void S(avg_pool2d_grad)(const int64_t *g, T *dx, const T *dy) {
    static int32_t back;
    struct S(pool) q = {S(geometry)(g), &back, NULL};
    q.g.y = dx, q.g.x = dy;
    parallel_range(q.g.batch * q.g.channels, 1 + 8192 / (q.g.oh * q.g.ow + 1), S(avg_pool_planes), &q);
}
