// Package data is the module data of recipes: readers of files, datasets, and
// loaders that give each rank its batches.
package data

import (
	"cmp"
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/table"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// notePerRank notes that a reader's file may differ between ranks.
func notePerRank(r *starlib.Rank, c *starlib.Call) {
	if !c.Bool("per_rank") {
		return
	}
	if one, is := starlark.AsString(c.Arg("path")); is {
		r.Files.PerRank(one)
		return
	}
	for _, name := range stringsOf(c.Arg("path"), "path") {
		r.Files.PerRank(name)
	}
}

// Module makes the module data for a rank.
func Module(r *starlib.Rank, ctx *tensor.Context) *starlib.Module {
	return &starlib.Module{
		Name:  "data",
		Doc:   "Readers, datasets and loaders. Files are looked up in the recipe's folder, then in the --data folders; files compressed with gzip or zstd are decompressed, whatever their name. In a run over several nodes, a file that differs between them is an error, unless per_rank = True says that each rank reads one of its own.",
		Types: []*starlib.Methods{datasetMethods, loaderMethods, samplerType, tableMethods, transformMethods, streamType, tokenizerMethods},
		Defs: append([]*starlib.Def{
			{Sig: "csv(path: string, label: int | string = None, delimiter: string = None, columns: list = None, categories: list | dict = None, missing: number | string | dict = None, per_rank: bool = False) -> Dataset",
				Doc: "A file of comma-separated numbers, one sample a line; a first line without numbers is a header and is skipped. label is the column of the labels; negative numbers count from the end. x: float32, shape (lines, columns); y: int64, or float32 if a label is not an integer, shape (lines,); None without label. delimiter separates the fields: by default a comma, or a tab in .tsv. A line of another length or a field that is not a number is an error that names file, line and column.\nlabel may be a name in the header. columns, categories and missing are for files with text and missing cells: they work as in data.table(path).dataset(), and label is then a name.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					notePerRank(r, c)
					return readCSV(r, ctx, c)
				}},
			reader("npy(path: string) -> Tensor", "An array in NumPy's format. int16 and uint16 become int32, uint32 and uint64 become int64.",
				func(path string) (starlark.Value, error) {
					return startensor.Result(read(r.Files, ctx, path, one(parseNPY)))
				}),
			reader("npz(path: string) -> dict", "The arrays of an .npz file, as a dict from names to tensors. Types are converted as by npy.",
				func(path string) (starlark.Value, error) { return read(r.Files, ctx, path, parseNPZ) }),
			reader("idx(path: string) -> Tensor", "An array in the format of MNIST's files; images are uint8, shape (images, height, width).",
				func(path string) (starlark.Value, error) {
					return startensor.Result(read(r.Files, ctx, path, one(parseIDX)))
				}),
			reader("safetensors(path: string) -> dict", "The tensors of a safetensors file, as a dict from names to tensors. Types are converted as by npy.",
				func(path string) (starlark.Value, error) { return read(r.Files, ctx, path, tensorsOfSafetensors) }),
			{Sig: "text(path: string, per_rank: bool = False) -> string",
				Doc: "The contents of a UTF-8 text file.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					notePerRank(r, c)
					return readText(r.Files, c.String("path"))
				}},
			{Sig: "bytes(path: string, per_rank: bool = False) -> bytes",
				Doc: "The bytes of a file (decompressed, if it is gzip). tensor(data.bytes(path)) makes a uint8 tensor of them.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					notePerRank(r, c)
					return starlark.Bytes(textOf(try.To(readAll(r.Files, c.String("path"))))), nil
				}},
			{Sig: "dataset(x: Tensor | list | tuple, y: Tensor | list | tuple = None) -> Dataset",
				Doc: "Samples from two tensors with equal first dimensions: sample i is row i of x with row i of y. Lists make samples of any values, such as sequences of different lengths or strings, which data.loader collates.",
				Fn: func(c *starlib.Call) (starlark.Value, error) {
					x, isTensor := c.Arg("x").(*startensor.Value)
					y, labels := c.Arg("y").(*startensor.Value)
					if !isTensor || !labels && !c.IsNone("y") {
						return newSamples(c.Thread, c.Arg("x"), c.Arg("y"))
					}
					return newDataset(c.Thread, x.Tensor(), y.Tensor())
				}},
			{
				Sig: "loader(ds: Dataset | Stream, batch: int, shuffle: bool = False, drop_last: bool = False, shard: bool = True, group = None, transform: callable = None, sampler: Sampler = None, collate: callable = None, prefetch: int = 2, pad: bool = False) -> Loader",
				Doc: `This rank's batches, of batch samples each; a loop over the loader gives (x, y), or x alone without labels.
With shuffle, the order depends only on the run's seed and the epoch, and every rank gets the same number of batches: samples left over after the last full batch of every rank are divided as evenly as possible, or dropped if there are fewer than ranks in the group. Without shuffle, each sample comes exactly once, and the ranks' numbers of batches may differ by one. drop_last drops batches that are not full, and gives all ranks equally many. pad = True gives all ranks equally many samples: the first ones of an epoch come again at its end (not for a stream).
shard = False gives every rank all samples; group divides them among the ranks of a group instead of the world. transform(x, y, generator) returns the batch to use instead; the generator depends on seed, rank, epoch and batch.
sampler picks the samples of each epoch, in place of shuffle. Samples that are not rows of a tensor are collated (data.collate), or by collate(samples), which makes a batch from a list of samples. Images are decoded on other threads, prefetch batches ahead, which does not change their bits.`,
				Fn: func(c *starlib.Call) (starlark.Value, error) { return newLoader(r, ctx, c) },
			},
		}, slices.Concat(tables(r, ctx), pictures(r, ctx), transforms(ctx), benchmarks(r, ctx), folds(r, ctx), derived(r, ctx), batching(ctx), []*starlib.Def{sampling, streaming(r), tokenizing(r, ctx)})...),
	}
}

