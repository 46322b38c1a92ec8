// Optimizers' updates, and what else goes over n adjacent elements; see optim.h, random.h and activations.h of package kernel.
#include "device.h"
#include "lanes.h"

KERNEL void sgd(GLOBAL T *p, long p_at, GLOBAL const T *grad, long grad_at, GLOBAL T *m, long m_at, long n, T lr, T momentum, T decay, int nesterov,
                int first) {
    long i = get_global_id(0);
    if (i >= n) return;
    T x = p[p_at + i], g = grad[grad_at + i];
    if (decay != 0) g = fma(x, decay, g);
    if (m) {
        T v = first ? g : fma(m[m_at + i], momentum, g);
        m[m_at + i] = canon(v);
        g = nesterov ? fma(v, momentum, g) : v;
    }
    p[p_at + i] = canon(fma(g, -lr, x));
}

KERNEL void adam(GLOBAL T *p, long p_at, GLOBAL const T *grad, long grad_at, GLOBAL T *m, long m_at, GLOBAL T *v, long v_at, long n, T decay,
                 T beta1, T beta2, T rest1, T rest2, T eps, T correction, T scale, int decoupled) {
    long i = get_global_id(0);
    if (i >= n) return;
    T x = p[p_at + i], g = grad[grad_at + i];
    if (decay != 0) {
        if (decoupled) x = fma(x, -decay, x);
        else g = fma(x, decay, g);
    }
    T m1 = fma(m[m_at + i], beta1, g * rest1), m2 = fma(v[v_at + i], beta2, g * g * rest2);
    m[m_at + i] = canon(m1);
    v[v_at + i] = canon(m2);
    T d = fma(root(m2), correction, eps);
    p[p_at + i] = canon(x - m1 * scale / d);
}

KERNEL void scale(GLOBAL T *x, long x_at, long n, T by) {
    long i = get_global_id(0);
    if (i < n) x[x_at + i] = canon(x[x_at + i] * by);
}

// v is the mean of squares; m, if any, the momentum; mean, if any, the mean of gradients that centres the squares. See optim_rules.h of package kernel.
KERNEL void rmsprop(GLOBAL T *p, long p_at, GLOBAL const T *grad, long grad_at, GLOBAL T *v, long v_at, GLOBAL T *m, long m_at, GLOBAL T *mean,
                    long mean_at, long n, T lr, T alpha, T rest, T eps, T decay, T momentum) {
    long i = get_global_id(0);
    if (i >= n) return;
    T x = p[p_at + i], g = grad[grad_at + i];
    if (decay != 0) g = fma(x, decay, g);
    T square = fma(v[v_at + i], alpha, g * g * rest);
    v[v_at + i] = canon(square);
    if (mean) {
        T a = fma(mean[mean_at + i], alpha, g * rest);
        mean[mean_at + i] = canon(a);
        square = fma(-a, a, square);
    }
    T step = g / (root(square) + eps);
    if (m) {
        step = fma(m[m_at + i], momentum, step);
        m[m_at + i] = canon(step);
    }
    p[p_at + i] = canon(fma(step, -lr, x));
}

// v is the sum of squares.
KERNEL void adagrad(GLOBAL T *p, long p_at, GLOBAL const T *grad, long grad_at, GLOBAL T *v, long v_at, long n, T lr, T eps, T decay) {
    long i = get_global_id(0);
    if (i >= n) return;
    T x = p[p_at + i], g = grad[grad_at + i];
    if (decay != 0) g = fma(x, decay, g);
    T square = fma(g, g, v[v_at + i]);
    v[v_at + i] = canon(square);
    p[p_at + i] = canon(fma(g / (root(square) + eps), -lr, x));
}

KERNEL void lion(GLOBAL T *p, long p_at, GLOBAL const T *grad, long grad_at, GLOBAL T *m, long m_at, long n, T lr, T beta1, T rest1, T beta2,
                 T rest2, T decay) {
    long i = get_global_id(0);
    if (i >= n) return;
    T x = p[p_at + i], g = grad[grad_at + i], old = m[m_at + i];
    if (decay != 0) x = fma(x, -decay, x);
    T c = fma(old, beta1, g * rest1);
    m[m_at + i] = canon(fma(old, beta2, g * rest2));
    T sign = c > 0 ? (T)1 : c < 0 ? (T)-1 : c;
    p[p_at + i] = canon(fma(sign, -lr, x));
}
