// Factorizations of dense matrices, row by row in double: LAPACK's methods without its blocks. One source for all
// instruction sets, one thread: only + - * / and sqrt, each rounded on its own, so the bits are the same everywhere.
#include <math.h>
#include <string.h>
#include "internal.h"
#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#endif

// y += f x
static void axpy(int64_t n, double f, const double *x, double *y) {
    for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}

// Element i goes to sum i mod 4.
static double dot(int64_t n, const double *x, const double *y) {
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int l = 0; l < 4; l++) s[l] += x[i + l] * y[i + l];
    for (int l = 0; i < n; i++, l++) s[l] += x[i] * y[i];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static void swap_rows(int64_t n, double *x, double *y) {
    for (int64_t i = 0; i < n; i++) {
        double t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

// The rotation of two rows: x = c x - s y, y = s x + c y.
static void rotate(int64_t n, double c, double s, double *x, double *y) {
    for (int64_t i = 0; i < n; i++) {
        double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

static double length(double x, double y) {
    double a = fabs(x), b = fabs(y), big = a > b ? a : b, small = a > b ? b : a;
    if (big == 0) return 0;
    small /= big;
    return big * sqrt(1 + small * small);
}

// P A = L U with the largest pivot of each column; pivot[k] is the row exchanged with row k. Returns the first k whose
// pivot is 0, plus 1, or 0.
int64_t drun_lu(int64_t n, double *a, int64_t *pivot) {
    int64_t singular = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
        pivot[k] = p;
        if (p != k) swap_rows(n, a + p * n, a + k * n);
        double d = a[k * n + k];
        if (d == 0) {
            if (!singular) singular = k + 1;
            continue;
        }
        for (int64_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] /= d;
            axpy(n - k - 1, -f, a + k * n + k + 1, a + i * n + k + 1);
        }
    }
    return singular;
}

// Solves L U x = P b for m columns, in place.
void drun_lu_solve(int64_t n, int64_t m, const double *lu, const int64_t *pivot, double *b) {
    for (int64_t k = 0; k < n; k++)
        if (pivot[k] != k) swap_rows(m, b + pivot[k] * m, b + k * m);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++) axpy(m, -lu[i * n + k], b + k * m, b + i * m);
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) axpy(m, -lu[i * n + k], b + k * m, b + i * m);
        for (int64_t j = 0; j < m; j++) b[i * m + j] /= lu[i * n + i];
    }
}

// A = L Lt from the lower triangle, in place; zeros above. Returns the order of the first minor that is not positive, or 0.
int64_t drun_cholesky(int64_t n, double *a) {
    for (int64_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (int64_t j = 0; j < i; j++) row[j] = (row[j] - dot(j, row, a + j * n)) / a[j * n + j];
        double d = row[i] - dot(i, row, row);
        if (!(d > 0)) return i + 1;
        row[i] = sqrt(d);
        for (int64_t j = i + 1; j < n; j++) row[j] = 0;
    }
    return 0;
}

// A reflector I - tau v vt with v[0] = 1 that takes x, n numbers in steps of stride, to (beta, 0, ...); returns beta. The
// sign is LAPACK's.
static double reflector(int64_t n, const double *x, int64_t stride, double *v, double *tau) {
    double alpha = x[0], rest = 0;
    for (int64_t i = 1; i < n; i++) rest += x[i * stride] * x[i * stride];
    v[0] = 1, *tau = 0;
    for (int64_t i = 1; i < n; i++) v[i] = 0;
    if (rest == 0) return alpha;
    double norm = sqrt(alpha * alpha + rest), beta = alpha > 0 || (alpha == 0 && !signbit(alpha)) ? -norm : norm;
    *tau = (beta - alpha) / beta;
    for (int64_t i = 1; i < n; i++) v[i] = x[i * stride] / (alpha - beta);
    return beta;
}

// a = (I - tau v vt) a for rows of m numbers, ld apart; w has room for m.
static void reflect(int64_t n, int64_t m, double tau, const double *v, double *a, int64_t ld, double *w) {
    if (tau == 0) return;
    memset(w, 0, m * sizeof *w);
    for (int64_t i = 0; i < n; i++) axpy(m, v[i], a + i * ld, w);
    for (int64_t i = 0; i < n; i++) axpy(m, -tau * v[i], w, a + i * ld);
}

// A = Q R: a, m x n, becomes R, zeros below the diagonal, and q, m x columns, the first columns of Q. work has room for
// m min(m, n) + min(m, n) + max(m, n) numbers.
void drun_qr(int64_t m, int64_t n, int64_t columns, double *a, double *q, double *work) {
    int64_t steps = m < n ? m : n;
    double *v = work, *tau = v + m * steps, *w = tau + steps;
    for (int64_t k = 0; k < steps; k++) {
        double *at = a + k * n + k, beta = reflector(m - k, at, n, v + k * m, tau + k);
        reflect(m - k, n - k - 1, tau[k], v + k * m, at + 1, n, w);
        for (int64_t i = 1; i < m - k; i++) at[i * n] = 0;
        *at = beta;
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j++) q[i * columns + j] = i == j;
    for (int64_t k = steps - 1; k >= 0; k--) reflect(m - k, columns - k, tau[k], v + k * m, q + k * columns + k, columns, w);
}

