// Copies and choices of elements of the size of WORD, bits unchanged.
#include "device.h"
#include "walk.h"

KERNEL void copy(struct walk w, GLOBAL WORD *o, long o_at, GLOBAL const WORD *a, long a_at) {
    WALK(2);
    o[o_at + at[0]] = TAKE(1, a, WORD);
}

KERNEL void choose(struct walk w, GLOBAL WORD *o, long o_at, GLOBAL const uchar *c, long c_at, GLOBAL const WORD *a, long a_at,
                   GLOBAL const WORD *b, long b_at) {
    WALK(4);
    o[o_at + at[0]] = c[c_at + at[1]] ? TAKE(2, a, WORD) : TAKE(3, b, WORD);
}
