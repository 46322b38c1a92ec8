// Sums along adjacent elements: sixteen work-items take the elements in turn, and their results are folded as a binary tree (8 and
// 8, 4 and 4, …). Rows are cut every CUT elements, and the cuts added in double: see reduce.h of package kernel.
#define LANES 16
#define CUT 4096

#ifdef DOUBLE
typedef double T;
#define canon(x) canon_f64(x)
#define root(x) sqrt_f64(x)
#define exponential(x) exp_f64(x)
#define logarithm(x) log_f64(x)
#else
typedef float T;
#define canon(x) canon_f32(x)
#define root(x) sqrt_f32(x)
#define exponential(x) exp_f32(x)
#define logarithm(x) log_f32(x)
#endif

INLINE T add_(T x, T y) { return x + y; }
INLINE T multiply_(T x, T y) { return x * y; }
INLINE T least_(T x, T y) { return (x < y) | (x != x) ? x : y; }
INLINE T most_(T x, T y) { return (x > y) | (x != x) ? x : y; }

// Every work-item gets all lanes' folded value.
#define FOLD(combine)                                                   \
    INLINE T fold_##combine(LOCAL T *lanes, T value) {                  \
        int lane = get_local_id(0);                                     \
        lanes[lane] = value;                                            \
        BARRIER;                                                        \
        for (int half_ = LANES / 2; half_; half_ /= 2) {                \
            if (lane < half_) lanes[lane] = combine##_(lanes[lane], lanes[lane + half_]); \
            BARRIER;                                                    \
        }                                                               \
        T result = lanes[0];                                            \
        BARRIER;                                                        \
        return result;                                                  \
    }
FOLD(add)
FOLD(multiply)
FOLD(least)
FOLD(most)

// The sum of n adjacent elements in double, as all cuts give it.
INLINE double row_sum(LOCAL T *lanes, GLOBAL const T *a, long n) {
    double total = 0;
    for (long cut = 0; cut == 0 || cut < n; cut += CUT) {
        long end = min(cut + CUT, n);
        T sum = 0;
        for (long i = cut + get_local_id(0); i < end; i += LANES) sum += a[i];
        double part = fold_add(lanes, sum);
        total = cut == 0 ? part : total + part;
    }
    return total;
}

// Adds the sums over n adjacent elements of d and d d (or of e and d e, with e), d = a - mean - low, to s1 and s2.
INLINE void deviations(LOCAL T *lanes, long n, GLOBAL const T *a, GLOBAL const T *e, T mean, T low, double *s1, double *s2) {
    for (long cut = 0; cut < n; cut += CUT) {
        long end = min(cut + CUT, n);
        T d1 = 0, d2 = 0;
        for (long i = cut + get_local_id(0); i < end; i += LANES) {
            T d = a[i] - mean - low, w = e ? e[i] : d;
            d1 += w;
            d2 = fma(d, w, d2);
        }
        *s1 += fold_add(lanes, d1);
        *s2 += fold_add(lanes, d2);
    }
}
