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
    const int32_t *maxima; // of a gradient that pooling by maxima has yet to give back: where they were, or NULL
    int64_t pooled;        // and how many there are of a filter
};

// A pooling: its geometry, where maxima are, and what its gradient is told of that.
struct S(pool) {
    struct S(conv) g;
    int32_t *index;
    const int32_t *from;
};
static void S(pool_image)(const struct S(pool) *q, const T *x, int64_t image, int64_t f0, int64_t f1);
static const T *S(gradient_of)(const struct S(conv) *p, const T *dy, int64_t image, int64_t f0, int64_t f1, T *to);

INLINE struct S(conv) S(geometry)(const int64_t *g) {
    return (struct S(conv)){g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12],
                            g[13], g[14], g[15], g[16], NULL, NULL, NULL, NULL, NULL, 0};
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

// Two by two, a stride of two: the common pooling.
INLINE int S(pairs)(const struct S(conv) *p) {
    return p->kh == 2 && p->kw == 2 && p->sh == 2 && p->sw == 2 && p->ph == 0 && p->pw == 0;
}

// A convolution with its weights packed: `filters` rows by `depth`, in panels of MR rows, or of a vector of them.
struct S(direct) {
    struct S(canvas) canvas;
    int64_t filters, depth, parts;
    int along; // vectors run along the filters, rather than along positions
    const T *x, *a, *bias;
    const int64_t *offset;
    // Position (oy, ox) of filter f goes to y[f * plane + oy * row + ox * column]; a row has `across` elements from y on.
    T *y;
    int64_t oh, ow, plane, row, column, across, from_image, to_image;
    int64_t batch, each; // images, and how many of them are a task
    const struct S(pool) *pool;   // what is computed of the results, or NULL
    const struct S(conv) *maxima; // x is a gradient that pooling has yet to give back, or NULL
    const struct S(direct) *next; // what else is computed of the same canvas, which differs in weights, offsets and results; or NULL
};

// n results of neighbouring columns, the first of which goes to y; `all` elements of its row lie from there on.
INLINE void S(direct_put)(const struct S(direct) *d, T *y, int64_t all, V v, int n) {
    if (d->column == 1) {
        S(store_n)(y, v, n);
    } else if (d->column == 2) { // the elements between stay as they are
        if (all > 2 * n) all = 2 * n;
        int low = S(some)(all), high = (int)all - low;
        V a = S(load_n)(y, low), b = high ? S(load_n)(y + N, high) : S(set)(0), between = S(odd)(a, b);
        S(store_n)(y, S(low)(v, between), low);
        if (high) S(store_n)(y + N, S(high)(v, between), high);
    } else {
        for (int l = 0; l < n; l++) y[l * d->column] = v[l];
    }
}

static void S(direct_store)(const struct S(direct) *d, T *y, const T *c, int64_t rows, T bias) {
    for (int64_t r = 0; r < rows; r++, y += d->row, c += d->canvas.pitch)
        for (int64_t o = 0; o < d->ow; o += N)
            S(direct_put)(d, y + o * d->column, d->across - o * d->column, S(canon)(S(load)(c + o) + bias), S(some)(d->ow - o));
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

// The same with vectors along the filters, which wastes nothing at the ends of rows. One tile: `rows` neighbouring positions x a
// vector of filters; w[k * N + filter]. c gets the results of a position, with the bias, one after the other. A tile reads so few
// weights that they stay in the first cache; that needs more rows than other processors have registers for.
#if VB == 64
enum { S(AR) = 16 };
#define EACH_ALONG(f) EACH_ROWS_12(f) f(13) f(14) f(15) f(16)
#define ALONG_TILE(rows)                                                                                           \
    static void S(along_##rows)(int64_t depth, const T *w, const int64_t *offset, const T *x, T *c, int64_t ldc,   \
                                const T *bias) {                                                                   \
        for (int64_t k0 = 0; k0 < depth || k0 == 0; k0 += S(KC)) {                                                 \
            V acc[rows];                                                                                           \
            _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) acc[r] = S(set)(0);                            \
            int64_t end = depth - k0 < S(KC) ? depth : k0 + S(KC);                                                 \
            for (int64_t k = k0; k < end; k++, w += N) {                                                           \
                const T *at = x + offset[k];                                                                       \
                V y = S(load)(w);                                                                                  \
                _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) acc[r] = S(fma)(S(set)(at[r]), y, acc[r]); \
            }                                                                                                      \
            int last = end == depth;                                                                               \
            _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                              \
                T *to = c + r * ldc;                                                                               \
                V sum = k0 ? S(load)(to) + acc[r] : acc[r];                                                        \
                S(store)(to, last ? S(canon)(sum + S(load)(bias)) : sum);                                          \
            }                                                                                                      \
        }                                                                                                          \
    }
