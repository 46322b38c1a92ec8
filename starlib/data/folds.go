package data

import (
	"fmt"
	"math"
	"slices"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/starlib"
	"drun/starlib/random"
	"drun/tensor"
)

// permutation shuffles the samples' numbers with the run's seed: the same on all ranks and in every call.
func permutation(ctx *tensor.Context, r *starlib.Rank, n int, parts ...uint64) (*tensor.Tensor, error) {
	return random.New(ctx, r.Seed, random.Split, parts...).Permutation(n)
}

// split cuts the dataset, in the given order, in two.
func (d *Dataset) split(order *tensor.Tensor, fraction float64) (a, b *Dataset, err error) {
	try.FailIf(!(fraction >= 0 && fraction <= 1), "fraction %v is not between 0 and 1", fraction)
	n := d.Len()
	cut := int(math.Round(fraction * float64(n)))
	part := func(lo, hi int) (*Dataset, error) {
		t := tensorsOf(d.items)
		if t == nil {
			return d.subset(plainInts(order)[lo:hi]), nil
		}
		p, err := t.take(order, lo, hi)
		return &Dataset{p.items(), d.thread}, err
	}
	if a, err = part(0, cut); err == nil {
		b, err = part(cut, n)
	}
	return a, b, err
}

// upTo returns the numbers from 0 to n - 1.
func upTo(n int) []int {
	return each.UpTo(n, func(i int) int { return i })
}

// plainInts returns the elements of an int64 tensor.
func plainInts(t *tensor.Tensor) []int {
	wide := view[int64](t.Content())
	return each.Of(wide, func(n int64) int { return int(n) })
}

// classes groups the samples, in that order, by label. The groups are in the order in which their labels first occur
// in the data, which no shuffle changes.
func (d *Dataset) classes(order []int) ([][]int, error) {
	numbers := make(map[string]int)
	of := make([]int, d.Len())
	for i := range of {
		v := labelOf(d.items, i)
		try.FailIf(v == nil, "stratify needs the labels of all samples beforehand, and this dataset has none, or computes them")
		if s, ok := v.(starlib.Scalar); ok {
			var err error
			if v, err = s.Item(); err != nil {
				return nil, fmt.Errorf("stratify: the label of sample %d: %w", i, err)
			}
		}
		switch v.(type) {
		case starlark.Int, starlark.Float, starlark.String, starlark.Bool:
		default:
			return nil, fmt.Errorf("stratify: the label of sample %d is a %s, not a number or a string", i, v.Type())
		}
		key := v.Type() + v.String()
		k, seen := numbers[key]
		if !seen {
			k = len(numbers)
			numbers[key] = k
		}
		of[i] = k
	}
	groups := make([][]int, len(numbers))
	for _, i := range order {
		groups[of[i]] = append(groups[of[i]], i)
	}
	return groups, nil
}

// stratified cuts each class, in that order of the samples, at the fraction; the rounding error of one class carries
// over to the next, so that the whole is cut at the fraction too.
func (d *Dataset) stratified(order []int, fraction float64) (first, second []int) {
	groups := try.To(d.classes(order))
	seen, taken := 0, 0
	for _, g := range groups {
		seen += len(g)
		cut := int(math.Round(fraction*float64(seen))) - taken
		cut = min(max(cut, int(math.Floor(fraction*float64(len(g))))), int(math.Ceil(fraction*float64(len(g)))))
		taken += cut
		first, second = append(first, g[:cut]...), append(second, g[cut:]...)
	}
	return first, second
}

// pick puts the members of a subset in the order of the shuffle, so that classes do not come in blocks.
func pick(order []int, members []int) []int {
	in := make(map[int]bool, len(members))
	for _, i := range members {
		in[i] = true
	}
	return slices.DeleteFunc(slices.Clone(order), func(i int) bool { return !in[i] })
}

func splitDataset(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	ds := c.Arg("ds").(*Dataset)
	order := try.To(permutation(ctx, r, ds.Len()))
	fraction := c.Float("fraction")
	if c.Bool("stratify") && fraction >= 0 && fraction <= 1 {
		shuffled := plainInts(order)
		a, b := ds.stratified(shuffled, fraction)
		return starlark.Tuple{ds.subset(pick(shuffled, a)), ds.subset(pick(shuffled, b))}, nil
	}
	a, b, err := ds.split(order, fraction)
	return starlark.Tuple{a, b}, err
}

func kfold(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	ds, k := c.Arg("ds").(*Dataset), c.Int("k")
	try.FailIf(k < 2 || k > ds.Len(), "k = %d: want from 2 to the number of samples, %d", k, ds.Len())
	order := upTo(ds.Len())
	if c.Bool("shuffle") {
		mixed := try.To(permutation(ctx, r, ds.Len(), uint64(k)))
		order = plainInts(mixed)
	}
	fold := make([]int, ds.Len()) // of each sample
	if c.Bool("stratify") {
		groups := try.To(ds.classes(order))
		next := 0 // continues from class to class, so that the folds' sizes differ by one at most
		for _, g := range groups {
			for _, i := range g {
				fold[i] = next % k
				next++
			}
		}
	} else {
		for f := range k {
			for _, i := range order[f*len(order)/k : (f+1)*len(order)/k] {
				fold[i] = f
			}
		}
	}
	list := make([]starlark.Value, k)
	for f := range list {
		var train, test []int
		for _, i := range order {
			if fold[i] == f {
				test = append(test, i)
			} else {
				train = append(train, i)
			}
		}
		list[f] = starlark.Tuple{ds.subset(train), ds.subset(test)}
	}
	return starlark.NewList(list), nil
}

// folds are the builtins that cut a dataset into parts.
func folds(r *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{
			Sig: "split(ds: Dataset, fraction: number, stratify: bool = False) -> (Dataset, Dataset)",
			Doc: "Two datasets: a fraction of the samples (rounded to a whole number) and the rest, after a shuffle seeded by the run's seed. The same on all ranks and in every call. With stratify the first has the same fraction of each label's samples, to within one.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return splitDataset(r, ctx, c) },
		},
		{
			Sig: "kfold(ds: Dataset, k: int, shuffle: bool = True, stratify: bool = False) -> list",
			Doc: "k pairs (train, test): each sample is in the test dataset of one pair, and in the train dataset of the others; the sizes of the test datasets differ by at most one. shuffle uses the run's seed: the same on all ranks and in every call. With stratify the test datasets have equally many samples of each label, to within one.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return kfold(r, ctx, c) },
		},
	}
}
