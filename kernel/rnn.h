// One step of recurrent layers for a batch, between two matrix products: from the gates' sums to the new state, and
// back. Row b belongs to sequence b; where t is not below its length the state stays as it was, and the output is 0.
// On devices a work-item computes one column of one row.
//
// LSTM (Hochreiter and Schmidhuber 1997): gates i, f, g, o in this order, as PyTorch has them.
// GRU (Cho et al. 2014): gates r, z, n; hidden sums are apart, since r scales those of n.

struct S(cell) {
    int64_t n, width, t; // width: of the state
    GLOBAL const int64_t *lengths;
    GLOBAL T *gates, *h, *c, *out;
    GLOBAL const T *hidden, *h0, *c0, *dout, *dh, *dc;
    GLOBAL T *dgates, *dhidden, *dh0, *dc0;
    int64_t out_step; // from a row of out or dout to the next
    int relu;
};

INLINE V S(sigmoid_slope)(V y) { return y * (1 - y); }

INLINE int S(over)(const struct S(cell) *p, int64_t b) { return p->lengths && p->t >= p->lengths[b]; }

#define CELL_ROWS(b) for (int64_t b = from; b < to; b++)
#ifdef ON_DEVICE
#define CELL_COLUMNS(i, k) for (int64_t i = get_global_id(0) % w, k = 1, once = 1; once; once = 0)
INLINE void S(copy_state)(GLOBAL T *to, GLOBAL const T *from, int64_t w) { CELL_COLUMNS(i, k) to[i] = from[i]; }
INLINE void S(clear_state)(GLOBAL T *to, int gates, int64_t w) {
    for (int g = 0; g < gates; g++) CELL_COLUMNS(i, k) to[g * w + i] = 0;
}
#else
#define CELL_COLUMNS(i, k)                              \
    for (int64_t i = 0; i < w; i += N)                  \
        for (int k = S(some)(w - i), once = 1; once; once = 0)
INLINE void S(copy_state)(T *to, const T *from, int64_t w) { memcpy(to, from, w * sizeof(T)); }
INLINE void S(clear_state)(T *to, int gates, int64_t w) { memset(to, 0, gates * w * sizeof(T)); }
#endif

static void S(lstm_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL T *g = p->gates + 4 * b * w, *out = p->out + b * p->out_step;
        if (S(over)(p, b)) {
            S(copy_state)(p->h + b * w, p->h0 + b * w, w);
            S(copy_state)(p->c + b * w, p->c0 + b * w, w);
            S(clear_state)(out, 1, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V in = S(sigmoid)(S(load_n)(g + i, k)), forget = S(sigmoid)(S(load_n)(g + w + i, k));
            V new = S(tanh)(S(load_n)(g + 2 * w + i, k)), show = S(sigmoid)(S(load_n)(g + 3 * w + i, k));
            V c = S(fma)(forget, S(load_n)(p->c0 + b * w + i, k), in * new), h = show * S(tanh)(c);
            S(store_n)(g + i, in, k), S(store_n)(g + w + i, forget, k);
            S(store_n)(g + 2 * w + i, new, k), S(store_n)(g + 3 * w + i, show, k);
            S(store_n)(p->c + b * w + i, S(canon)(c), k);
            S(store_n)(p->h + b * w + i, S(canon)(h), k);
            S(store_n)(out + i, S(canon)(h), k);
        }
    }
}

// The gates hold their values; dgates gets the gradients of their sums. dh and dc are what came from the step after.
static void S(lstm_grad_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL const T *g = p->gates + 4 * b * w, *dout = p->dout ? p->dout + b * p->out_step : NULL;
        GLOBAL T *d = p->dgates + 4 * b * w;
        if (S(over)(p, b)) {
            S(clear_state)(d, 4, w);
            S(copy_state)(p->dc0 + b * w, p->dc + b * w, w);
            S(copy_state)(p->dh0 + b * w, p->dh + b * w, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V in = S(load_n)(g + i, k), forget = S(load_n)(g + w + i, k);
            V new = S(load_n)(g + 2 * w + i, k), show = S(load_n)(g + 3 * w + i, k);
            V c = S(tanh)(S(load_n)(p->c + b * w + i, k)), dh = S(load_n)(p->dh + b * w + i, k);
            if (dout) dh += S(load_n)(dout + i, k);
            V dc = S(fma)(dh * show, 1 - c * c, S(load_n)(p->dc + b * w + i, k));
            S(store_n)(d + i, S(canon)(dc * new * S(sigmoid_slope)(in)), k);
            S(store_n)(d + w + i, S(canon)(dc * S(load_n)(p->c0 + b * w + i, k) * S(sigmoid_slope)(forget)), k);
            S(store_n)(d + 2 * w + i, S(canon)(dc * in * (1 - new * new)), k);
            S(store_n)(d + 3 * w + i, S(canon)(dh * c * S(sigmoid_slope)(show)), k);
            S(store_n)(p->dc0 + b * w + i, S(canon)(dc * forget), k);
            S(store_n)(p->dh0 + b * w + i, S(set)(0), k); // the product with the weights is added
        }
    }
}

