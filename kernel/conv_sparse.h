// The gradients of a convolution whose dy is mostly zeros, as pooling by maxima leaves it (three of four elements) and relu
// (every other): only what is not zero is multiplied. The chains of conv.h and conv_weight.h keep their order and their bits: a
// fused multiply-add by zero changes nothing but the sign of a zero, which the addition to a sum from +0 takes away. So this is
// for speed alone, and a path may choose it or not. Where the other factor of a zero is infinite or NaN, nothing is left out.
//
// The elements that are not zero are listed, filter by filter, with their places in a padded image of one vector of channels,
// which the first cache holds. For the weights' gradient it has the input, and a list gathers what its elements multiply; for the
// input's gradient it has the sums, and the elements are spread over them.

struct S(sparse) {
    struct S(conv) p;
    int64_t cells, wide, pitch, size; // of the kernel; channels in whole vectors; positions of a padded row; elements of a padded image
    int64_t each, parts, groups, chunk, chunks; // images of a task and parts of one; conv_weight.h's groups and chunks
    const INT *in, *out; // where an input position, and the window of an output position, begin in the padded image
    const T *w;
    T *to;
};

enum { S(CELLS) = 8 }; // of a row of the kernel, at most

// What is computed here: stride 1, and channels that fill most of their vectors.
static int S(suits)(const struct S(sparse) *s) {
    const struct S(conv) *p = &s->p;
    return p->sh == 1 && p->sw == 1 && p->dh == 1 && p->dw == 1 && p->batch && p->filters && p->kw <= S(CELLS) &&
           p->oh == p->height + 2 * p->ph - p->kh + 1 && p->ow == p->width + 2 * p->pw - p->kw + 1 &&
           2 * s->wide <= 3 * p->channels && s->size <= (1 << 17) / (int64_t)sizeof(T);
}

INLINE struct S(sparse) S(sparse_sums)(const struct S(conv) *p) {
    int64_t pitch = p->width + 2 * p->pw;
    return (struct S(sparse)){.p = *p, .cells = p->kh * p->kw, .wide = (p->channels + N - 1) / N * N, .pitch = pitch,
                              .size = (p->height + 2 * p->ph) * pitch * N, .chunk = p->oh, .chunks = 1};
}

static void S(places)(struct S(sparse) *s, INT *place) {
    const struct S(conv) *p = &s->p;
    s->in = place;
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++) *place++ = (INT)(((y + p->ph) * s->pitch + x + p->pw) * N);
    s->out = place;
    for (int64_t y = 0; y < p->oh; y++)
        for (int64_t x = 0; x < p->ow; x++) *place++ = (INT)((y * s->pitch + x) * N);
}

// Whether at most that part of dy is not zero, as far as two of its images tell.
static int S(few)(const struct S(conv) *p, const T *dy, double part) {
    int64_t size = p->filters * p->oh * p->ow, have = p->maxima ? p->filters * p->pooled : size, count = 0;
    for (int64_t image = 0; image < 2; image++) {
        const T *x = dy + image * (p->batch / 2) * (p->maxima ? have : p->ys);
        for (int64_t i = 0; i < have; i++) count += x[i] != 0;
    }
    return count <= part * 2 * size;
}

static int S(finite)(int64_t n, const T *x) {
    V none = S(set)(0);
    for (int64_t i = 0; i < n; i += N) {
        V v = S(load_n)(x + i, S(some)(n - i));
        none += v - v; // NaN of infinities and NaN
    }
    for (int l = 0; l < N; l++)
        if (none[l] != 0) return 0;
    return 1;
}

// Lists the elements of n that are not zero, or all of them, with their places; returns how many. It writes up to N beyond these.
static int64_t S(list)(int64_t n, const T *x, const INT *place, int all, INT *at, T *value) {
    int64_t count = 0, i = 0;
#if VB == 64
    for (; i < n && !all; i += N) {
        int k = S(some)(n - i);
        V v = S(load_n)(x + i, k), where = S(load_n)((const T *)(place + i), k); // bits as they are
        int found = S(front)(&v, &where);
        S(store)(value + count, v);
        S(store)((T *)(at + count), where);
        count += found;
    }
#endif
    for (; i < n; i++) { // without branches, since zeros are unpredictable
        at[count] = place[i];
        value[count] = x[i];
        count += all | (x[i] != 0);
    }
    return count;
}