typedef void (*S(along_fn))(int64_t, const T *, const int64_t *, const T *, T *, int64_t, const T *);
EACH_ALONG(ALONG_TILE)
#define NAMED(rows) [rows] = S(along_##rows),
static const S(along_fn) S(along_tiles)[S(AR) + 1] = {EACH_ALONG(NAMED)};
#undef NAMED
#undef EACH_ALONG

// Results of a chunk of rows, of f1 - f0 filters one after the other, and the maxima of each two by two of them, which go to the
// planes of the pooling; `where` has room for as many indices.
static void S(along_pool)(const struct S(pool) *q, T *c, T *where, int64_t ldc, int64_t image, int64_t row, int64_t rows, int64_t f0, int64_t f1) {
    const struct S(conv) *p = &q->g;
    int64_t plane = p->oh * p->ow, count = rows / 2 * p->ow, first = (image * p->channels + f0) * plane + row / 2 * p->ow;
    for (int64_t f = 0; f < f1 - f0; f += N) {
        for (int64_t i = 0; i < count; i++) { // the results of windows are written where no later window reads
            int64_t at = (row + i / p->ow * 2) * p->width + i % p->ow * 2;
            const T *from = c + (at - row * p->width) * ldc + f;
            V best = S(set)(-(T)INFINITY);
            I index = (I){0} + (INT)at;
            for (int k = 0; k < 4; k++) {
                int64_t beside = k / 2 * p->width + k % 2;
                V v = S(load)(from + beside * ldc);
                I take = (v > best) | (v != v);
                best = S(sel)(take, v, best);
                index = (take & (INT)(at + beside)) | (~take & index);
            }
            S(store)(c + i * ldc + f, S(canon)(best));
            S(store)(where + i * ldc + f, (V)index); // bits as they are
        }
        for (int64_t i = 0; i < count; i += N) {
            int n = S(some)(count - i), have = S(some)(f1 - f0 - f);
            for (int indices = 0; indices < 2; indices++) {
                const T *from = (indices ? where : c) + i * ldc + f;
                T *to = (indices ? (T *)q->index : p->y) + first + f * plane + i;
                V v[N];
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) v[l] = l < n ? S(load)(from + l * ldc) : S(set)(0);
                S(transpose)(v);
                for (int l = 0; l < have; l++) S(store_n)(to + l * plane, v[l], n);
            }
        }
    }
}

// The results of a chunk of rows gather in c, position by position, and are turned when they are stored. bias has an element for
// each filter that a vector holds.
static void S(along_image)(const struct S(direct) *d, const T *x, T *c, T *where, const T *bias, T *y, int64_t image, int64_t f0,
                           int64_t f1, int64_t chunk) {
    int64_t pitch = d->canvas.pitch, ldc = (f1 - f0 + N - 1) / N * N, tiles = (d->ow + S(AR) - 1) / S(AR);
    int whole = d->column == 1 && d->row == d->ow; // rows follow one another
    for (int64_t row = 0; row < d->oh; row += chunk) {
        int64_t rows = d->oh - row < chunk ? d->oh - row : chunk;
        for (int64_t f = f0; f < f1; f += N)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t t = 0; t < tiles; t++) {
                    int64_t from = t * d->ow / tiles, to = (t + 1) * d->ow / tiles;
                    S(along_tiles)[to - from](d->depth, d->a + f * d->depth, d->offset, x + (row + r) * pitch + from,
                                              c + (r * d->ow + from) * ldc + f - f0, ldc, bias + f - f0);
                }
        if (where) {
            S(along_pool)(d->pool, c, where, ldc, image, row, rows, f0, f1);
            continue;
        }
        int64_t lines = whole ? 1 : rows, width = whole ? rows * d->ow : d->ow;
        for (int64_t r = 0; r < lines; r++)
            for (int64_t f = f0; f < f1; f += N)
                for (int64_t o = 0; o < width; o += N) {
                    T *to = y + f * d->plane + (row + r) * d->row + o * d->column;
                    const T *from = c + (r * width + o) * ldc + f - f0;
                    int n = S(some)(width - o), have = S(some)(f1 - f);
                    V v[N];
                    _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) v[l] = l < n ? S(load)(from + l * ldc) : S(set)(0);
                    S(transpose)(v);
                    for (int l = 0; l < have; l++)
                        S(direct_put)(d, to + l * d->plane, (whole ? width : d->across) - o * d->column, v[l], n);
                }
    }
}
#endif

// The filters of a panel of weights.
INLINE int64_t S(panel)(int along) { return along ? N : S(MR); }

