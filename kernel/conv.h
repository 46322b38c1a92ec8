// 2-d convolution, NCHW, straight from the images: no matrix of patches is built. The geometry g is
// {batch, channels, height, width, out_channels, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, out_h, out_w,
// dilation_h, dilation_w, and the elements from an image to the next, of the input and of the output}.
//
// An image is copied once, with its padding, and so that columns (and rows) a stride apart become
// neighbours: one phase image for each remainder. In that copy of rows of `pitch` elements the input under
// kernel cell k of output position p lies at p + offset[k], where p counts rows * pitch + column. So a product
// with the weights needs an offset for each k and else only loads of adjacent elements; what it computes at
// the ends of rows is left out when results are stored.
//
// A result is, for every KC values of k = (channel, i, j), one chain of fused multiply-adds; the blocks' sums
// are added in order, then the bias.

struct S(conv) {
    int64_t batch, channels, height, width, filters, kh, kw, sh, sw, ph, pw, oh, ow, dh, dw, xs, ys;
    T *y;
    const T *x, *w, *bias;
};

INLINE struct S(conv) S(geometry)(const int64_t *g) {
    return (struct S(conv)){g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12],
                            g[13], g[14], g[15], g[16], NULL, NULL, NULL, NULL};
}

// The output columns [from, to) whose input column lies inside the image, for kernel column j.
INLINE void S(inside)(int64_t size, int64_t out, int64_t stride, int64_t at, int64_t *from, int64_t *to) {
    int64_t f = at < 0 ? (-at + stride - 1) / stride : 0;
    int64_t t = size - at <= 0 ? 0 : (size - at + stride - 1) / stride;
    *to = t < out ? t : out;
    *from = f < *to ? f : *to;
}

// The padded copy of an image: planes x sh x sw phase images of rows x pitch.
struct S(canvas) {
    int64_t planes, height, width, sh, sw, top, left, rows, pitch;
};

INLINE int64_t S(canvas_size)(const struct S(canvas) *v) {
    return v->planes * v->sh * v->sw * v->rows * v->pitch + v->pitch + 2 * N; // tiles read beyond the end
}

// Copies an image into a canvas of zeros; what an earlier image of the same shape left is overwritten.
static void S(draw)(const struct S(canvas) *v, T *to, const T *x) {
    for (int64_t c = 0; c < v->planes; c++)
        for (int64_t i = 0; i < v->sh; i++)
            for (int64_t j = 0; j < v->sw; j++, to += v->rows * v->pitch) {
                int64_t first, last, top, end, shift = j - v->left;
                S(inside)(v->width, v->pitch, v->sw, shift, &first, &last);
                S(inside)(v->height, v->rows, v->sh, i - v->top, &top, &end);
                const T *row = x + (c * v->height + top * v->sh + i - v->top) * v->width + shift;
                for (int64_t r = top; r < end; r++, row += v->sh * v->width) {
                    T *line = to + r * v->pitch;
                    if (v->sw == 2)
                        for (int64_t o = first; o < last; o += N) {
                            int k = S(some)(last - o), low = S(some)(2 * k - 1), high = 2 * k - 1 - low;
                            V a = S(load_n)(row + 2 * o, low), b = high ? S(load_n)(row + 2 * o + N, high) : S(set)(0);
                            S(store_n)(line + o, S(even)(a, b), k);
                        }
                    else if (v->sw > 1)
                        for (int64_t o = first; o < last; o++) line[o] = row[o * v->sw];
                    else // rows are often shorter than a vector: a call of memcpy would cost more
                        for (int64_t o = first; o < last; o += N) {
                            int k = S(some)(last - o);
                            S(store_n)(line + o, S(load_n)(row + o, k), k);
                        }
                }
            }
}

