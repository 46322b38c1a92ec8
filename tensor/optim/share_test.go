package optim

import (
	"fmt"
	"slices"
	"testing"

	"drun/kernel/dtype"
	. "drun/tensor"
)

// The parts of an optimizer's state have every element once, take what they had of the whole, and have no more
// memory than that.
func TestDividedState(t *testing.T) {
	for _, parts := range []int{1, 2, 3, 7, 100} {
		covered := map[string]int{}
		bytes := 0
		for own := range parts {
			c := NewContext()
			var params []*Tensor
			for _, shape := range [][]int{{5, 40}, {1}, {16}, {0}, {33, 3}} {
				p, err := Zeros(c, shape, dtype.Float32)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.SetRequiresGrad(true); err != nil {
					t.Fatal(err)
				}
				params = append(params, p)
			}
			o, err := New([]ParamGroup{{Params: params, LR: 1}}, Adam{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range params {
				s := Elems[float32](o.State()[fmt.Sprintf("exp_avg.%d", i)])
				for j := range params[i].Len() {
					s[j] = float32(1000*i + j)
				}
			}
			if err := o.Shard(own, parts, "all"); err != nil {
				t.Fatal(err)
			}
			for i, p := range params {
				s := o.State()[fmt.Sprintf("exp_avg.%d", i)]
				if !slices.Equal(s.WholeShape(), p.Shape()) || s.Share().From+s.Len() > p.Len() {
					t.Errorf("%d elements from %d of %v", s.Len(), s.Share().From, p.Shape())
				}
				for j, x := range Elems[float32](s) {
					covered[fmt.Sprint(i, " ", s.Share().From+j)]++
					if x != float32(1000*i+s.Share().From+j) {
						t.Errorf("element %d of %d is %v", s.Share().From+j, i, x)
					}
				}
			}
			for _, f := range o.flats {
				for _, b := range f.buffers {
					bytes += b.Storage().Bytes()
				}
			}
		}
		if len(covered) != 200+1+16+99 {
			t.Errorf("%d parts have %d elements", parts, len(covered))
		}
		for at, n := range covered {
			if n != 1 {
				t.Errorf("%d parts have element %s %d times", parts, at, n)
			}
		}
		if most := 2 * 4 * (208 + 16 + 16 + 112); bytes != most {
			t.Errorf("the states of %d ranks take %d bytes, want %d", parts, bytes, most)
		}
	}
}
