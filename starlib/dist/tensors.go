package dist

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"drun/collective"
	"drun/starlib"
	"drun/tensor"

	startensor "drun/starlib/tensor"

	"go.starlark.net/starlark"
)

func (w *World) broadcastTensors(c *starlib.Call) (starlark.Value, error) {
	src, err := w.root(c, 1, "src")
	if err != nil {
		return nil, err
	}
	limit, err := timeout(c, 3)
	if err != nil {
		return nil, err
	}
	all, err := startensor.List(c.Args[0])
	if err != nil {
		return nil, err
	}
	if err := w.agreeOnTensors(c, all, limit); err != nil {
		return nil, err
	}
	return nil, w.spread(c, all, limit, func(b collective.Buffer) collective.Call {
		return collective.NewBroadcast(b, src)
	}, isInexact)
}

func (w *World) syncBuffer(c *starlib.Call) (starlark.Value, error) {
	limit, err := timeout(c, 3)
	if err != nil {
		return nil, err
	}
	all, err := startensor.List(c.Args[0])
	if err != nil {
		return nil, err
	}
	if err := w.agreeOnTensors(c, all, limit); err != nil {
		return nil, err
	}
	if !c.Bool(1) {
		return nil, w.spread(c, all, limit, func(b collective.Buffer) collective.Call {
			return collective.NewBroadcast(b, 0)
		}, isInexact)
	}
	return nil, w.spread(c, all, limit, average, func(d collective.DType) bool {
		return d == collective.Float32 || d == collective.Float64
	})
}

func average(b collective.Buffer) collective.Call { return collective.NewAllReduce(b, collective.Avg) }

func (w *World) syncGrad(c *starlib.Call) (starlark.Value, error) {
	limit, err := timeout(c, 2)
	if err != nil {
		return nil, err
	}
	params, err := startensor.List(c.Args[0])
	if err != nil {
		return nil, err
	}
	// Which gradients are there must be the same on all ranks.
	grads := make([]*tensor.Tensor, 0, len(params))
	key := make([]byte, 0, len(params))
	for _, p := range params {
		g := p.Grad()
		if g == nil {
			key = append(key, 0)
			continue
		}
		key = append(key, 1)
		grads = append(grads, g)
	}
	keys, same, err := w.agree(c, key, limit)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, gradMismatch(params, keys)
	}
	return nil, w.spread(c, grads, limit, average, func(d collective.DType) bool { return d == collective.Float32 || d == collective.Float64 })
}

// gradMismatch names the parameters that have a gradient on some ranks only.
func gradMismatch(params []*tensor.Tensor, keys [][]byte) error {
	counts, equal := make([]string, len(keys)), true
	for r, key := range keys {
		counts[r] = fmt.Sprintf("%d parameters", len(key))
		equal = equal && len(key) == len(params)
	}
	if !equal {
		return disagree("the ranks pass different numbers of parameters", counts)
	}
	var odd []string
	for i, p := range params {
		var with, without []string
		for r, key := range keys {
			if key[i] == 1 {
				with = append(with, fmt.Sprint(r))
			} else {
				without = append(without, fmt.Sprint(r))
			}
		}
		if len(with) > 0 && len(without) > 0 {
			odd = append(odd, fmt.Sprintf("parameter %d of shape %v has a gradient on rank %s, but none on rank %s",
				i, p.Shape(), strings.Join(with, ", "), strings.Join(without, ", ")))
		}
	}
	return &DisagreementError{strings.Join(odd, "\n")}
}

// agreeOnTensors checks that all ranks pass as many tensors, of the same dtypes
// and shapes.
func (w *World) agreeOnTensors(c *starlib.Call, all []*tensor.Tensor, limit time.Duration) error {
	var key []byte
	for _, t := range all {
		if err := writable(t); err != nil {
			return err
		}
		key = append(key, byte(t.DType()), byte(t.Dim()))
		for _, n := range t.Shape() {
			key = binary.AppendUvarint(key, uint64(n))
		}
	}
	keys, same, err := w.agree(c, key, limit)
	if err != nil || same {
		return err
	}
	lines := make([]string, len(keys))
	for r, key := range keys {
		lines[r] = describeKey(key)
	}
	return disagree("the ranks' tensors differ in number, dtype or shape", lines)
}

