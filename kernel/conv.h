// 2-d convolution, NCHW, as products with the image's patches (im2col). The geometry g is
// {batch, channels, height, width, out_channels, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, out_h, out_w}.

struct S(conv) {
    int64_t batch, channels, height, width, filters, kh, kw, sh, sw, ph, pw, oh, ow;
    T *y;
    const T *x, *w, *bias;
};

INLINE struct S(conv) S(geometry)(const int64_t *g) {
    return (struct S(conv)){g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12],
                            NULL, NULL, NULL, NULL};
}

// The output columns [from, to) whose input column lies inside the image, for kernel column j.
INLINE void S(inside)(int64_t size, int64_t out, int64_t stride, int64_t at, int64_t *from, int64_t *to) {
    int64_t f = at < 0 ? (-at + stride - 1) / stride : 0;
    int64_t t = size - at <= 0 ? 0 : (size - at + stride - 1) / stride;
    *to = t < out ? t : out;
    *from = f < *to ? f : *to;
}

// Rows are often shorter than a vector: a call of memcpy would cost more than the copy.
INLINE void S(copy_n)(T *to, const T *from, int n) {
    if (n == N) S(store)(to, S(load)(from));
    else S(store_n)(to, S(load_n)(from, n), n);
}

// Row (c, i, j) of patches holds, for every output position, the input under kernel cell (i, j) of channel c.
static void S(im2col)(const struct S(conv) *p, const T *x, int64_t c0, int64_t c1, T *col) {
    for (int64_t c = c0; c < c1; c++)
        for (int64_t i = 0; i < p->kh; i++)
            for (int64_t j = 0; j < p->kw; j++) {
                int64_t from, to, shift = j - p->pw;
                S(inside)(p->width, p->ow, p->sw, shift, &from, &to);
                for (int64_t oy = 0; oy < p->oh; oy++, col += p->ow) {
                    int64_t iy = oy * p->sh + i - p->ph;
                    if (iy < 0 || iy >= p->height || from >= to) {
                        memset(col, 0, p->ow * sizeof(T));
                        continue;
                    }
                    const T *row = x + (c * p->height + iy) * p->width + shift;
                    for (int64_t o = 0; o < from; o++) col[o] = 0;
                    if (p->sw == 1)
                        for (int64_t o = from; o < to; o += N) S(copy_n)(col + o, row + o, S(some)(to - o));
                    else for (int64_t o = from; o < to; o++) col[o] = row[o * p->sw];
                    for (int64_t o = to; o < p->ow; o++) col[o] = 0;
                }
            }
}

// Adds patches back where they came from.
static void S(col2im)(const struct S(conv) *p, T *x, const T *col) {
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t i = 0; i < p->kh; i++)
            for (int64_t j = 0; j < p->kw; j++) {
                int64_t from, to, shift = j - p->pw;
                S(inside)(p->width, p->ow, p->sw, shift, &from, &to);
                for (int64_t oy = 0; oy < p->oh; oy++, col += p->ow) {
                    int64_t iy = oy * p->sh + i - p->ph;
                    if (iy < 0 || iy >= p->height) continue;
                    T *row = x + (c * p->height + iy) * p->width + shift;
                    if (p->sw == 1)
                        for (int64_t o = from; o < to; o += N) {
                            int k = S(some)(to - o);
                            S(store_n)(row + o, S(canon)(S(load_n)(row + o, k) + S(load_n)(col + o, k)), k);
                        }
                    else
                        for (int64_t o = from; o < to; o++) {
                            T s = row[o * p->sw] + col[o];
                            row[o * p->sw] = s == s ? s : (T)__builtin_nan("");
                        }
                }
            }
}

static void S(conv_image)(void *ctx, int64_t b) {
    const struct S(conv) *p = ctx;
    int64_t size = p->oh * p->ow, depth = p->channels * p->kh * p->kw;
    T *col = scratch_take(depth * size * sizeof(T)), *y = p->y + b * p->filters * size;
    S(im2col)(p, p->x + b * p->channels * p->height * p->width, 0, p->channels, col);
    if (p->bias)
        for (int64_t f = 0; f < p->filters; f++)
            for (int64_t i = 0; i < size; i++) y[f * size + i] = p->bias[f];
    S(gemm)(0, 0, p->filters, size, depth, p->w, depth, col, size, y, size, NULL, p->bias != NULL, 1, 0, 0, 0);
    scratch_give(col);
}

static void S(conv2d)(const int64_t *g, T *y, const T *x, const T *w, const T *bias) {
    struct S(conv) p = S(geometry)(g);
    p.y = y, p.x = x, p.w = w, p.bias = bias;
    parallel_for(p.batch, S(conv_image), &p);
}

static void S(conv_grad_image)(void *ctx, int64_t b) {
    const struct S(conv) *p = ctx;
    int64_t size = p->oh * p->ow, depth = p->channels * p->kh * p->kw, pixels = p->channels * p->height * p->width;
    T *col = scratch_take(depth * size * sizeof(T)), *dx = p->y + b * pixels;
    S(gemm)(1, 0, depth, size, p->filters, p->w, depth, p->x + b * p->filters * size, size, col, size, NULL, 0, 1, 0, 0, 0);
    memset(dx, 0, pixels * sizeof(T));
    S(col2im)(p, dx, col);
    scratch_give(col);
}

static void S(conv2d_grad_input)(const int64_t *g, T *dx, const T *dy, const T *w) {
    struct S(conv) p = S(geometry)(g);
    p.y = dx, p.x = dy, p.w = w;
    parallel_for(p.batch, S(conv_grad_image), &p);
}

// One part is 16 input channels (their columns of dw) for half of the filters: image after image, so that no
// sum is split between threads.
enum { S(CHANNELS) = 16 };
static void S(conv_grad_part)(void *ctx, int64_t part) {
    const struct S(conv) *p = ctx;
    int64_t f0 = part % 2 * (p->filters / 2), f1 = part % 2 ? p->filters : p->filters / 2;
    int64_t c0 = part / 2 * S(CHANNELS), c1 = c0 + S(CHANNELS) < p->channels ? c0 + S(CHANNELS) : p->channels;
    int64_t size = p->oh * p->ow, taps = p->kh * p->kw, depth = p->channels * taps;
    if (f0 == f1) return;
    T *col = scratch_take((c1 - c0) * taps * size * sizeof(T));
    for (int64_t b = 0; b < p->batch; b++) {
        S(im2col)(p, p->x + b * p->channels * p->height * p->width, c0, c1, col);
        S(gemm)(0, 1, f1 - f0, (c1 - c0) * taps, size, p->w + (b * p->filters + f0) * size, size, col, size,
                p->y + f0 * depth + c0 * taps, depth, NULL, 1, 1, 0, 0, 0);
    }
    scratch_give(col);
}

static void S(conv2d_grad_weight)(const int64_t *g, T *dw, T *dbias, const T *dy, const T *x) {
    struct S(conv) p = S(geometry)(g);
    p.y = dw, p.x = x, p.w = dy;
    if (dw) parallel_for((p.channels + S(CHANNELS) - 1) / S(CHANNELS) * 2, S(conv_grad_part), &p);
    if (dbias)
        for (int64_t f = 0; f < p.filters; f++) {
            double s = dbias[f];
            for (int64_t b = 0; b < p.batch; b++)
                s += S(row_part)(RSUM, S(block_sum), p.oh * p.ow, dy + (b * p.filters + f) * p.oh * p.ow);
            dbias[f] = S(canon1)(s);
        }
}