// The lists of filters from f0 to f1 of an image, each in chunks of output rows; list i is from[i] to from[i + 1].
static void S(lists)(const struct S(sparse) *s, const T *dy, int64_t f0, int64_t f1, int all, int64_t *from, INT *at, T *value) {
    const struct S(conv) *p = &s->p;
    for (int64_t f = f0, n = 0; f < f1; f++)
        for (int64_t row = 0; row < p->oh; row += s->chunk) {
            int64_t rows = p->oh - row < s->chunk ? p->oh - row : s->chunk;
            *from++ = n;
            n += S(list)(rows * p->ow, dy + (f * p->oh + row) * p->ow, s->out + row * p->ow, all, at + n, value + n);
            *from = n;
        }
}

// A tile of the weights' gradient: for each of rows x columns of neighbouring kernel cells the sum over the list of dy times the
// input of a vector of channels. Returns the sum over the list of dy, for the bias.
#define GATHER_TILE(rows, columns)                                                                                 \
    static T S(gather_##rows##x##columns)(int64_t n, const INT *at, const T *value, const T *x, int64_t pitch,     \
                                          T *sums) {                                                               \
        V acc[rows][columns], all = S(set)(0);                                                                     \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)                                                     \
            _Pragma("GCC unroll 8") for (int j = 0; j < columns; j++) acc[i][j] = S(set)(0);                       \
        for (; n > 0; n--, at++, value++) {                                                                        \
            const T *from = x + *at;                                                                               \
            V e = S(set)(*value);                                                                                  \
            all += e;                                                                                              \
            _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++, from += pitch)                                  \
                _Pragma("GCC unroll 8") for (int j = 0; j < columns; j++)                                          \
                    acc[i][j] = S(fma)(S(load)(from + j * N), e, acc[i][j]);                                       \
        }                                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)                                                     \
            _Pragma("GCC unroll 8") for (int j = 0; j < columns; j++, sums += N)                                   \
                S(store)(sums, S(load)(sums) + acc[i][j]);                                                         \
        return all[0];                                                                                             \
    }
typedef T (*S(gather_fn))(int64_t, const INT *, const T *, const T *, int64_t, T *);

// A tile of the input's gradient: each of the list times rows x columns of neighbouring kernel cells, added to a vector of channels
// of the positions that they meet. The last of the list comes first, since cells must come in order at each position.
#define SPREAD_TILE(rows, columns)                                                                                 \
    static void S(spread_##rows##x##columns)(int64_t n, const INT *at, const T *value, const T *w, int64_t pitch,  \
                                             T *sums) {                                                            \
        V k[rows][columns];                                                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++)                                                     \
            _Pragma("GCC unroll 8") for (int j = 0; j < columns; j++, w += N) k[i][j] = S(load)(w);                \
        while (n-- > 0) {                                                                                          \
            T *to = sums + at[n];                                                                                  \
            V e = S(set)(value[n]);                                                                                \
            _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++, to += pitch)                                    \
                _Pragma("GCC unroll 8") for (int j = 0; j < columns; j++)                                          \
                    S(store)(to + j * N, S(fma)(k[i][j], e, S(load)(to + j * N)));                                 \
        }                                                                                                          \
    }
typedef void (*S(spread_fn))(int64_t, const INT *, const T *, const T *, int64_t, T *);

// Tiles of a row of cells, and of the common kernel.
#define EACH_ROW(f) f(1, 1) f(1, 2) f(1, 3) f(1, 4) f(1, 5) f(1, 6) f(1, 7) f(1, 8)
EACH_ROW(GATHER_TILE) GATHER_TILE(3, 3) EACH_ROW(SPREAD_TILE) SPREAD_TILE(3, 3)
#define GATHERS(rows, columns) [columns] = S(gather_##rows##x##columns),
#define SPREADS(rows, columns) [columns] = S(spread_##rows##x##columns),
static const S(gather_fn) S(gather_tiles)[S(CELLS) + 1] = {EACH_ROW(GATHERS)};
static const S(spread_fn) S(spread_tiles)[S(CELLS) + 1] = {EACH_ROW(SPREADS)};
#undef GATHERS
#undef SPREADS

