// Reductions over the ranks' contributions: o[i] = (src[0][i] op src[1][i]) op ..., in that order, in the
// element's own type (half precisions through float, rounded once at the end).

enum { RANK_BLOCK = 2048 };

struct ranks {
    int op, dt, ranks;
    char *o;
    const uintptr_t *src;
};

static const int rank_ops[] = {[RANK_SUM] = ADD, [RANK_AVG] = ADD, [RANK_PRODUCT] = MUL, [RANK_MIN] = MIN, [RANK_MAX] = MAX,
                               [RANK_BAND] = AND, [RANK_BOR] = OR, [RANK_BXOR] = XOR};

// The average divides: a product with 1 / ranks would round twice, unless that is a power of two.
static void divide_block(int dt, int64_t n, void *o, int by) {
    if ((by & (by - 1)) == 0) {
        if (dt == F64) for (int64_t i = 0; i < n; i++) ((double *)o)[i] *= 1 / (double)by;
        else for (int64_t i = 0; i < n; i++) ((float *)o)[i] *= 1 / (float)by;
    } else if (dt == F64) for (int64_t i = 0; i < n; i++) ((double *)o)[i] /= (double)by;
    else for (int64_t i = 0; i < n; i++) ((float *)o)[i] /= (float)by;
}

// The average of integers is that of their exact sum, which their own type need not hold: WIDE does.
#define AVERAGE(TYPE, WIDE)                                                             \
    for (int64_t i = from; i < to; i++) {                                               \
        WIDE sum = 0;                                                                   \
        for (int k = 0; k < r->ranks; k++) sum += ((const TYPE *)r->src[k])[i];         \
        ((TYPE *)r->o)[i] = (TYPE)(sum / r->ranks);                                     \
    }                                                                                   \
    break
static void average_integers_range(void *ctx, int64_t from, int64_t to) {
    const struct ranks *r = ctx;
    switch (r->dt) {
    case I64: AVERAGE(int64_t, __int128);
    case I32: AVERAGE(int32_t, int64_t);
    case I8: AVERAGE(int8_t, int64_t);
    default: AVERAGE(uint8_t, int64_t);
    }
}
#undef AVERAGE

// Blocks that stay in the first-level cache, so that memory is read and written once however many ranks. The
// block is built aside: the output may be one of the sources.
static void reduce_ranks_range(void *ctx, int64_t from, int64_t to) {
    const struct ranks *r = ctx;
    int half = r->dt == F16 || r->dt == BF16, size = dtype_size(r->dt), dt = half ? F32 : r->dt;
    int two = r->ranks == 2 && !half, mean = two && r->op == RANK_AVG;
    map2 f = mean ? (dt == F64 ? map_mean_f64 : map_mean_f32) : PICK(binary_maps, dt, rank_ops[r->op]);
    uint64_t acc[RANK_BLOCK], wide[RANK_BLOCK / 2];
    for (int64_t i = from; i < to; i += RANK_BLOCK) {
        int64_t n = to - i < RANK_BLOCK ? to - i : RANK_BLOCK;
        const char *first = (const char *)r->src[0] + i * size;
        char *o = r->o + i * size;
        if (half) casts[r->dt][F32](n, acc, first);
        for (int k = 1; k < r->ranks; k++) {
            const void *next = (const char *)r->src[k] + i * size;
            if (half) casts[r->dt][F32](n, wide, next), next = wide;
            f(n, two ? (void *)o : acc, k == 1 && !half ? (const void *)first : acc, next);
        }
        if (two) continue;
        if (r->ranks == 1 && !half) memcpy(acc, first, n * size);
        if (r->op == RANK_AVG) divide_block(dt, n, acc, r->ranks);
        if (half) casts[F32][r->dt](n, o, acc);
        else memcpy(o, acc, n * size);
    }
}

static void k_reduce_ranks(int op, int dt, int64_t n, void *o, int ranks, const uintptr_t *src) {
    // Complex numbers add, and are averaged, part by part.
    if (dt == C64) dt = F32, n *= 2;
    struct ranks r = {op, dt, ranks, o, src};
    int integer = dt == I64 || dt == I32 || dt == I8 || dt == U8;
    parallel_range(n, 1 << 18, op == RANK_AVG && integer ? average_integers_range : reduce_ranks_range, &r);
}