// One tile: `rows` filters x two vectors of positions. a[k * MR + r]; c gets full vectors.
#define DIRECT_TILE(rows)                                                                                          \
    static void S(direct_##rows)(int64_t kc, const T *a, const int64_t *offset, const T *x, T *c, int64_t ldc,     \
                                 int first) {                                                                      \
        V acc[rows][2];                                                                                            \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = S(set)(0);                 \
        for (int64_t k = 0; k < kc; k++, a += S(MR)) {                                                             \
            V x0 = S(load)(x + offset[k]), x1 = S(load)(x + offset[k] + N);                                        \
            _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                              \
                V w = S(set)(a[r]);                                                                                \
                acc[r][0] = S(fma)(w, x0, acc[r][0]);                                                              \
                acc[r][1] = S(fma)(w, x1, acc[r][1]);                                                              \
            }                                                                                                      \
        }                                                                                                          \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++, c += ldc) {                                        \
            S(store)(c, first ? acc[r][0] : S(load)(c) + acc[r][0]);                                               \
            S(store)(c + N, first ? acc[r][1] : S(load)(c + N) + acc[r][1]);                                       \
        }                                                                                                          \
    }
typedef void (*S(direct_fn))(int64_t, const T *, const int64_t *, const T *, T *, int64_t, int);
#define EACH_ROWS_4(f) f(1) f(2) f(3) f(4)
#define EACH_ROWS_6(f) EACH_ROWS_4(f) f(5) f(6)
#define EACH_ROWS_12(f) EACH_ROWS_6(f) f(7) f(8) f(9) f(10) f(11) f(12)
#if VB == 64 || defined PATH_NEON
#define EACH_ROWS EACH_ROWS_12
#elif VB == 32
#define EACH_ROWS EACH_ROWS_6
#else
#define EACH_ROWS EACH_ROWS_4
#endif
EACH_ROWS(DIRECT_TILE)
#define NAMED(rows) [rows] = S(direct_##rows),
static const S(direct_fn) S(direct_tiles)[S(MR) + 1] = {EACH_ROWS(NAMED)};
#undef NAMED

// A convolution with its weights packed: `filters` rows by `depth`, in panels of MR rows.
struct S(direct) {
    struct S(canvas) canvas;
    int64_t filters, depth, parts;
    const T *x, *a, *bias;
    const int64_t *offset;
    // Position (oy, ox) of filter f goes to y[f * plane + oy * row + ox * column]; a row has `across` elements from y on.
    T *y;
    int64_t oh, ow, plane, row, column, across, from_image, to_image;
    int64_t batch, each; // images, and how many of them are a task
};

static void S(direct_store)(const struct S(direct) *d, T *y, const T *c, int64_t rows, T bias) {
    for (int64_t r = 0; r < rows; r++, y += d->row, c += d->canvas.pitch)
        for (int64_t o = 0; o < d->ow; o += N) {
            int n = S(some)(d->ow - o);
            V v = S(canon)(S(load)(c + o) + bias);
            if (d->column == 1) {
                S(store_n)(y + o, v, n);
                continue;
            }
            if (d->column == 2) { // what lies between stays as it is
                T *to = y + 2 * o;
                int64_t all = d->across - 2 * o < 2 * n ? d->across - 2 * o : 2 * n;
                int low = S(some)(all), high = (int)all - low;
                V a = S(load_n)(to, low), b = high ? S(load_n)(to + N, high) : S(set)(0), between = S(odd)(a, b);
                S(store_n)(to, S(low)(v, between), low);
                if (high) S(store_n)(to + N, S(high)(v, between), high);
                continue;
            }
            for (int l = 0; l < n; l++) y[(o + l) * d->column] = v[l];
        }
}

// An image, of which x is the copy, for filters from f0 to f1. The results of a chunk of output rows gather in a block c
// that the cache holds before they are stored.
static void S(direct_image)(const struct S(direct) *d, const T *x, T *c, T *y, int64_t f0, int64_t f1, int64_t chunk, int64_t ldc) {
    int64_t pitch = d->canvas.pitch;
    for (int64_t row = 0; row < d->oh; row += chunk) {
        int64_t rows = d->oh - row < chunk ? d->oh - row : chunk, positions = (rows - 1) * pitch + d->ow;
        for (int64_t k0 = 0; k0 < d->depth || k0 == 0; k0 += S(KC)) {
            int64_t kc = d->depth - k0 < S(KC) ? d->depth - k0 : S(KC);
            for (int64_t j = 0; j < positions; j += 2 * N)
                for (int64_t f = f0; f < f1; f += S(MR))
                    S(direct_tiles)[f1 - f < S(MR) ? f1 - f : S(MR)](kc, d->a + f * d->depth + k0 * S(MR), d->offset + k0,
                                                                    x + row * pitch + j, c + (f - f0) * ldc + j, ldc, k0 == 0);
        }
        for (int64_t f = f0; f < f1; f++)
            S(direct_store)(d, y + f * d->plane + row * d->row, c + (f - f0) * ldc, rows, d->bias ? d->bias[f] : 0);
    }
}

