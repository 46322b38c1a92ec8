package tensor

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/starlib"
	"drun/tensor"
)

// orderDefs are the methods that order elements, and those based on their order.
var orderDefs = []*starlib.Def{
	method("sort(dim: int = -1, descending: bool = False) -> (values, indices)", "The elements in ascending order along dim, and their original indices. Equal elements keep their order; NaN counts as the largest.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return pair(tensor.Sort(t, c.Int("dim"), c.Bool("descending")))
		}),
	method("argsort(dim: int = -1, descending: bool = False) -> Tensor", "The indices that sort() gives, int64.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.ArgSort(t, c.Int("dim"), c.Bool("descending")))
		}),
	method("topk(k: int, dim: int = -1, largest: bool = True) -> (values, indices)", "The k largest (or smallest) elements along dim in order, and their indices.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return pair(tensor.TopK(t, c.Int("k"), c.Int("dim"), c.Bool("largest")))
		}),
	method("unique(sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int = None) -> Tensor | tuple", "The distinct elements in ascending order, (n,); with a dim, the distinct slices along it. return_inverse also returns each element's index among them, return_counts how often each occurs, both int64. Every NaN is distinct. It has no gradient.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			values, inverse, counts, err := tensor.Unique(t, optionalDim(c))
			if err != nil {
				return nil, err
			}
			list := []*tensor.Tensor{values}
			if c.Bool("return_inverse") {
				list = append(list, inverse)
			}
			if c.Bool("return_counts") {
				list = append(list, counts)
			}
			if len(list) == 1 {
				return (*Value)(values), nil
			}
			return several(list, nil)
		}),
	method("nonzero(as_tuple: bool = False) -> Tensor | tuple", "The indices of the elements that are not 0, in order: int64 of shape (n, dimensions), or a tuple with one tensor (n,) for each dimension, by which x can be indexed.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			at, err := tensor.NonZero(t)
			if err != nil || !c.Bool("as_tuple") {
				return Result(at, err)
			}
			return several(tensor.Unbind(at, 1))
		}),
	extreme("median", "middle", "; of an even number the lower in the middle, NaN where any element is", tensor.Median, tensor.MedianDim),
	method(`quantile(q: Tensor | number | list | tuple, dim: int = None, keepdim: bool = False, interpolation: string = "linear") -> Tensor`, "The value below which a fraction q (0 to 1) of all elements, or of those along dim, lies; NaN where any is. Several q become the result's first dimension. interpolation: linear, lower, higher, midpoint or nearest.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			q, ok := c.Arg("q").(*Value)
			if !ok {
				q = (*Value)(starlib.Must(FromData(t.Context(), c.Arg("q"), dtypeNames[t.DType()])))
			}
			return Result(tensor.Quantile(t, q.Tensor(), optionalDim(c), c.Bool("keepdim"), c.String("interpolation")))
		}),
	method("histc(bins: int = 100, min: number = 0, max: number = 0) -> Tensor", "How many elements lie in each of this many bins of equal width from min to max, or from the smallest to the largest element if both are 0: (bins,), in the tensor's type. Elements outside are not counted.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			return Result(tensor.HistC(t, c.Int("bins"), c.Float("min"), c.Float("max")))
		}),
	method("histogram(bins: Tensor | int | list | tuple, *, range: tuple | list = None, weight: Tensor = None, density: bool = False) -> (hist, bin_edges)", "Counts in bins, and the bins' edges: this many bins of equal width over range (by default that of the elements), or those between the given edges. A bin includes its lower edge, the last one both. weight, of the tensor's shape, weights the elements; density divides by the sum and the widths.",
		func(c *starlib.Call, t *tensor.Tensor) (starlark.Value, error) {
			weight, density := Optional(c, "weight"), c.Bool("density")
			if _, equal := c.Arg("bins").(starlark.Int); !equal {
				if !c.IsNone("range") {
					return nil, fmt.Errorf("range is for a number of bins: leave it out with edges")
				}
				edges := starlib.Must(source(t, c.Arg("bins")))
				counts, err := tensor.HistogramAt(t, edges, weight, density)
				return pair(counts, edges, err)
			}
			var bounds *[2]float64
			if list, ok := c.Arg("range").(starlark.Indexable); ok {
				if list.Len() != 2 {
					return nil, fmt.Errorf("range: want (min, max), got %d values", list.Len())
				}
				bounds = new([2]float64)
				for i := range bounds {
					f, ok := starlark.AsFloat(list.Index(i))
					if !ok {
						return nil, fmt.Errorf("range: want numbers, got %s", list.Index(i).Type())
					}
					bounds[i] = f
				}
			}
			return pair(tensor.Histogram(t, c.Int("bins"), bounds, weight, density))
		}),
}
