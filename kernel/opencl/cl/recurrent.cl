// A step of a recurrent layer, or its gradient: RUN is a function of rnn.h, and a work-item has one column of one row.
#include "device.h"
#define REALS
#include "functions.h"
#define N 1
#ifdef DOUBLE
#define T double
#define V double
#define S(name) name##_f64
#else
#define T float
#define V float
#define S(name) name##_f32
#endif
INLINE V S(load_n)(GLOBAL const T *p, int k) { return *p; }
INLINE void S(store_n)(GLOBAL T *p, V v, int k) { *p = v; }
#include "rnn.h"

#define PART(name) GLOBAL T *name, long name##_at
#define HERE(name) (name ? name + name##_at : 0)
KERNEL void cell_step(PART(gates), PART(h), PART(c), PART(out), PART(hidden), PART(h0), PART(c0), PART(dout), PART(dh), PART(dc), PART(dgates),
                 PART(dhidden), PART(dh0), PART(dc0), GLOBAL const long *lengths, long lengths_at, long n, long width, long t, long out_step, int relu) {
    long row = get_global_id(0) / width;
    if (row >= n) return;
    struct S(cell) p = {n, width, t, lengths ? lengths + lengths_at : 0, HERE(gates), HERE(h), HERE(c), HERE(out), HERE(hidden), HERE(h0), HERE(c0),
                        HERE(dout), HERE(dh), HERE(dc), HERE(dgates), HERE(dhidden), HERE(dh0), HERE(dc0), out_step, relu};
    RUN(&p, row, row + 1);
}