// describeKey writes a key of agreeOnTensors in words.
func describeKey(key []byte) string {
	const shown = 6
	var parts []string
	n := 0
	for ; len(key) >= 2; n++ {
		dtype, dims := tensor.DType(key[0]), int(key[1])
		key = key[2:]
		shape := make([]string, dims)
		for i := range shape {
			size, k := binary.Uvarint(key)
			shape[i], key = fmt.Sprint(size), key[k:]
		}
		if n < shown {
			parts = append(parts, dtype.String()+"["+strings.Join(shape, ",")+"]")
		}
	}
	if n > shown {
		parts = append(parts, "…")
	}
	return strings.TrimSpace(fmt.Sprintf("%d tensors %s", n, strings.Join(parts, " ")))
}

func isInexact(d collective.DType) bool {
	switch d {
	case collective.Float32, collective.Float64, collective.Float16, collective.BFloat16, collective.Complex64:
		return true
	}
	return false
}

// spread makes the same in-place call on all tensors whose dtype is wanted, in
// as few collectives as it can: tensors that lie next to each other in memory
// (an optimizer's gradients) are one buffer, others are copied into one.
func (w *World) spread(c *starlib.Call, all []*tensor.Tensor, limit time.Duration, newCall func(collective.Buffer) collective.Call, wanted func(collective.DType) bool) error {
	if w.comm == nil {
		return nil
	}
	for _, d := range collective.DTypes() {
		if !wanted(d) {
			continue
		}
		var same []*tensor.Tensor
		for _, t := range all {
			if dtypeOf(t.DType()) == d && t.Len() > 0 {
				same = append(same, t)
			}
		}
		if len(same) == 0 {
			continue
		}
		if err := w.spreadOne(c, d, same, limit, newCall); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) spreadOne(c *starlib.Call, d collective.DType, all []*tensor.Tensor, limit time.Duration, newCall func(collective.Buffer) collective.Call) error {
	if joined := adjacent(all); joined != nil {
		call := newCall(collective.Buffer{DType: d, Data: joined})
		if err := w.do(c, &call, limit); err != nil {
			return err
		}
		for _, t := range all {
			t.Touched()
		}
		return nil
	}
	// Gathered into one buffer: the order is the caller's, the same on all ranks.
	size := 0
	for _, t := range all {
		size += t.Len() * d.Size()
	}
	if cap(w.staging) < size {
		w.staging = growStaging(size)
	}
	buf := w.staging[:size]
	at := 0
	for _, t := range all {
		data, err := tensor.Contiguous(t)
		if err != nil {
			return err
		}
		at += copy(buf[at:], data.Bytes())
	}
	call := newCall(collective.Buffer{DType: d, Data: buf})
	if err := w.do(c, &call, limit); err != nil {
		return err
	}
	at = 0
	for _, t := range all {
		n := t.Len() * d.Size()
		if err := writeRaw(t, buf[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// growStaging allocates on a boundary that any element type may stand at.
func growStaging(size int) []byte {
	words := make([]uint64, (size+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}

// adjacent gives the memory of tensors that follow each other without a gap;
// nil if they do not.
func adjacent(all []*tensor.Tensor) []byte {
	first := all[0].Bytes()
	if first == nil {
		return nil
	}
	size := len(first)
	for _, t := range all[1:] {
		b := t.Bytes()
		if b == nil || !tensor.SharesStorage(all[0], t) || unsafe.Pointer(&b[0]) != unsafe.Add(unsafe.Pointer(&first[0]), size) {
			return nil
		}
		size += len(b)
	}
	return unsafe.Slice(&first[0], size)
}
