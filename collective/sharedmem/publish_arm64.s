//go:build !race

#include "textflag.h"

// func Publish(w *atomic.Uint64, v uint64)
TEXT ·Publish(SB), NOSPLIT, $0-16
	MOVD w+0(FP), R0
	MOVD v+8(FP), R1
	STLR R1, (R0)
	RET

// func Publish32(w *atomic.Uint32, v uint32)
TEXT ·Publish32(SB), NOSPLIT, $0-12
	MOVD w+0(FP), R0
	MOVWU v+8(FP), R1
	STLRW R1, (R0)
	RET

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	DMB $11
	RET

// func LoadFence()
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	DMB $9
	RET

// func StoreFence()
TEXT ·StoreFence(SB), NOSPLIT, $0-0
	DMB $10
	RET