// The eigenvalues of a symmetric matrix in ascending order, and its eigenvectors as the rows of z: to a tridiagonal form by
// reflectors, then QL steps with implicit shifts. a is overwritten; work has room for n n + 4 n numbers. Returns 0, or 1 if
// the steps do not converge.
int64_t drun_eigh(int64_t n, double *a, double *values, double *z, double *work) {
    double *v = work, *tau = v + n * n, *e = tau + n, *p = e + n, *w = p + n, *d = values;
    for (int64_t k = 0; k + 2 < n; k++) {
        int64_t m = n - k - 1;
        double *sub = a + (k + 1) * n + k + 1, *vk = v + k * n;
        e[k] = reflector(m, a + (k + 1) * n + k, n, vk, tau + k);
        if (tau[k] == 0) continue;
        memset(p, 0, m * sizeof *p); // sub = sub - v qt - q vt with p = tau sub v and q = p - tau/2 (pt v) v
        for (int64_t i = 0; i < m; i++) axpy(m, tau[k] * vk[i], sub + i * n, p);
        axpy(m, -0.5 * tau[k] * dot(m, p, vk), vk, p);
        for (int64_t i = 0; i < m; i++) {
            axpy(m, -vk[i], p, sub + i * n);
            axpy(m, -p[i], vk, sub + i * n);
        }
    }
    if (n > 1) e[n - 2] = a[(n - 1) * n + n - 2];
    for (int64_t i = 0; i < n; i++) d[i] = a[i * n + i];
    if (n > 0) e[n - 1] = 0;
    // The product of the reflectors, transposed: its rows are turned into eigenvectors.
    for (int64_t i = 0; i < n * n; i++) a[i] = i / n == i % n;
    for (int64_t k = n - 3; k >= 0; k--) reflect(n - k - 1, n - k - 1, tau[k], v + k * n, a + (k + 1) * n + k + 1, n, w);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) z[j * n + i] = a[i * n + j];
    for (int64_t l = 0; l < n; l++)
        for (int round = 0;; round++) {
            int64_t m = l;
            while (m + 1 < n && fabs(e[m]) > 0x1p-53 * (fabs(d[m]) + fabs(d[m + 1]))) m++;
            if (m == l) break;
            if (round == 60) return 1;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = length(g, 1), s = 1, c = 1, shift = 0;
            g = d[m] - d[l] + e[l] / (g + (g < 0 ? -r : r));
            int64_t i = m - 1;
            for (; i >= l; i--) {
                double f = s * e[i], b = c * e[i];
                e[i + 1] = r = length(f, g);
                if (r == 0) { // a smaller matrix remains
                    d[i + 1] -= shift, e[m] = 0;
                    break;
                }
                s = f / r, c = g / r;
                g = d[i + 1] - shift;
                r = (d[i] - g) * s + 2 * c * b;
                shift = s * r;
                d[i + 1] = g + shift;
                g = c * r - b;
                rotate(n, c, s, z + i * n, z + (i + 1) * n);
            }
            if (r == 0 && i >= l) continue;
            d[l] -= shift, e[l] = g, e[m] = 0;
        }
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (d[j] < d[least]) least = j;
        if (least != i) {
            double t = d[i];
            d[i] = d[least], d[least] = t;
            swap_rows(n, z + i * n, z + least * n);
        }
    }
    return 0;
}

// The singular values of g, n x n, in descending order: rows are rotated until they are orthogonal (Jacobi's one-sided
// method), so that j g0 = diag(values) g with orthogonal rows in j and g. Rows of g for values of 0 are made up. The largest element is near 1, so that squares do not overflow. Returns 0,
// or 1 if the rotations do not converge.
int64_t drun_svd(int64_t n, double *g, double *j, double *values) {
    for (int64_t i = 0; i < n * n; i++) j[i] = i / n == i % n;
    for (int round = 0, turned = 1; turned; round++) {
        if (round == 60) return 1;
        turned = 0;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double *x = g + p * n, *y = g + q * n, a = dot(n, x, x), b = dot(n, y, y), c = dot(n, x, y);
                if (a < 0x1p-900 || b < 0x1p-900 || !(fabs(c) > 0x1p-51 * sqrt(a) * sqrt(b))) continue; // counts as 0, or orthogonal
                turned = 1;
                double zeta = (b - a) / (2 * c), t = 1 / (fabs(zeta) + length(1, zeta));
                if (zeta < 0) t = -t;
                double cosine = 1 / sqrt(1 + t * t);
                rotate(n, cosine, cosine * t, x, y);
                rotate(n, cosine, cosine * t, j + p * n, j + q * n);
            }
    }
    for (int64_t i = 0; i < n; i++) values[i] = sqrt(dot(n, g + i * n, g + i * n));
    for (int64_t i = 0; i < n; i++) {
        int64_t most = i;
        for (int64_t k = i + 1; k < n; k++)
            if (values[k] > values[most]) most = k;
        if (most != i) {
            double t = values[i];
            values[i] = values[most], values[most] = t;
            swap_rows(n, g + i * n, g + most * n);
            swap_rows(n, j + i * n, j + most * n);
        }
        if (values[i] < 0x1p-450) values[i] = 0; // its square is not exact, nor is what is left of its row
        else
            for (int64_t k = 0; k < n; k++) g[i * n + k] /= values[i];
    }
    for (int64_t i = 0, unit = 0; i < n; i++) {
        if (values[i] > 0) continue;
        for (double left = 0; left < 0.01 / (double)n && unit < n; unit++) { // a unit vector that is not of the rows before
            double *x = g + i * n;
            for (int64_t k = 0; k < n; k++) x[k] = k == unit;
            for (int twice = 0; twice < 2; twice++) {
                for (int64_t r = 0; r < i; r++) axpy(n, -dot(n, g + r * n, x), g + r * n, x);
                double square = dot(n, x, x);
                if (!twice) left = square;
                for (int64_t k = 0; k < n; k++) x[k] /= square > 0 ? sqrt(square) : 1;
            }
        }
    }
    return 0;
}