// Whether vectors along the filters waste less computation than vectors along positions; the bits are the same.
INLINE int S(along_filters)(const struct S(canvas) *v, int64_t filters, int64_t oh, int64_t ow) {
    return VB == 64 && (filters + N - 1) / N * N * oh * ow < filters * ((oh - 1) * v->pitch + ow);
}

// A task is some images, or a part of the filters of one. The zeros around an image serve all of a task.
static void S(direct_part)(void *ctx, int64_t task) {
    const struct S(direct) *d = ctx;
    int64_t wide = S(panel)(d->along), first = task / d->parts * d->each, part = task % d->parts, panels = (d->filters + wide - 1) / wide;
    int64_t f0 = part * panels / d->parts * wide, f1 = (part + 1) * panels / d->parts * wide;
    if (f1 > d->filters) f1 = d->filters;
    int64_t pitch = d->canvas.pitch, chunk = pitch < 512 ? 512 / pitch : 1;
    if (chunk > d->oh) chunk = d->oh;
    // Maxima of two by two results are computed before these are turned; others of an image that the cache holds.
    const struct S(conv) *q = d->pool ? &d->pool->g : NULL;
    int pairs = q && d->along && sizeof(T) == sizeof(int32_t) && S(pairs)(q) && chunk > 1;
    if (pairs) chunk -= chunk % 2;
    int64_t ldc = (chunk * pitch + 2 * N - 1) / (2 * N) * (2 * N), size = S(canvas_size)(&d->canvas), width = f1 - f0 + N;
    int64_t beside = pairs ? width * ldc : d->pool ? d->filters * d->plane : d->maxima ? d->maxima->filters * d->maxima->oh * d->maxima->ow : 0;
    T *x = scratch_take((size + width * (ldc + 1) + beside) * sizeof(T)), *bias = x + size, *c = bias + width, *other = c + width * ldc;
    if (!x) return;
    memset(x, 0, (size + width) * sizeof(T));
    if (d->bias) memcpy(bias, d->bias + f0, (f1 - f0) * sizeof(T));
    for (int64_t image = first; image < first + d->each && image < d->batch; image++) {
        const T *from = d->x + image * d->from_image;
        if (d->maxima) from = S(gradient_of)(d->maxima, d->x, image, 0, d->maxima->filters, other);
        S(draw)(&d->canvas, x, from);
        for (const struct S(direct) *e = d; e; e = e->next) {
            T *y = d->pool ? other : e->y + image * d->to_image;
#if VB == 64
            if (d->along) S(along_image)(e, x, c, pairs ? other : NULL, bias, y, image, f0, f1, chunk);
            else
#endif
                S(direct_image)(e, x, c, y, f0, f1, chunk, ldc);
        }
        if (d->pool && !pairs) S(pool_image)(d->pool, other, image, f0, f1);
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
    d->parts = S(parts_for)(batch, (d->filters + S(panel)(d->along) - 1) / S(panel)(d->along));
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

// With a pooling q, y gets the pooled results.
static void S(convolve)(const int64_t *g, const struct S(pool) *q, T *y, const T *x, const T *w, const T *bias) {
    struct S(conv) p = S(geometry)(g);
    struct S(canvas) v = S(input_canvas)(&p);
    int along = S(along_filters)(&v, p.filters, p.oh, p.ow);
    int64_t depth = p.channels * p.kh * p.kw, panel = S(panel)(along);
    int64_t *offset = scratch_take(depth * sizeof(int64_t) + (p.filters + panel) * depth * sizeof(T) + 64);
    if (!offset) return;
    T *a = (T *)(offset + depth);
    for (int64_t f = 0; f < p.filters; f += panel)
        S(pack)(a + f * depth, (int)panel, w + f * depth, depth, 1, p.filters - f < panel ? p.filters - f : panel, depth);
    struct S(direct) d = {v, p.filters, depth, 1, along, x, a, bias, offset, y, p.oh, p.ow, p.oh * p.ow, p.ow, 1,
                        p.ow, p.xs, p.ys, 0, 0, q, NULL, NULL};
    S(cell_offsets)(&d.canvas, &p, offset);
    S(direct_run)(&d, p.batch);
    scratch_give(offset);
}

static void S(conv2d)(const int64_t *g, T *y, const T *x, const T *w, const T *bias) { S(convolve)(g, NULL, y, x, w, bias); }

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

// What a canvas must have of one dimension so that the results of every remainder can be computed of it.
struct S(reach) { int64_t before, size; };
static struct S(reach) S(reaching)(int64_t size, int64_t pad, int64_t cells, int64_t stride, int64_t dilation) {
    int64_t first = INT64_MAX, end = INT64_MIN;
    for (int64_t at = 0; at < stride && at < size; at++) {
        struct S(meet) m = S(meeting)(at + pad, cells, stride, dilation);
        int64_t last = (size - at + stride - 1) / stride + m.largest;
        if (m.count && m.least < first) first = m.least;
        if (m.count && last > end) end = last;
    }
    return first < end ? (struct S(reach)){-first, end - first} : (struct S(reach)){0, 0};
}

// The input's gradient is a convolution of dy with the kernel turned round. With strides, the input rows (and
// columns) of one remainder meet only some kernel rows: each remainder is a convolution of its own. A transposed
// convolution is the same, with a bias. Vectors along the filters work with a canvas of any width: then one canvas of dy
// serves all remainders.
static int S(sparse_grad_input)(const struct S(conv) *p, T *dx, const T *dy, const T *w); // conv_sparse.h
static void S(conv2d_grad_input)(const int64_t *g, T *dx, const T *dy, const int32_t *maxima, int64_t pooled, const T *w, const T *bias) {
    struct S(conv) p = S(geometry)(g);
    p.maxima = maxima, p.pooled = pooled;
    if (!bias && S(sparse_grad_input)(&p, dx, dy, w)) return;
    struct S(reach) rows = S(reaching)(p.height, p.ph, p.kh, p.sh, p.dh), columns = S(reaching)(p.width, p.pw, p.kw, p.sw, p.dw);
    struct S(canvas) one = {p.filters, p.oh, p.ow, 1, 1, rows.before, columns.before, rows.size, columns.size};
    int64_t most = p.filters * p.kh * p.kw, remainders = (p.sh < p.height ? p.sh : p.height) * (p.sw < p.width ? p.sw : p.width);
    int shared = remainders > 1 && remainders <= 64 && S(along_filters)(&one, p.channels, p.height / p.sh, p.width / p.sw);
    int64_t *offset = scratch_take(most * sizeof(int64_t) + 64 * sizeof(struct S(direct)) + (p.channels + N + S(MR)) * most * sizeof(T) + 64);
    if (!offset) return;
    struct S(direct) *all = (struct S(direct) *)(offset + most), *d = all;
    T *a = (T *)(all + 64);
    for (int64_t y0 = 0; y0 < p.sh && y0 < p.height; y0++)
        for (int64_t x0 = 0; x0 < p.sw && x0 < p.width; x0++) {
            struct S(meet) r = S(meeting)(y0 + p.ph, p.kh, p.sh, p.dh), c = S(meeting)(x0 + p.pw, p.kw, p.sw, p.dw);
            int64_t depth = p.filters * r.count * c.count;
            if (!depth) r = c = (struct S(meet)){0, 0, 0};
            int64_t oh = (p.height - y0 + p.sh - 1) / p.sh, ow = (p.width - x0 + p.sw - 1) / p.sw;
            struct S(canvas) v = {p.filters, p.oh, p.ow, 1, 1, -r.least, -c.least, oh + r.largest - r.least,
                                  ow + c.largest - c.least};
            if (shared) v = one;
            int along = shared || S(along_filters)(&v, p.channels, oh, ow);
            int64_t k = 0, at, beside, panel = S(panel)(along);
            for (int64_t f = 0; f < p.filters && depth; f++)
                for (int64_t i = 0; i < p.kh; i++) {
                    if (!S(met)(y0 + p.ph, i, p.sh, p.dh, &at)) continue;
                    for (int64_t j = 0; j < p.kw; j++) {
                        if (!S(met)(x0 + p.pw, j, p.sw, p.dw, &beside)) continue;
                        offset[k] = (f * v.rows + at + v.top) * v.pitch + beside + v.left;
                        for (int64_t n = 0; n < p.channels; n += panel) {
                            int64_t have = p.channels - n < panel ? p.channels - n : panel;
                            T *to = a + n * depth + k * panel;
                            for (int64_t l = 0; l < panel; l++)
                                to[l] = l < have ? w[((f * p.channels + n + l) * p.kh + i) * p.kw + j] : 0;
                        }
                        k++;
                    }
                }
            *d = (struct S(direct)){v, p.channels, depth, 1, along, dy, a, bias, offset, dx + y0 * p.width + x0, oh, ow,
                                    p.height * p.width, p.sh * p.width, p.sw, p.width - x0, p.ys, p.xs, 0, 0, NULL, maxima ? &p : NULL, NULL};
            if (!shared) {
                S(direct_run)(d, p.batch);
                continue;
            }
            if (d > all) d[-1].next = d;
            d++, offset += depth, a += (p.channels + panel - 1) / panel * panel * depth;
        }
    if (shared) S(direct_run)(all, p.batch);
    scratch_give((int64_t *)all - most);
}
