package tensor

import (
	"fmt"
	"math"

	"drun/internal/try"
	"drun/kernel/dtype"
)

// This file resizes images and sequences, pads them with their own elements, and pools them to a given size: one dimension after
// the other, by taking rows along it.

// rowsAlong takes the elements of dimension d at the indices.
func rowsAlong(t *Tensor, d int, at []int64) *Tensor {
	return try.To(IndexSelect(t, d, try.To(FromInts(t.ctx, at, []int{len(at)}, dtype.Int64))))
}

// PadMode pads the last dimensions of t with its own elements: pads has a pair for each, the first of them first.
// mode is "reflect", "replicate" or "circular".
func PadMode(op string, t *Tensor, pads [][2]int, mode string) (_ *Tensor, err error) {
	defer try.Caught(&err)
	first := len(t.shape) - len(pads)
	try.FailIf(first < 0, "%s: an input of shape %s has no %d dimensions to pad", op, shaped(t.shape), len(pads))
	for i, p := range pads {
		n, most := t.shape[first+i], p[0]
		most = max(most, p[1])
		if most == 0 && p[0] == p[1] {
			continue
		}
		if n == 0 || min(p[0], p[1]) < 0 || mode == "reflect" && most >= n || mode == "circular" && most > n || most >= maxElems {
			return nil, fmt.Errorf("%s: a %s padding of %d and %d does not fit a dimension of size %d", op, mode, p[0], p[1], n)
		}
		try.FailIf(p[0]+n+p[1] > MaxValues(), "%s: a padding of %d and %d is more than this machine's memory holds", op, p[0], p[1])
		at := make([]int64, 0, p[0]+n+p[1])
		for j := -p[0]; j < n+p[1]; j++ {
			k := j
			switch {
			case mode == "replicate":
				k = min(max(j, 0), n-1)
			case mode == "circular":
				k = (j + n) % n
			case j < 0:
				k = -j
			case j >= n:
				k = 2*(n-1) - j
			}
			at = append(at, int64(k))
		}
		t = rowsAlong(t, first+i, at)
	}
	return t, nil
}

// Interpolate resizes the dimensions after the first two of x (N, C, …). mode is "nearest",
// "linear" for lines between neighbours in each dimension, or "cubic" for Keys' cubic convolution
// (1981) with the coefficient -0.75, where the elements at the edges are repeated; scales, if not nil, are used
// for positions instead of the sizes' ratios. alignCorners aligns the first and the last elements.
func Interpolate(x *Tensor, sizes []int, scales []float64, mode string, alignCorners bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	const op = "interpolate"
	try.Ok(NeedFloat(op, x))
	try.FailIf(len(x.shape)-2 != len(sizes) || len(sizes) == 0,
		"%s: %d sizes do not fit an input of shape %s: expected (N, C, …) and a size for each dimension but the first two", op, len(sizes), shaped(x.shape))
	try.To(countElems(op, append([]int{x.shape[0], x.shape[1]}, sizes...)))
	for i, to := range sizes {
		d, from := 2+i, x.shape[2+i]
		try.FailIf(to < 1 || from < 1 || to > MaxValues(), "%s: cannot resize a dimension of %d to %d", op, from, to)
		step := float64(from) / float64(to)
		if scales != nil {
			step = 1 / scales[i]
		}
		if mode == "nearest" {
			at := make([]int64, to)
			for j := range at {
				at[j] = int64(min(math.Floor(float64(float64(j)*step)), float64(from-1)))
			}
			x = rowsAlong(x, d, at)
		} else if from != to || !alignCorners && step != 1 {
			x = between(x, d, from, to, step, alignCorners, mode == "cubic")
		}
	}
	return x, nil
}

// between interpolates along dimension d, linearly or cubically.
func between(x *Tensor, d, from, to int, step float64, alignCorners, cubic bool) *Tensor {
	type tap struct {
		at []int64
		by []float64
	}
	taps := make([]tap, 2)
	if cubic {
		taps = make([]tap, 4)
	}
	for i := range taps {
		taps[i] = tap{make([]int64, to), make([]float64, to)}
	}
	for j := range to {
		var at float64
		switch {
		case alignCorners && to > 1:
			at = float64(j) * (float64(from-1) / float64(to-1))
		case !alignCorners:
			at = float64(step*(float64(j)+0.5)) - 0.5
		}
		if cubic {
			low := math.Floor(at)
			for i, by := range cubicWeights(at - low) {
				taps[i].at[j] = int64(min(max(low-1+float64(i), 0), float64(from-1)))
				taps[i].by[j] = by
			}
			continue
		}
		at = max(0, at)
		low := int64(min(math.Floor(at), float64(from-1)))
		part := min(at-float64(low), 1)
		taps[0].at[j], taps[0].by[j] = low, 1-part
		taps[1].at[j], taps[1].by[j] = min(low+1, int64(from-1)), part
	}
	shape := alongAxis(len(x.shape)-d, 0, to)
	var sum *Tensor
	for i := len(taps) - 1; i >= 0; i-- {
		by, rows := try.To(FromFloats(x.ctx, taps[i].by, shape, x.dtype)), rowsAlong(x, d, taps[i].at)
		t := chain(rows).mul(by)
		if sum != nil {
			t = t.binary(OpAdd, sum)
		}
		sum = try.To(t.end())
	}
	return sum
}

// cubicWeights returns the weights of the four neighbours of a position that is the fraction part of the way from the second to the third. Each
// product is rounded, so that no processor fuses it with a sum.
func cubicWeights(part float64) [4]float64 {
	const a = -0.75
	near := func(x float64) float64 { return float64(float64(float64(float64((a+2)*x)-(a+3))*x)*x) + 1 }
	far := func(x float64) float64 {
		return float64(float64(float64(float64(float64(a*x)-5*a)*x)+8*a)*x) - 4*a
	}
	return [4]float64{far(part + 1), near(part), near(1 - part), far(2 - part)}
}

