// Functions of one and two operands, comparisons and choices. OP is the function, IN and OUT are the elements' types.
#include "device.h"
#include "functions.h"
#include "walk.h"

#define compare_eq(x, y) ((x) == (y))
#define compare_ne(x, y) ((x) != (y))
#define compare_lt(x, y) ((x) < (y))
#define compare_le(x, y) ((x) <= (y))
#define compare_gt(x, y) ((x) > (y))
#define compare_ge(x, y) ((x) >= (y))
#define not_bool(x) (!(x))

#ifdef UNARY
KERNEL void run(struct walk w, GLOBAL OUT *o, long o_at, GLOBAL const IN *a, long a_at) {
    WALK(2);
    o[o_at + at[0]] = OP(a[a_at + at[1]]);
}
#else
KERNEL void run(struct walk w, GLOBAL OUT *o, long o_at, GLOBAL const IN *a, long a_at, GLOBAL const IN *b, long b_at) {
    WALK(3);
    IN x = TAKE(1, a, IN), y = TAKE(2, b, IN);
    o[o_at + at[0]] = OP(x, y);
}
#endif
