package kernel

import "embed"

// Sources has the functions that kernels on devices share with those in C: see simd.h.
//
//go:embed math32.h math64.h trig.h arc.h special.h power.h elementwise.h activations.h integer.h integers.h cast.h rnn.h
var Sources embed.FS
