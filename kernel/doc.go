// Package kernel holds the numeric kernels under tensors (package tensor) and rank reductions
// (collective/shm): C through cgo, one source compiled for several instruction sets, chosen at run time.
//
// The same call gives the same bits on every path (scalar, AVX2, AVX-512, NEON) and with any number of
// threads:
//
//   - Every fused multiply-add is explicit; nothing is left to the compiler (-std=c11 never contracts).
//   - An element of a matrix product is one chain of fused multiply-adds in increasing k for each block of
//     256 values of k; the blocks are added in order.
//   - A sum along contiguous elements uses 16 lanes folded as a tree, cut every 4096 elements, the cuts
//     added in double. Sums over an outer dimension add row after row in each column.
//   - exp, log, tanh, erf, sin and cos are polynomials of this package, not the C library's.
//   - Every NaN that a kernel computes is the positive quiet NaN without payload.
//
// docs/numerics.md has the largest errors of the functions.
//
// Nothing here checks its arguments, and the only error is an OutOfMemory: callers pass pointers to enough
// aligned memory, valid indices and nonnegative sizes. In elementwise operations an output may be the same
// memory as an input (same strides); otherwise outputs never overlap inputs. Kernels allocate nothing in steady
// state and may be called from any number of goroutines at once.
package kernel
