// The weights' gradient of a convolution: a sum over images and positions, for every kernel cell k and filter
// f, of the input under k times dy of f. Vectors run along the filters, so dy is transposed; the input is read
// from the canvas of conv.h.
//
// Images are cut into groups, a number that depends on the geometry alone. A group adds image after image,
// and each image in chunks of whole rows, of which each is one chain of fused multiply-adds; the groups' sums
// are then added in order.

// One tile: `rows` kernel cells x `vectors` of filters, over `oh` rows of positions.
#define WEIGHT_TILE(rows, vectors)                                                                                 \
    static void S(weight_##rows##_##vectors)(int64_t oh, int64_t ow, int64_t pitch, const T *x,                    \
                                             const int64_t *offset, const T *dy, int64_t width, T *c) {            \
        V acc[rows][vectors];                                                                                      \
        const T *at[rows];                                                                                         \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                                  \
            at[r] = x + offset[r];                                                                                 \
            for (int v = 0; v < vectors; v++) acc[r][v] = S(set)(0);                                               \
        }                                                                                                          \
        for (int64_t o = 0; o < oh * pitch; o += pitch)                                                            \
            for (int64_t p = o; p < o + ow; p++, dy += width) {                                                    \
                V y[vectors];                                                                                      \
                for (int v = 0; v < vectors; v++) y[v] = S(load)(dy + v * N);                                      \
                _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                          \
                    V e = S(set)(at[r][p]);                                                                        \
                    for (int v = 0; v < vectors; v++) acc[r][v] = S(fma)(e, y[v], acc[r][v]);                      \
                }                                                                                                  \
            }                                                                                                      \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++, c += width)                                        \
            for (int v = 0; v < vectors; v++) S(store)(c + v * N, S(load)(c + v * N) + acc[r][v]);                 \
    }
typedef void (*S(weight_fn))(int64_t, int64_t, int64_t, const T *, const int64_t *, const T *, int64_t, T *);
#define WEIGHT_TILES(rows) WEIGHT_TILE(rows, 1) WEIGHT_TILE(rows, 2)
EACH_ROWS(WEIGHT_TILES)
#define NAMED(rows) [rows] = {S(weight_##rows##_1), S(weight_##rows##_2)},
static const S(weight_fn) S(weight_tiles)[S(MR) + 1][2] = {EACH_ROWS(NAMED)};
#undef NAMED

struct S(weight_sum) {
    struct S(conv) p;
    struct S(canvas) canvas;
    int64_t depth, width, groups, slices, chunk; // width: filters, rounded up to vectors; chunk: output rows
    const int64_t *offset;
    T *sums; // for each group depth + 1 rows of width; the last is the bias's
};

static void S(weight_part)(void *ctx, int64_t task) {
    const struct S(weight_sum) *s = ctx;
    const struct S(conv) *p = &s->p;
    int64_t group = task / s->slices, slice = task % s->slices, panels = (s->depth + S(MR) - 1) / S(MR);
    int64_t k0 = slice * panels / s->slices * S(MR), k1 = (slice + 1) * panels / s->slices * S(MR);
    if (k1 > s->depth) k1 = s->depth;
    int64_t size = p->oh * p->ow, canvas = S(canvas_size)(&s->canvas);
    int64_t gradient = p->maxima ? p->filters * size : 0;
    T *x = scratch_take((canvas + s->chunk * p->ow * s->width + gradient) * sizeof(T)), *dy = x + canvas, *given = dy + s->chunk * p->ow * s->width;
    if (!x) return;
    T *sums = s->sums + group * (s->depth + 1) * s->width, *bias = sums + s->depth * s->width;
    memset(x, 0, canvas * sizeof(T));
    memset(sums + k0 * s->width, 0, (k1 - k0) * s->width * sizeof(T));
    if (slice == 0) memset(bias, 0, s->width * sizeof(T));
    for (int64_t b = group * p->batch / s->groups; b < (group + 1) * p->batch / s->groups; b++) {
        S(draw)(&s->canvas, x, p->x + b * p->xs);
        const T *image = S(gradient_of)(p, p->w, b, 0, p->filters, given);
        for (int64_t row = 0; row < p->oh; row += s->chunk) {
            int64_t rows = p->oh - row < s->chunk ? p->oh - row : s->chunk;
            S(pack)(dy, s->width, image + row * p->ow, size, 1, p->filters, rows * p->ow);
            for (int64_t f = 0; f < s->width && slice == 0; f += N) {
                V sum = S(set)(0);
                for (int64_t i = 0; i < rows * p->ow; i++) sum += S(load)(dy + i * s->width + f);
                S(store)(bias + f, S(load)(bias + f) + sum);
            }
            for (int64_t k = k0; k < k1; k += S(MR))
                for (int64_t f = 0; f < s->width; f += 2 * N)
                    S(weight_tiles)[k1 - k < S(MR) ? k1 - k : S(MR)][s->width - f > N](
                        rows, p->ow, s->canvas.pitch, x + row * s->canvas.pitch, s->offset + k, dy + f, s->width,
                        sums + k * s->width + f);
        }
    }
    scratch_give(x);
}

static int S(sparse_grad_weight)(const struct S(conv) *p, int64_t groups, int64_t chunk, T *dw, T *dbias); // conv_sparse.h
static void S(conv2d_grad_weight)(const int64_t *g, T *dw, T *dbias, const T *dy, const int32_t *maxima, int64_t pooled, const T *x) {
    struct S(conv) p = S(geometry)(g);
    p.w = dy, p.x = x, p.maxima = maxima, p.pooled = pooled;
    int64_t depth = p.channels * p.kh * p.kw, width = (p.filters + N - 1) / N * N, each = (depth + 1) * width;
    if (!p.batch || !p.filters) return;
    // The vectors' width must not matter: only filters and depth decide on the groups.
    int64_t groups = (1 << 20) / (depth * p.filters + 1) + 1;
    groups = groups < 16 ? groups : 16;
    groups = groups < p.batch ? groups : p.batch;
    int64_t chunk = p.ow < 256 ? 256 / p.ow : 1;
    if (S(sparse_grad_weight)(&p, groups, chunk, dw, dbias)) return;
    int64_t *offset = scratch_take(depth * sizeof(int64_t) + (groups * each + depth * p.filters) * sizeof(T) + 64);
    if (!offset) return;
    T *turned = (T *)(offset + depth);
    struct S(weight_sum) s = {p, S(input_canvas)(&p), depth, width, groups, S(parts_for)(groups, (depth + S(MR) - 1) / S(MR)),
                              chunk, offset, turned + depth * p.filters};
    S(cell_offsets)(&s.canvas, &p, offset);
    parallel_for(groups * s.slices, S(weight_part), &s);
    for (int64_t i = 1; i < groups; i++) S(add_to)(each, s.sums, s.sums + i * each);
    if (dw) {
        S(pack)(turned, (int)depth, s.sums, width, 1, depth, p.filters);
        S(add_to)(depth * p.filters, dw, turned);
    }
    if (dbias) S(add_to)(p.filters, dbias, s.sums + depth * width);
    scratch_give(offset);
}
