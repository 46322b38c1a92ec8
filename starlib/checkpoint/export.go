package checkpoint

import (
	"io"
	"strings"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib/data"
	"drun/tensor"
)

// Export writes the tensors of a state into a file of the format that its name ends in, under the names that
// save_file gives them. It returns the names of other values, which the file cannot hold.
func Export(w io.Writer, file string, items []Item) (left []string, err error) {
	defer try.Caught(&err)
	format := try.To(data.FormatOf(file))
	ctx := tensor.NewContext()
	var tensors []data.Named
	for _, it := range items {
		if strings.HasPrefix(it.Name, separator) {
			continue // one of drun's own values
		}
		if it.DType == "" {
			left = append(left, it.Name)
			continue
		}
		dt := try.To(dtype.Parse(it.DType))
		t := try.To(tensor.FromBytes(ctx, it.Data, it.Shape, dt))
		tensors = append(tensors, data.Named{Name: strings.ReplaceAll(it.Name, separator, "."), Tensor: t})
	}
	return left, format.Write(w, tensors)
}
