//go:build !race

#include "textflag.h"

// The processor keeps stores in order, so that a plain one will do; an exchange,
// which sync/atomic takes, would wait for the cache line.

// func Publish(w *atomic.Uint64, v uint64)
TEXT ·Publish(SB), NOSPLIT, $0-16
	MOVQ w+0(FP), AX
	MOVQ v+8(FP), BX
	MOVQ BX, (AX)
	RET

// func Publish32(w *atomic.Uint32, v uint32)
TEXT ·Publish32(SB), NOSPLIT, $0-12
	MOVQ w+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	LOCK
	ADDL $0, 0(SP)
	RET

// Loads and stores are in order, each kind among themselves; the call keeps the
// compiler from moving them.

// func LoadFence()
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	RET

// func StoreFence()
TEXT ·StoreFence(SB), NOSPLIT, $0-0
	RET