// A task is some images, or a part of the filters of one. The zeros around an image serve all of a task.
static void S(direct_part)(void *ctx, int64_t task) {
    const struct S(direct) *d = ctx;
    int64_t first = task / d->parts * d->each, part = task % d->parts, panels = (d->filters + S(MR) - 1) / S(MR);
    int64_t f0 = part * panels / d->parts * S(MR), f1 = (part + 1) * panels / d->parts * S(MR);
    if (f1 > d->filters) f1 = d->filters;
    int64_t pitch = d->canvas.pitch, chunk = pitch < 512 ? 512 / pitch : 1;
    if (chunk > d->oh) chunk = d->oh;
    int64_t ldc = (chunk * pitch + 2 * N - 1) / (2 * N) * (2 * N), size = S(canvas_size)(&d->canvas);
    T *x = scratch_take((size + (f1 - f0) * ldc + N) * sizeof(T)), *c = x + size;
    if (!x) return;
    memset(x, 0, size * sizeof(T));
    for (int64_t image = first; image < first + d->each && image < d->batch; image++) {
        S(draw)(&d->canvas, x, d->x + image * d->from_image);
        S(direct_image)(d, x, c, d->y + image * d->to_image, f0, f1, chunk, ldc);
    }
    scratch_give(x);
}

// Threads take whole images, or parts of one where there are few.
INLINE int64_t S(parts_for)(int64_t batch, int64_t most) {
    int64_t threads = drun_threads(), parts = threads < 2 || batch >= 2 * threads ? 1 : 2 * threads / batch;
    return parts < most ? parts : most < 1 ? 1 : most;
}

static void S(direct_run)(struct S(direct) *d, int64_t batch) {
    if (!batch || !d->filters || !d->oh || !d->ow) return;
    int64_t threads = drun_threads();
    d->batch = batch;
    d->parts = S(parts_for)(batch, (d->filters + S(MR) - 1) / S(MR));
    d->each = threads < 2 ? batch : batch < 8 * threads ? 1 : batch / (4 * threads);
    parallel_for((batch + d->each - 1) / d->each * d->parts, S(direct_part), d);
}

// The offsets of the kernel's cells in a canvas.
static void S(cell_offsets)(const struct S(canvas) *v, const struct S(conv) *p, int64_t *offset) {
    int64_t phase = v->rows * v->pitch;
    for (int64_t c = 0; c < v->planes; c++)
        for (int64_t i = 0; i < p->kh * p->dh; i += p->dh)
            for (int64_t j = 0; j < p->kw * p->dw; j += p->dw)
                *offset++ = ((c * v->sh + i % v->sh) * v->sw + j % v->sw) * phase + i / v->sh * v->pitch + j / v->sw;
}

INLINE struct S(canvas) S(input_canvas)(const struct S(conv) *p) {
    return (struct S(canvas)){p->channels, p->height, p->width, p->sh, p->sw, p->ph, p->pw,
                              p->oh + (p->kh - 1) * p->dh / p->sh, p->ow + (p->kw - 1) * p->dw / p->sw};
}