// AdaptivePool makes the last dimensions of x the given sizes: element i of n is the mean,
// or with largest the maximum, of elements ⌊i·size/n⌋ up to, but not including, ⌈(i+1)·size/n⌉.
func AdaptivePool(op string, x *Tensor, sizes []int, largest bool) (result *Tensor, err error) {
	defer try.Caught(&err)
	defer narrow(&x).round(&result)
	try.Ok(NeedFloat(op, x))
	first := len(x.shape) - len(sizes)
	try.FailIf(first < 1, "%s: an input of shape %s has no %d dimensions to pool beside the channels", op, shaped(x.shape), len(sizes))
	for i, n := range sizes {
		d, size := first+i, x.shape[first+i]
		try.FailIf(n < 1 || size < 1 || n >= maxElems/max(size, 1) || n > MaxValues(), "%s: cannot pool a dimension of size %d to %d", op, size, n)
		parts := make([]*Tensor, n)
		for j := range parts {
			lo, hi := j*size/n, ((j+1)*size+n-1)/n
			t := try.To(Narrow(x, d, lo, hi-lo))
			if largest {
				parts[j], _ = try.To2(MaxDim(t, d, true))
			} else {
				parts[j] = try.To(Mean(t, []int{d}, true))
			}
		}
		if n == 1 {
			x = parts[0]
			continue
		}
		x = try.To(Cat(parts, d))
	}
	return x, nil
}

// Conv3d convolves x (N, C, D, H, W) with weight (F, C/groups, KD, KH, KW) and adds bias (F),
// which may be nil. It is a convolution of images: the depths under the kernel count as channels.
func Conv3d(x, weight, bias *Tensor, stride, padding, dilation [3]int, groups int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	const op = "conv3d"
	try.FailIf(len(x.shape) != 5 || len(weight.shape) != 5 || weight.shape[1]*groups != x.shape[1],
		"%s: an input of shape %s does not fit a weight of shape %s: expected (N, C, D, H, W) and (F, C, KD, KH, KW)", op, shaped(x.shape), shaped(weight.shape))
	n, c, depth, kd := x.shape[0], x.shape[1], x.shape[2], weight.shape[2]
	try.FailIf(padding[0] < 0 || padding[0] >= maxElems || stride[0] < 1 || dilation[0] < 1 || kd < 1 || dilation[0] >= maxElems/kd || depth+2*padding[0] < dilation[0]*(kd-1)+1,
		"%s: a kernel of depth %d does not fit an input of shape %s with padding %v and dilation %v", op, kd, shaped(x.shape), padding, dilation)
	out := (depth+2*padding[0]-dilation[0]*(kd-1)-1)/stride[0] + 1
	try.FailIf(out > MaxValues()/kd, "%s: a padding of %d is more than this machine's memory holds", op, padding[0])
	at := make([]int64, 0, out*kd)
	for o := range out {
		for k := range kd {
			at = append(at, int64(o*stride[0]+k*dilation[0]))
		}
	}
	if padding[0] > 0 {
		x = try.To(Pad(x, []int{0, 0, 0, 0, padding[0], padding[0]}, Int(0)))
	}
	h, w := x.shape[3], x.shape[4]
	images := try.To(chain(x).then(func(t *Tensor) (*Tensor, error) { return rowsAlong(t, 2, at), nil }).
		then(func(t *Tensor) (*Tensor, error) { return View(t, []int{n, c, out, kd, h, w}) }).
		then(func(t *Tensor) (*Tensor, error) { return Permute(t, []int{0, 2, 1, 3, 4, 5}) }).
		then(func(t *Tensor) (*Tensor, error) { return Reshape(t, []int{n * out, c * kd, h, w}) }).end())
	f := weight.shape[0]
	flat := try.To(Reshape(weight, []int{f, weight.shape[1] * kd, weight.shape[3], weight.shape[4]}))
	y := try.To(Convolve(op, images, flat, bias, ConvOptions{Stride: [2]int(stride[1:]), Padding: [2]int(padding[1:]), Dilation: [2]int(dilation[1:]), Groups: groups}))
	return chain(y).then(func(t *Tensor) (*Tensor, error) { return View(t, []int{n, out, f, t.shape[2], t.shape[3]}) }).
		then(func(t *Tensor) (*Tensor, error) { return Permute(t, []int{0, 2, 1, 3, 4}) }).end()
}

// Conv1d convolves x (N, C, L) with weight (F, C/groups, K) and adds bias (F), which may be nil.
func Conv1d(x, weight, bias *Tensor, stride, padding, dilation, groups int) (_ *Tensor, err error) {
	defer try.Caught(&err)
	try.FailIf(len(x.shape) != 3 || len(weight.shape) != 3 || groups > 0 && weight.shape[1]*groups != x.shape[1],
		"conv1d: an input of shape %s does not fit a weight of shape %s: expected (N, C, L) and (F, C, K)", shaped(x.shape), shaped(weight.shape))
	image, filters := try.To(Unsqueeze(x, 2)), try.To(Unsqueeze(weight, 2))
	return chain(image).then(func(t *Tensor) (*Tensor, error) {
		return Convolve("conv1d", t, filters, bias, ConvOptions{Stride: [2]int{1, stride}, Padding: [2]int{0, padding}, Dilation: [2]int{1, dilation}, Groups: groups})
	}).then(func(t *Tensor) (*Tensor, error) { return Squeeze(t, 2) }).end()
}