// reader declares a builtin that reads a file.
func reader(sig, doc string, read func(path string) (starlark.Value, error)) *starlib.Def {
	return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
		return read(c.String("path"))
	}}
}

func readCSV(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	path := c.String("path")
	delimiter := delimiterOf(c)
	if delimiter == 0 && formatOf(path) == "tsv" {
		delimiter = '\t'
	}
	if !c.IsNone("columns") || !c.IsNone("categories") || !c.IsNone("missing") {
		f := featuresOf(c)
		_, byNumber := c.Arg("label").(starlark.Int)
		try.FailIf(byNumber, "label: with columns, categories or missing, want the name of a column")
		t := try.To(readTable(r.Files, ctx, c.Thread, path, "csv", table.Options{Delimiter: delimiter}))
		return t.dataset(f)
	}
	in, _, file := try.To3(open(r.Files, path))
	defer file.Close()
	t := try.To(parseCSV(path, in, cmp.Or(delimiter, ','), c.Arg("label"), r.Files.Largest))
	return t.dataset(ctx, c.Thread)
}

func (t *numbersTable) dataset(ctx *tensor.Context, thread *starlark.Thread) (_ *Dataset, err error) {
	defer try.Caught(&err)
	d := &tensors{}
	d.x = try.To(tensor.FromBytes(ctx, bytesOf(t.features), []int{t.rows, t.cols}, dtype.Float32))
	switch {
	case t.labels == nil:
	case t.classes:
		d.y, err = tensor.FromBytes(ctx, bytesOf(t.integers), []int{t.rows}, dtype.Int64)
	default:
		d.y, err = tensor.FromFloats(ctx, t.labels, []int{t.rows}, dtype.Float32)
	}
	return &Dataset{d.items(), thread}, err
}

func newLoader(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	batch := c.Int("batch")
	try.FailIf(batch < 1, "batch = %d: want at least 1 sample", batch)
	rank, size, ranks := r.Rank, r.WorldSize, upTo(r.WorldSize)
	switch g := c.Arg("group").(type) {
	case starlark.NoneType:
	case Group:
		rank, size, ranks = g.Rank(), g.Size(), g.Ranks()
		try.FailIf(rank < 0, "this rank is not a member of the group")
	default:
		return nil, fmt.Errorf("argument group: want a group of ranks, got %s", g.Type())
	}
	if !c.Bool("shard") {
		rank, size, ranks = 0, 1, nil
	}
	if size > 1 {
		r.Divides = ranks
	}
	l := &Loader{Opaque: "Loader", size: batch, shuffle: c.Bool("shuffle"), thread: c.Thread, ctx: ctx, seed: r.Seed, rank: rank, ranks: size, asked: r}
	try.FailIf(c.Bool("drop_last") && c.Bool("pad"), "drop_last drops what pad = True would fill up: leave one of them out")
	if c.Bool("drop_last") {
		l.last = dropLast
	} else if c.Bool("pad") {
		l.last = padLast
	}
	if !c.IsNone("transform") {
		l.transform = c.Callable("transform")
	}
	if !c.IsNone("collate") {
		l.collate = c.Callable("collate")
	}
	if s, ok := c.Arg("ds").(*Stream); ok {
		try.FailIf(!c.IsNone("sampler"), "a sampler needs a dataset, whose samples can be taken in any order")
		try.FailIf(l.last == padLast, "pad needs a dataset, whose number of samples is known")
		try.FailIf(batch > 1<<28, "batch = %d: a batch of a stream has at most %d samples", batch, 1<<28)
		l.stream = s
		return l, nil
	}
	ds := c.Arg("ds").(*Dataset)
	l.ds, l.prefetch = ds, c.Int("prefetch")
	try.FailIf(l.prefetch < 0 || l.prefetch > 1000, "prefetch = %d: want from 0 to 1000 batches", l.prefetch)
	l.samples = ds.Len()
	if s, ok := c.Arg("sampler").(*sampler); ok {
		try.FailIf(l.shuffle, "a sampler decides the order of the samples: it replaces shuffle = True")
		try.FailIf(len(s.weights) != ds.Len(), "the sampler has %d weights, and the dataset %d samples", len(s.weights), ds.Len())
		l.sampler, l.samples = s, s.n
	}
	return l, nil
}
