package tensor

// Signatures of what follows; each moves to the file of its idea.

func OneHot(t *Tensor, classes int) (*Tensor, error)                      { panic(0) } // classes -1: max+1
func BinCount(t *Tensor, weights *Tensor, minlength int) (*Tensor, error) { panic(0) }

func Embedding(weight, index *Tensor) (*Tensor, error)                          { panic(0) }
func LayerNorm(x, weight, bias *Tensor, dims int, eps float64) (*Tensor, error) { panic(0) } // over the last dims dimensions
func RMSNorm(x, weight *Tensor, eps float64) (*Tensor, error)                   { panic(0) }
func BatchNorm(x, weight, bias, mean, variance *Tensor, training bool, momentum, eps float64) (*Tensor, error) {
	panic(0)
}
func Dropout(x *Tensor, p float64, g *Generator) (*Tensor, error)             { panic(0) }
func Conv2d(x, weight, bias *Tensor, stride, padding [2]int) (*Tensor, error) { panic(0) }
func MaxPool2d(x *Tensor, kernel, stride, padding [2]int) (*Tensor, error)    { panic(0) }
func AvgPool2d(x *Tensor, kernel, stride, padding [2]int) (*Tensor, error)    { panic(0) }
func Attention(q, k, v *Tensor, causal bool) (*Tensor, error)                 { panic(0) }

type Generator struct{ Seed, Stream, Position uint64 }

func NewGenerator(seed, stream uint64) *Generator                                { panic(0) }
func (g *Generator) Rand(c *Context, shape []int, dtype DType) (*Tensor, error)  { panic(0) }
func (g *Generator) Randn(c *Context, shape []int, dtype DType) (*Tensor, error) { panic(0) }
func (g *Generator) RandInt(c *Context, low, high int64, shape []int, dtype DType) (*Tensor, error) {
	panic(0)
}
func (g *Generator) Permutation(n int) ([]int64, error) { panic(0) }
func (g *Generator) Multinomial(c *Context, p *Tensor, n int, replacement bool) (*Tensor, error) {
	panic(0)
}
func (g *Generator) Uniform(t *Tensor, low, high float64) error { panic(0) } // fills t
func (g *Generator) Normal(t *Tensor, mean, std float64) error  { panic(0) } // fills t
func (g *Generator) InitLinear(weight, bias *Tensor) error      { panic(0) } // also conv: fan_in is all but dimension 0; bias may be nil

// An Optimizer updates parameters from their gradients.
type Optimizer struct{ groups []ParamGroup }
type ParamGroup struct {
	Params      []*Tensor
	LR          float64
	WeightDecay float64
}
type SGDOptions struct {
	Momentum float64
	Nesterov bool
}
type AdamOptions struct {
	Beta1, Beta2, Eps float64
	Decoupled         bool // AdamW
}

func NewSGD(groups []ParamGroup, o SGDOptions) (*Optimizer, error)    { panic(0) }
func NewAdam(groups []ParamGroup, o AdamOptions) (*Optimizer, error)  { panic(0) }
func (o *Optimizer) Step() error                                      { panic(0) }
func (o *Optimizer) ZeroGrad()                                        { panic(0) }
func (o *Optimizer) Groups() []ParamGroup                             { panic(0) } // LR and WeightDecay may be changed in place
func (o *Optimizer) State() map[string]*Tensor                        { panic(0) } // live: "exp_avg.0", "momentum.3", "step" (int64, one a parameter); restore by CopyInto, under no-grad
func (o *Optimizer) FlatGrads() []*Tensor                             { panic(0) } // contiguous, one per group; for a collective without a copy
func ClipGradNorm(params []*Tensor, maxNorm float64) (float64, error) { panic(0) }
func GradSquareSum(params []*Tensor) (float64, error)                 { panic(0) }
func ScaleGrads(params []*Tensor, by float64) error                   { panic(0) }

func (t *Tensor) String() string { panic(0) }
