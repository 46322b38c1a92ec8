package data

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// This file reads MNIST and CIFAR as their authors publish them.

// mnist reads the images and labels in a folder, compressed or not.
func mnist(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	part := "t10k"
	if c.Bool("train") {
		part = "train"
	}
	read1 := func(kind string, dims int) (*tensor.Tensor, string, error) {
		name := path.Join(c.String("path"), part+"-"+kind)
		t, err := read(r.Files, ctx, name, one(parseIDX))
		if errors.Is(err, fs.ErrNotExist) {
			if packed, err2 := read(r.Files, ctx, name+".gz", one(parseIDX)); !errors.Is(err2, fs.ErrNotExist) {
				t, name, err = packed, name+".gz", err2
			}
		}
		if err == nil && (t.Dim() != dims || t.DType() != dtype.Uint8) {
			err = fmt.Errorf("%s: %s of shape %s are not the %s of MNIST", name, t.DType(), startensor.Shape(t), kind)
		}
		return t, name, err
	}
	images, name := try.To2(read1("images-idx3-ubyte", 3))
	labels, other := try.To2(read1("labels-idx1-ubyte", 1))
	try.FailIf(images.Shape()[0] != labels.Shape()[0], "%s has %d images, and %s %d labels", name, images.Shape()[0], other, labels.Shape()[0])
	x := try.To(tensor.Unsqueeze(images, 1))
	y := try.To(tensor.Cast(labels, dtype.Int64))
	return newDataset(c.Thread, x, y)
}

// cifarPixels are the bytes of a picture: red, green, blue, 32 rows of 32 each.
const cifarPixels = 3 * 32 * 32

// cifar reads the binary version: records of label bytes, one of which is the label, and the pixels.
func cifar(files *starlib.Files, ctx *tensor.Context, c *starlib.Call, names []string, labels, label, classes int) (starlark.Value, error) {
	var xs, ys []*tensor.Tensor
	size := labels + cifarPixels
	for _, name := range names {
		y := try.To(read(files, ctx, path.Join(c.String("path"), name), func(ctx *tensor.Context, content []byte) (*tensor.Tensor, error) {
			if len(content) == 0 || len(content)%size != 0 {
				return nil, fmt.Errorf("%d bytes do not divide into records of %d bytes: truncated, or not CIFAR's binary version", len(content), size)
			}
			n := len(content) / size
			pixels, err := tensor.Empty(ctx, []int{n, 3, 32, 32}, dtype.Uint8)
			if err != nil {
				return nil, err
			}
			y := make([]int64, n)
			for i := range n {
				record := content[i*size : (i+1)*size]
				if y[i] = int64(record[label]); int(y[i]) >= classes {
					return nil, fmt.Errorf("byte %d: label %d of record %d is not below %d", i*size+label, y[i], i, classes)
				}
				copy(pixels.Bytes()[i*cifarPixels:], record[labels:])
			}
			xs = append(xs, pixels)
			return tensor.FromInts(ctx, y, []int{n}, dtype.Int64)
		}))
		ys = append(ys, y)
	}
	x := try.To(tensor.Cat(xs, 0))
	y := try.To(tensor.Cat(ys, 0))
	return newDataset(c.Thread, x, y)
}

// benchmarks are the builtins that read well-known image datasets.
func benchmarks(r *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	const shared = " x is uint8, y int64; transformations such as data.compose apply to batches: data.loader(ds, batch, transform = lambda x, y, g: (t(x, g), y))."
	return []*starlib.Def{
		{Sig: "mnist(path: string, train: bool = True) -> Dataset", Fn: func(c *starlib.Call) (starlark.Value, error) { return mnist(r, ctx, c) },
			Doc: "MNIST, or a set in its format, from a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte (or t10k-...), compressed with gzip or not. x has shape (images, 1, height, width)." + shared},
		{Sig: "cifar10(path: string, train: bool = True) -> Dataset",
			Doc: "CIFAR-10's binary version, from a folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin. x has shape (images, 3, 32, 32)." + shared,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				names := []string{"test_batch.bin"}
				if c.Bool("train") {
					names = nil
					for i := range 5 {
						names = append(names, fmt.Sprintf("data_batch_%d.bin", i+1))
					}
				}
				return cifar(r.Files, ctx, c, names, 1, 0, 10)
			}},
		{Sig: `cifar100(path: string, train: bool = True, labels: string = "fine") -> Dataset`,
			Doc: "CIFAR-100's binary version, from a folder with train.bin and test.bin; labels: the 100 \"fine\" classes or the 20 \"coarse\" ones. x has shape (images, 3, 32, 32)." + shared,
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				name := "test.bin"
				if c.Bool("train") {
					name = "train.bin"
				}
				switch c.String("labels") {
				case "fine":
					return cifar(r.Files, ctx, c, []string{name}, 2, 1, 100)
				case "coarse":
					return cifar(r.Files, ctx, c, []string{name}, 2, 0, 20)
				}
				return nil, errors.New("labels: want \"fine\" or \"coarse\"")
			}},
	}
}
