// Activations with their slopes: OP is NAME_sloped_TYPE.
#include "device.h"
#define REALS
#include "functions.h"
#include "lanes.h"

KERNEL void run(GLOBAL T *o, long o_at, GLOBAL T *slope, long slope_at, GLOBAL const T *x, long x_at, long n, T a, T b) {
    long i = get_global_id(0);
    if (i >= n) return;
    T s, y = OP(x[x_at + i], a, b, &s);
    o[o_at + i] = canon(y);
    if (slope) slope[slope_at + i] = canon(s);
}
