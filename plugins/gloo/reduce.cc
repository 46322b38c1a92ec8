//go:build gloo

// What Gloo calls to combine two contributions: one loop each, which the
// compiler vectorizes. (Calls back into Go would have to wait for the scheduler
// in the middle of every step.)

#include "reduce.h"

#include <limits>
#include <type_traits>

namespace {

// Every NaN that is computed is the same one, as in drun's kernels.
template <typename T>
T canonical(T x) {
    if constexpr (std::is_floating_point<T>::value) return x != x ? std::numeric_limits<T>::quiet_NaN() : x;
    return x;
}

template <typename T>
struct Sum {
    static T of(T a, T b) { return T(a + b); }
};
template <typename T>
struct Product {
    static T of(T a, T b) { return T(a * b); }
};
// NaN wins, as in drun's kernels.
template <typename T>
struct Min {
    static T of(T a, T b) { return a < b || a != a ? a : b; }
};
template <typename T>
struct Max {
    static T of(T a, T b) { return a > b || a != a ? a : b; }
};
template <typename T>
struct And {
    static T of(T a, T b) { return T(a & b); }
};
template <typename T>
struct Or {
    static T of(T a, T b) { return T(a | b); }
};
template <typename T>
struct Xor {
    static T of(T a, T b) { return T(a ^ b); }
};

// Twice as wide where the processor can, which is chosen when the plugin is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

template <typename T, template <typename> class Op>
WIDE void map(void *out, const void *a, const void *b, size_t n) {
    auto o = static_cast<T *>(out);
    auto x = static_cast<const T *>(a), y = static_cast<const T *>(b);
    for (size_t i = 0; i < n; i++) o[i] = canonical(Op<T>::of(x[i], y[i]));
}

void complexSum(void *out, const void *a, const void *b, size_t n) { map<float, Sum>(out, a, b, 2 * n); }

template <typename T>
Combine number(int op) {
    switch (op) {
    case SUM: return map<T, Sum>;
    case PRODUCT: return map<T, Product>;
    case MIN: return map<T, Min>;
    case MAX: return map<T, Max>;
    }
    return nullptr;
}

template <typename T, typename U> // sums and products wrap around, which only unsigned numbers may
Combine integer(int op) {
    switch (op) {
    case SUM: return map<U, Sum>;
    case PRODUCT: return map<U, Product>;
    case BAND: return map<T, And>;
    case BOR: return map<T, Or>;
    case BXOR: return map<T, Xor>;
    }
    return number<T>(op);
}

} // namespace

Combine combiner(int dtype, int op) {
    switch (dtype) {
    case FLOAT32: return number<float>(op);
    case FLOAT64: return number<double>(op);
    case INT64: return integer<int64_t, uint64_t>(op);
    case INT32: return integer<int32_t, uint32_t>(op);
    case INT8: return integer<int8_t, uint8_t>(op);
    case UINT8: case BOOL: return integer<uint8_t, uint8_t>(op);
    case COMPLEX64: return op == SUM ? complexSum : nullptr;
    }
    return nullptr;
}