// A task is a group of images for some of the filters. The sums of a filter are its cells for each vector of channels, and then,
// first in a vector, the bias'.
static void S(gather_part)(void *ctx, int64_t task) {
    const struct S(sparse) *s = ctx;
    const struct S(conv) *p = &s->p;
    int64_t group = task / s->parts, part = task % s->parts, pixels = p->height * p->width, each = s->wide * s->cells + N;
    int64_t f0 = part * p->filters / s->parts, f1 = (part + 1) * p->filters / s->parts, lists = (f1 - f0) * s->chunks;
    int64_t listed = ((f1 - f0) * p->oh * p->ow + 2 * N) / N * N, gradient = p->maxima ? (p->filters * p->oh * p->ow + N) / N * N : 0;
    T *x = scratch_take((s->size + gradient + listed) * sizeof(T) + listed * sizeof(INT) + (lists + 1) * sizeof(int64_t)), *given = x + s->size, *value = given + gradient;
    if (!x) return;
    INT *at = (INT *)(value + listed);
    int64_t *from = (int64_t *)(at + listed);
    T *sums = s->to + (group * p->filters + f0) * each;
    memset(x, 0, s->size * sizeof(T));
    memset(sums, 0, (f1 - f0) * each * sizeof(T));
    for (int64_t b = group * p->batch / s->groups; b < (group + 1) * p->batch / s->groups; b++) {
        const T *image = p->x + b * p->xs;
        S(lists)(s, S(gradient_of)(p, p->w, b, f0, f1, given), f0, f1, !S(finite)(p->channels * pixels, image), from, at, value);
        for (int64_t c = 0; c < s->wide; c += N) {
            int have = S(some)(p->channels - c);
            for (int64_t i = 0; i < pixels; i += N) {
                int n = S(some)(pixels - i);
                V v[N];
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++)
                    v[l] = l < have ? S(load_n)(image + (c + l) * pixels + i, n) : S(set)(0);
                S(transpose)(v);
                for (int l = 0; l < n; l++) S(store)(x + s->in[i + l], v[l]);
            }
            for (int64_t l = 0; l < lists; l++) {
                int64_t n = from[l + 1] - from[l];
                T *filter = sums + l / s->chunks * each, *to = filter + c * s->cells, sum = 0;
                if (p->kh == 3 && p->kw == 3) sum = S(gather_3x3)(n, at + from[l], value + from[l], x, s->pitch * N, to);
                else
                    for (int64_t i = 0; i < p->kh; i++)
                        sum = S(gather_tiles)[p->kw](n, at + from[l], value + from[l], x + i * s->pitch * N, 0, to + i * p->kw * N);
                if (c == 0) filter[s->wide * s->cells] += sum;
            }
        }
    }
    scratch_give(x);
}

// Adds the gradients of the weights and the bias, either of which may be NULL; 0 if that is not done here.
static int S(sparse_grad_weight)(const struct S(conv) *p, int64_t groups, int64_t chunk, T *dw, T *dbias) {
    struct S(sparse) s = S(sparse_sums)(p);
    if (!S(suits)(&s) || !S(few)(p, p->w, 0.5)) return 0;
    int64_t each = s.wide * s.cells + N, all = each * p->filters, depth = p->channels * s.cells;
    int64_t places = (p->height * p->width + p->oh * p->ow + N) / N * N;
    T *sums = scratch_take((groups * all + (depth + 1) * p->filters) * sizeof(T) + places * sizeof(INT));
    if (!sums) return 1;
    s.to = sums, s.groups = groups, s.parts = S(parts_for)(groups, p->filters), s.chunk = chunk, s.chunks = (p->oh + chunk - 1) / chunk;
    S(places)(&s, (INT *)(sums + groups * all));
    parallel_for(groups * s.parts, S(gather_part), &s);
    for (int64_t i = 1; i < groups; i++) S(add_to)(all, sums, sums + i * all);
    T *turned = (T *)((INT *)(sums + groups * all) + places), *bias = turned + depth * p->filters;
    for (int64_t f = 0; f < p->filters; f++) {
        for (int64_t c = 0; c < p->channels; c++)
            for (int64_t k = 0; k < s.cells; k++)
                turned[(f * p->channels + c) * s.cells + k] = sums[f * each + (c / N * s.cells + k) * N + c % N];
        bias[f] = sums[f * each + s.wide * s.cells];
    }
    if (dw) S(add_to)(depth * p->filters, dw, turned);
    if (dbias) S(add_to)(p->filters, dbias, bias);
    scratch_give(sums);
    return 1;
}

