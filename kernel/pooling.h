// 2-d pooling, NCHW. The geometry is that of conv.h with one plane a channel; padding never wins a maximum
// and counts in an average, as in PyTorch's defaults.

// One kernel cell's candidates for a row of maxima; without branches, since maxima are unpredictable.
INLINE void S(max_cell)(int64_t n, int64_t stride, int32_t at, const T *restrict x, T *restrict best,
                        int32_t *restrict index) {
    for (int64_t o = 0; o < n; o++) {
        T v = x[o * stride], b = best[o];
        int take = (v > b) | (v != v);
        best[o] = take ? v : b;
        index[o] = take ? at + (int32_t)(o * stride) : index[o];
    }
}

// One row of maxima of 2 x 2 cells with stride 2, the common pooling: even and odd columns of two rows.
static const INT S(evens)[] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
static void S(max_pairs)(int64_t n, int64_t width, int32_t at, const T *x, T *y, int32_t *index) {
    I columns;
    memcpy(&columns, S(evens), sizeof columns);
    columns += at;
    for (int64_t o = 0; o < n; o += N, columns += 2 * N) {
        int k = S(some)(n - o), low = S(some)(2 * k), high = 2 * k - low;
        V best = S(set)(-(T)INFINITY);
        I where = columns;
        for (int i = 0; i < 2; i++) {
            const T *row = x + i * width + 2 * o;
            V a = S(load_n)(row, low), b = high ? S(load_n)(row + N, high) : S(set)(0);
            V even = S(even)(a, b), odd = S(odd)(a, b);
            I take = (even > best) | (even != even);
            best = S(sel)(take, even, best);
            where = (take & (columns + (INT)(i * width))) | (~take & where);
            take = (odd > best) | (odd != odd);
            best = S(sel)(take, odd, best);
            where = (take & (columns + (INT)(i * width + 1))) | (~take & where);
        }
        S(store_n)(y + o, S(canon)(best), k);
        if (sizeof(INT) == sizeof *index) {
            S(store_n)((T *)(index + o), (V)where, k); // bits as they are
            continue;
        }
        INT lanes[N];
        memcpy(lanes, &where, sizeof lanes);
        for (int l = 0; l < k; l++) index[o + l] = (int32_t)lanes[l];
    }
}

static void S(max_pool_planes)(void *ctx, int64_t from, int64_t to) {
    struct S(pool) *q = ctx;
    const struct S(conv) *p = &q->g;
    for (int64_t line = from * p->oh; line < to * p->oh; line++) {
        const T *x = p->x + line / p->oh * p->height * p->width;
        T *best = p->y + line * p->ow;
        int32_t *index = q->index + line * p->ow;
        int64_t top = line % p->oh * p->sh - p->ph, end = top + p->kh < p->height ? top + p->kh : p->height;
        if (S(pairs)(p)) {
            S(max_pairs)(p->ow, p->width, (int32_t)(top * p->width), x + top * p->width, best, index);
            continue;
        }
        if (top < 0) top = 0;
        for (int64_t o = 0; o < p->ow; o++) {
            int64_t left = o * p->sw - p->pw;
            best[o] = -(T)INFINITY;
            index[o] = (int32_t)(top * p->width + (left < 0 ? 0 : left));
        }
        // The kernel's columns that meet the image at some position: a kernel may be far wider.
        int64_t from_column = p->pw - (p->ow - 1) * p->sw, to_column = p->kw < p->pw + p->width ? p->kw : p->pw + p->width;
        if (from_column < 0) from_column = 0;
        for (int64_t i = top; i < end; i++)
            for (int64_t j = from_column; j < to_column; j++) {
                int64_t first, last;
                S(inside)(p->width, p->ow, p->sw, j - p->pw, &first, &last);
                int64_t at = i * p->width + j - p->pw + first * p->sw;
                S(max_cell)(last - first, p->sw, (int32_t)at, x + at, best + first, index + first);
            }
        for (int64_t o = 0; o < p->ow; o++) best[o] = best[o] == best[o] ? best[o] : (T)__builtin_nan("");
    }
}

// Maxima of the filters from f0 to f1 of an image whose planes are at x.
static void S(pool_image)(const struct S(pool) *q, const T *x, int64_t image, int64_t f0, int64_t f1) {
    struct S(pool) one = *q;
    int64_t before = image * q->g.channels * q->g.oh * q->g.ow;
    one.g.x = x, one.g.y += before, one.index += before;
    S(max_pool_planes)(&one, f0, f1);
}

// Pooling after a convolution of geometry g, whose own results nobody needs.
static void S(conv2d_max_pool)(const int64_t *g, const int64_t *pool, T *y, int32_t *index, const T *x, const T *w, const T *bias) {
    struct S(pool) q = {S(geometry)(pool), index, NULL};
    q.g.y = y;
    S(convolve)(g, &q, y, x, w, bias);
}

static void S(max_pool2d)(const int64_t *g, T *y, int32_t *index, const T *x) {
    struct S(pool) q = {S(geometry)(g), index, NULL};
    q.g.y = y, q.g.x = x;
    parallel_range(q.g.batch * q.g.channels, 1 + 8192 / (q.g.oh * q.g.ow + 1), S(max_pool_planes), &q);
}

// Sums of infinities of both signs are NaN.
static void S(canon_all)(T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] == x[i] ? x[i] : (T)__builtin_nan("");
}

static void S(max_pool_grad_planes)(void *ctx, int64_t from, int64_t to) {
    struct S(pool) *q = ctx;
    const struct S(conv) *p = &q->g;
    int64_t size = p->oh * p->ow, pixels = p->height * p->width;
    memset(p->y + from * pixels, 0, (to - from) * pixels * sizeof(T));
    for (int64_t plane = from; plane < to; plane++) {
        for (int64_t i = 0; i < size; i++) p->y[plane * pixels + q->from[plane * size + i]] += p->x[plane * size + i];
        S(canon_all)(p->y + plane * pixels, pixels);
    }
}

// An image of dy for the filters from f0 to f1: at its place, or given back by pooling into `to`, which has room for all filters.
static const T *S(gradient_of)(const struct S(conv) *p, const T *dy, int64_t image, int64_t f0, int64_t f1, T *to) {
    if (!p->maxima) return dy + image * p->ys;
    int64_t size = p->oh * p->ow, plane = image * p->filters * p->pooled;
    memset(to + f0 * size, 0, (f1 - f0) * size * sizeof(T));
    for (int64_t f = f0; f < f1; f++)
        for (int64_t i = plane + f * p->pooled; i < plane + (f + 1) * p->pooled; i++) to[f * size + p->maxima[i]] += dy[i];
    return to;
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
    T by = (T)1 / (T)((double)p->kh * (double)p->kw);
    if (back) memset(p->y + from * pixels, 0, (to - from) * pixels * sizeof(T));
    for (int64_t plane = from; plane < to; plane++) {
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
        if (back) S(canon_all)(p->y + plane * pixels, pixels);
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
