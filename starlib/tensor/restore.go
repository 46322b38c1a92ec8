package tensor

import (
	"fmt"
	"strings"

	"drun/starlib"
	"drun/tensor"
)

// Restore copies tensors into the live ones of the same names, without recording gradients; into a share,
// only its part. If names, shapes or dtypes do not fit, the error lists all differences and nothing is changed.
func Restore(ctx *tensor.Context, owner string, live map[string]*tensor.Tensor, entries []starlib.Entry) error {
	var faults []string
	for _, e := range entries {
		t := live[e.Name]
		v, ok := e.Value.(*Value)
		switch {
		case t == nil:
			faults = append(faults, fmt.Sprintf("there is no %s", e.Name))
		case !ok:
			faults = append(faults, fmt.Sprintf("%s: want a Tensor, got %s", e.Name, e.Value.Type()))
		case tensor.ShapeString(t.WholeShape()) != Shape(v.Tensor()) || t.DType() != v.Tensor().DType():
			faults = append(faults, fmt.Sprintf("%s: want %s of shape %s, got %s of shape %s",
				e.Name, t.DType(), tensor.ShapeString(t.WholeShape()), v.Tensor().DType(), Shape(v.Tensor())))
		}
	}
	if faults != nil {
		return fmt.Errorf("%s does not fit the state: %s", owner, strings.Join(faults, "; "))
	}
	ctx.BeginNoGrad()
	defer ctx.EndNoGrad()
	for _, e := range entries {
		if err := tensor.CopyWhole(live[e.Name], e.Value.(*Value).Tensor()); err != nil {
			return fmt.Errorf("%s: %s: %w", owner, e.Name, err)
		}
	}
	return nil
}