static void S(conv2d)(const int64_t *g, T *y, const T *x, const T *w, const T *bias) {
    struct S(conv) p = S(geometry)(g);
    int64_t depth = p.channels * p.kh * p.kw, panels = (p.filters + S(MR) - 1) / S(MR);
    int64_t *offset = scratch_take(depth * sizeof(int64_t) + panels * S(MR) * depth * sizeof(T) + 64);
    if (!offset) return;
    T *a = (T *)(offset + depth);
    for (int64_t f = 0; f < p.filters; f += S(MR))
        S(pack)(a + f * depth, S(MR), w + f * depth, depth, 1, p.filters - f < S(MR) ? p.filters - f : S(MR), depth);
    struct S(direct) d = {S(input_canvas)(&p), p.filters, depth, 1, x, a, bias, offset, y, p.oh, p.ow, p.oh * p.ow, p.ow, 1,
                        p.ow, p.xs, p.ys, 0, 0};
    S(cell_offsets)(&d.canvas, &p, offset);
    S(direct_run)(&d, p.batch);
    scratch_give(offset);
}

// The kernel cells that meet input rows (or columns) of one remainder: i, where an output row q beside the input's
// own reads it. Cells come in order, so q falls.
struct S(meet) { int64_t count, least, largest; };
INLINE int64_t S(met)(int64_t at, int64_t i, int64_t stride, int64_t dilation, int64_t *q) {
    int64_t from = at - i * dilation;
    if (from % stride) return 0;
    *q = from / stride;
    return 1;
}
static struct S(meet) S(meeting)(int64_t at, int64_t cells, int64_t stride, int64_t dilation) {
    struct S(meet) m = {0, 0, 0};
    for (int64_t i = 0, q; i < cells; i++)
        if (S(met)(at, i, stride, dilation, &q)) {
            if (!m.count++) m.largest = q;
            m.least = q;
        }
    return m;
}

// The input's gradient is a convolution of dy with the kernel turned round. With strides, the input rows (and
// columns) of one remainder meet only some kernel rows: each remainder is a convolution of its own. A transposed
// convolution is the same, with a bias.
static void S(conv2d_grad_input)(const int64_t *g, T *dx, const T *dy, const T *w, const T *bias) {
    struct S(conv) p = S(geometry)(g);
    int64_t most = p.filters * p.kh * p.kw, panels = (p.channels + S(MR) - 1) / S(MR);
    int64_t *offset = scratch_take(most * sizeof(int64_t) + panels * S(MR) * most * sizeof(T) + 64);
    if (!offset) return;
    T *a = (T *)(offset + most);
    for (int64_t y0 = 0; y0 < p.sh && y0 < p.height; y0++)
        for (int64_t x0 = 0; x0 < p.sw && x0 < p.width; x0++) {
            struct S(meet) r = S(meeting)(y0 + p.ph, p.kh, p.sh, p.dh), c = S(meeting)(x0 + p.pw, p.kw, p.sw, p.dw);
            int64_t depth = p.filters * r.count * c.count;
            if (!depth) r = c = (struct S(meet)){0, 0, 0};
            int64_t oh = (p.height - y0 + p.sh - 1) / p.sh, ow = (p.width - x0 + p.sw - 1) / p.sw;
            struct S(canvas) v = {p.filters, p.oh, p.ow, 1, 1, -r.least, -c.least, oh + r.largest - r.least,
                                  ow + c.largest - c.least};
            int64_t k = 0, at, beside;
            for (int64_t f = 0; f < p.filters && depth; f++)
                for (int64_t i = 0; i < p.kh; i++) {
                    if (!S(met)(y0 + p.ph, i, p.sh, p.dh, &at)) continue;
                    for (int64_t j = 0; j < p.kw; j++) {
                        if (!S(met)(x0 + p.pw, j, p.sw, p.dw, &beside)) continue;
                        offset[k] = (f * v.rows + at - r.least) * v.pitch + beside - c.least;
                        for (int64_t n = 0; n < p.channels; n++)
                            a[(n / S(MR) * depth + k) * S(MR) + n % S(MR)] = w[((f * p.channels + n) * p.kh + i) * p.kw + j];
                        k++;
                    }
                }
            struct S(direct) d = {v, p.channels, depth, 1, dy, a, bias, offset, dx + y0 * p.width + x0, oh, ow,
                                  p.height * p.width, p.sh * p.width, p.sw, p.width - x0, p.ys, p.xs, 0, 0};
            S(direct_run)(&d, p.batch);
        }
    scratch_give(offset);
}