// A vector of channels of an image, of which w has the weights: for each block of KC values of k = (filter, i, j) a chain from
// zero, which are added in order.
static void S(spread_channels)(const struct S(sparse) *s, const int64_t *from, const INT *at, const T *value, const T *w, T *acc, T *total) {
    const struct S(conv) *p = &s->p;
    int64_t depth = p->filters * s->cells;
    for (int64_t k0 = 0; k0 < depth; k0 += S(KC)) {
        int64_t k1 = depth - k0 < S(KC) ? depth : k0 + S(KC);
        memset(acc, 0, s->size * sizeof(T));
        for (int64_t k = k0, n; k < k1; k += n) { // as many cells as a block has of a row of the kernel, or all of the common one
            int64_t f = k / s->cells, i = k % s->cells / p->kw, j = k % p->kw;
            int whole = p->kh == 3 && p->kw == 3 && k % 9 == 0 && k1 - k >= 9;
            n = whole ? 9 : p->kw - j < k1 - k ? p->kw - j : k1 - k;
            (whole ? S(spread_3x3) : S(spread_tiles)[n])(from[f + 1] - from[f], at + from[f], value + from[f], w + k * N, s->pitch * N,
                                                         acc + (i * s->pitch + j) * N);
        }
        for (int64_t i = 0; i < s->size; i += N) S(store)(total + i, k0 ? S(load)(total + i) + S(load)(acc + i) : S(load)(acc + i));
    }
}

// A task is some images, or a part of the channels of one.
static void S(spread_part)(void *ctx, int64_t task) {
    const struct S(sparse) *s = ctx;
    const struct S(conv) *p = &s->p;
    int64_t first = task / s->parts * s->each, part = task % s->parts, vectors = s->wide / N, pixels = p->height * p->width;
    int64_t listed = (p->filters * p->oh * p->ow + 2 * N) / N * N, gradient = p->maxima ? listed : 0;
    T *acc = scratch_take((2 * s->size + gradient + listed) * sizeof(T) + listed * sizeof(INT) + (p->filters + 1) * sizeof(int64_t));
    if (!acc) return;
    T *total = acc + s->size, *given = total + s->size, *value = given + gradient;
    INT *at = (INT *)(value + listed);
    int64_t *from = (int64_t *)(at + listed);
    for (int64_t b = first; b < first + s->each && b < p->batch; b++) {
        S(lists)(s, S(gradient_of)(p, p->x, b, 0, p->filters, given), 0, p->filters, 0, from, at, value);
        for (int64_t c = part * vectors / s->parts * N; c < (part + 1) * vectors / s->parts * N; c += N) {
            S(spread_channels)(s, from, at, value, s->w + c * p->filters * s->cells, acc, total);
            int have = S(some)(p->channels - c);
            for (int64_t i = 0; i < pixels; i += N) {
                int n = S(some)(pixels - i);
                V v[N];
                _Pragma("GCC unroll 16") for (int l = 0; l < N; l++) v[l] = l < n ? S(canon)(S(load)(total + s->in[i + l]) + S(set)(0)) : S(set)(0);
                S(transpose)(v);
                for (int l = 0; l < have; l++) S(store_n)(s->to + b * p->xs + (c + l) * pixels + i, v[l], n);
            }
        }
    }
    scratch_give(acc);
}

// Computes the input's gradient; 0 if that is not done here.
static int S(sparse_grad_input)(const struct S(conv) *p, T *dx, const T *dy, const T *w) {
    struct S(sparse) s = S(sparse_sums)(p);
    if (!S(suits)(&s) || !S(few)(p, dy, 0.3) || !S(finite)(p->filters * p->channels * s.cells, w)) return 0;
    int64_t threads = drun_threads(), weights = s.wide * p->filters * s.cells;
    T *turned = scratch_take(weights * sizeof(T) + (p->height * p->width + p->oh * p->ow) * sizeof(INT)), *t = turned;
    if (!turned) return 1;
    for (int64_t c = 0; c < s.wide; c += N)
        for (int64_t f = 0; f < p->filters; f++)
            for (int64_t k = 0; k < s.cells; k++)
                for (int64_t l = c; l < c + N; l++) *t++ = l < p->channels ? w[(f * p->channels + l) * s.cells + k] : 0;
    S(places)(&s, (INT *)t);
    s.p.x = dy, s.w = turned, s.to = dx, s.parts = S(parts_for)(p->batch, s.wide / N);
    s.each = threads < 2 ? p->batch : p->batch < 8 * threads ? 1 : p->batch / (4 * threads);
    parallel_for((p->batch + s.each - 1) / s.each * s.parts, S(spread_part), &s);
    scratch_give(turned);
    return 1;
}
