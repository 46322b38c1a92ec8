// Elementwise kernels go over several operands of one shape, as walk.c does.
enum { MOST_DIMS = 6 };
struct walk {
    long total;
    int dims, number; // which operand is the number instead of memory, 0 for none
    ulong value;
    long shape[MOST_DIMS], stride[4][MOST_DIMS]; // in elements; 0 broadcasts
};

// Where element i of each operand lies.
INLINE void places(const struct walk *w, long i, int operands, long *at) {
    int last = w->dims - 1;
    if (last == 0) {
        for (int k = 0; k < operands; k++) at[k] = i * w->stride[k][0];
        return;
    }
    for (int k = 0; k < operands; k++) at[k] = 0;
    uint rest = (uint)i; // a walk of several dimensions has less than 2^31 elements
    for (int d = last; d > 0; d--) {
        uint size = (uint)w->shape[d], q = rest / size, r = rest - q * size;
        for (int k = 0; k < operands; k++) at[k] += r * w->stride[k][d];
        rest = q;
    }
    for (int k = 0; k < operands; k++) at[k] += rest * w->stride[k][0];
}

#define WALK(operands)                        \
    long i = get_global_id(0), at[operands]; \
    if (i >= w.total) return;                 \
    places(&w, i, operands, at)
// Operand k, which is the number if it is meant.
#define TAKE(k, p, type) (w.number == (k) ? *(const type *)&w.value : (p)[p##_at + at[k]])
