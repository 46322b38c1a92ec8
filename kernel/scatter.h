// Additions at indexed places, in the order of the sources, whatever the threads: a thread owns columns.

struct S(scatter) {
    int64_t rows, n;
    T *o;
    const T *a;
    const int64_t *index;
};

static void S(add_rows_columns)(void *ctx, int64_t from, int64_t to) {
    const struct S(scatter) *p = ctx;
    for (int64_t r = 0; r < p->rows; r++) {
        T *o = p->o + p->index[r] * p->n;
        const T *a = p->a + r * p->n;
        for (int64_t i = from; i < to; i += N) {
            int k = S(some)(to - i);
            S(store_n)(o + i, S(canon)(S(load_n)(o + i, k) + S(load_n)(a + i, k)), k);
        }
    }
}

static void S(add_rows)(int64_t rows, int64_t n, T *o, const int64_t *index, const T *a) {
    struct S(scatter) p = {rows, n, o, a, index};
    int64_t grain = 1 + 32768 / (rows + 1);
    parallel_range(n, grain < 64 ? 64 : grain, S(add_rows_columns), &p);
}

static void S(scatter_add)(int64_t outer, int64_t from, int64_t to, int64_t inner, T *o, const int64_t *index, const T *a) {
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < from * inner; i++) {
            T *at = o + (p * to + index[p * from * inner + i]) * inner + i % inner;
            T s = *at + a[p * from * inner + i];
            *at = s == s ? s : (T)__builtin_nan("");
        }
}