// hidden has the hidden sums of r, z, n. gates keeps r, z, n, and in the fourth part the hidden sum of n.
static void S(gru_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL T *g = p->gates + 4 * b * w, *out = p->out + b * p->out_step;
        GLOBAL const T *s = p->hidden + 3 * b * w;
        if (S(over)(p, b)) {
            S(copy_state)(p->h + b * w, p->h0 + b * w, w);
            S(clear_state)(out, 1, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V r = S(sigmoid)(S(load_n)(g + i, k) + S(load_n)(s + i, k));
            V z = S(sigmoid)(S(load_n)(g + w + i, k) + S(load_n)(s + w + i, k)), hn = S(load_n)(s + 2 * w + i, k);
            V n = S(tanh)(S(fma)(r, hn, S(load_n)(g + 2 * w + i, k)));
            V h = S(fma)(z, S(load_n)(p->h0 + b * w + i, k) - n, n);
            S(store_n)(g + i, r, k), S(store_n)(g + w + i, z, k), S(store_n)(g + 2 * w + i, n, k);
            S(store_n)(g + 3 * w + i, hn, k);
            S(store_n)(p->h + b * w + i, S(canon)(h), k);
            S(store_n)(out + i, S(canon)(h), k);
        }
    }
}

static void S(gru_grad_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL const T *g = p->gates + 4 * b * w, *dout = p->dout ? p->dout + b * p->out_step : NULL;
        GLOBAL T *d = p->dgates + 3 * b * w, *dhidden = p->dhidden + 3 * b * w;
        if (S(over)(p, b)) {
            S(clear_state)(d, 3, w);
            S(clear_state)(dhidden, 3, w);
            S(copy_state)(p->dh0 + b * w, p->dh + b * w, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V r = S(load_n)(g + i, k), z = S(load_n)(g + w + i, k), n = S(load_n)(g + 2 * w + i, k);
            V hn = S(load_n)(g + 3 * w + i, k), h0 = S(load_n)(p->h0 + b * w + i, k), dh = S(load_n)(p->dh + b * w + i, k);
            if (dout) dh += S(load_n)(dout + i, k);
            V dn = dh * (1 - z) * (1 - n * n), dz = dh * (h0 - n) * S(sigmoid_slope)(z), dr = dn * hn * S(sigmoid_slope)(r);
            S(store_n)(d + i, S(canon)(dr), k), S(store_n)(d + w + i, S(canon)(dz), k), S(store_n)(d + 2 * w + i, S(canon)(dn), k);
            S(store_n)(dhidden + i, S(canon)(dr), k), S(store_n)(dhidden + w + i, S(canon)(dz), k);
            S(store_n)(dhidden + 2 * w + i, S(canon)(dn * r), k);
            S(store_n)(p->dh0 + b * w + i, S(canon)(dh * z), k);
        }
    }
}

// The plain recurrent layer: h = tanh or relu of the sum (Elman 1990).
static void S(rnn_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL T *out = p->out + b * p->out_step;
        if (S(over)(p, b)) {
            S(copy_state)(p->h + b * w, p->h0 + b * w, w);
            S(clear_state)(out, 1, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V s = S(load_n)(p->gates + b * w + i, k), h = S(canon)(p->relu ? S(relu)(s) : S(tanh)(s));
            S(store_n)(p->h + b * w + i, h, k);
            S(store_n)(out + i, h, k);
        }
    }
}

static void S(rnn_grad_rows)(void *ctx, int64_t from, int64_t to) {
    const struct S(cell) *p = ctx;
    int64_t w = p->width;
    CELL_ROWS(b) {
        GLOBAL const T *dout = p->dout ? p->dout + b * p->out_step : NULL;
        GLOBAL T *d = p->dgates + b * w;
        if (S(over)(p, b)) {
            S(clear_state)(d, 1, w);
            S(copy_state)(p->dh0 + b * w, p->dh + b * w, w);
            continue;
        }
        CELL_COLUMNS(i, k) {
            V h = S(load_n)(p->h + b * w + i, k), dh = S(load_n)(p->dh + b * w + i, k);
            if (dout) dh += S(load_n)(dout + i, k);
            S(store_n)(d + i, S(canon)(p->relu ? S(sel)(h > 0, dh, S(set)(0)) : dh * (1 - h * h)), k);
            S(store_n)(p->dh0 + b * w + i, S(set)(0), k);
        }
    }
}

#ifndef ON_DEVICE
// kind is LSTM, GRU, RNN_TANH or RNN_RELU; q has the addresses in the order of struct cell.
static void S(cell_step)(int kind, int backward, int64_t n, int64_t width, int64_t t, int64_t out_step, const int64_t *lengths,
                         const uintptr_t *q) {
    struct S(cell) p = {.n = n, .width = width, .t = t, .lengths = lengths, .out_step = out_step, .relu = kind == RNN_RELU,
                        .gates = (T *)q[0], .h = (T *)q[1], .c = (T *)q[2], .out = (T *)q[3], .hidden = (T *)q[4],
                        .h0 = (T *)q[5], .c0 = (T *)q[6], .dout = (T *)q[7], .dh = (T *)q[8], .dc = (T *)q[9],
                        .dgates = (T *)q[10], .dhidden = (T *)q[11], .dh0 = (T *)q[12], .dc0 = (T *)q[13]};
    void (*run)(void *, int64_t, int64_t) = backward ? S(rnn_grad_rows) : S(rnn_rows);
    if (kind == LSTM) run = backward ? S(lstm_grad_rows) : S(lstm_rows);
    if (kind == GRU) run = backward ? S(gru_grad_rows) : S(gru_rows);
    parallel_range(n, 1 + 4096 / (width + 1), run, &p);
}
#endif
#undef CELL_ROWS
#undef CELL_COLUMNS
