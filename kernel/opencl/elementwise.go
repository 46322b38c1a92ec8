package opencl

// #include "shim.h"
import "C"

import (
	"drun/kernel"
	"drun/kernel/dtype"
)

// An Operand is memory viewed with strides, counted in elements; a stride of 0 broadcasts. Without a buffer it is the
// number whose bits are Number.
type Operand struct {
	Place
	Strides []int
	Number  uint64
}

const mostDims, mostOperands = 6, 4

// begin starts a kernel's arguments with its walk over some operands, and reports whether it fits.
func (d *Device) walk(shape []int, operands ...*Operand) (n int, ok bool) {
	var size [32]int
	var stride [mostOperands][32]int
	dims := 0
	n = 1
	for i, s := range shape {
		n *= s
		if s == 1 {
			continue
		}
		merge := dims > 0
		for k, o := range operands {
			stride[k][dims] = 0
			if o.Strides != nil {
				stride[k][dims] = o.Strides[i]
			}
			merge = merge && stride[k][dims-1] == stride[k][dims]*s
		}
		if merge {
			dims--
			size[dims] *= s
			for k := range operands {
				stride[k][dims] = stride[k][dims+1]
			}
		} else {
			size[dims] = s
		}
		dims++
	}
	if dims == 0 {
		size[0], dims = 1, 1
		stride = [mostOperands][32]int{}
	}
	if dims > mostDims || dims > 1 && n >= 1<<31 {
		return n, false
	}
	c := d.begin()
	w := c.words[:3+mostDims*(1+mostOperands)]
	number, value := 0, uint64(0)
	for k, o := range operands {
		if o.Buffer.None() {
			number, value = k, o.Number
		}
	}
	w[0], w[1], w[2] = uint64(n), uint64(dims)|uint64(number)<<32, value
	for i := range mostDims {
		w[3+i] = uint64(size[i])
		for k := range mostOperands {
			w[3+mostDims*(1+k)+i] = uint64(stride[k][i])
		}
	}
	c.sizes[0], c.arguments, c.used = uint16(8*len(w)), 1, len(w)
	for _, o := range operands {
		c.place(o.Place)
	}
	return n, true
}

var unaryNames = [...]string{
	kernel.Neg: "neg", kernel.Abs: "abs", kernel.Sign: "sign", kernel.Square: "square", kernel.Sqrt: "sqrt", kernel.Reciprocal: "reciprocal",
	kernel.Exp: "exp", kernel.Expm1: "expm1", kernel.Log: "log", kernel.Log1p: "log1p", kernel.Tanh: "tanh", kernel.Sigmoid: "sigmoid",
	kernel.Erf: "erf", kernel.Sin: "sin", kernel.Cos: "cos", kernel.Relu: "relu", kernel.Gelu: "gelu", kernel.Silu: "silu", kernel.Tan: "tan",
	kernel.Asin: "asin", kernel.Acos: "acos", kernel.Atan: "atan", kernel.Sinh: "sinh", kernel.Cosh: "cosh", kernel.Asinh: "asinh",
	kernel.Acosh: "acosh", kernel.Atanh: "atanh", kernel.Exp2: "exp2", kernel.Log2: "log2", kernel.Log10: "log10", kernel.Rsqrt: "rsqrt",
	kernel.Erfc: "erfc", kernel.Erfinv: "erfinv", kernel.Lgamma: "lgamma", kernel.Digamma: "digamma", kernel.Trigamma: "trigamma",
	kernel.Floor: "floor", kernel.Ceil: "ceil", kernel.Round: "round", kernel.Trunc: "trunc", kernel.Not: "not",
}

var binaryNames = [...]string{
	kernel.Add: "add", kernel.Sub: "sub", kernel.Mul: "mul", kernel.Div: "div", kernel.FloorDiv: "floordiv", kernel.Mod: "mod",
	kernel.Pow: "pow", kernel.Min: "min", kernel.Max: "max", kernel.And: "and", kernel.Or: "or", kernel.Xor: "xor", kernel.Atan2: "atan2",
}

var compareNames = [...]string{kernel.Eq: "eq", kernel.Ne: "ne", kernel.Lt: "lt", kernel.Le: "le", kernel.Gt: "gt", kernel.Ge: "ge"}

// suffixes are those of the functions' names, and types the elements' in the kernels.
var suffixes = [...]string{dtype.Float32: "f32", dtype.Float64: "f64", dtype.Int64: "i64", dtype.Int32: "i32", dtype.Int8: "i8",
	dtype.Uint8: "u8", dtype.Bool: "u8", dtype.Float16: "f16", dtype.BFloat16: "bf16", dtype.Complex64: "c64"}
var types = [...]string{dtype.Float32: "float", dtype.Float64: "double", dtype.Int64: "long", dtype.Int32: "int", dtype.Int8: "char",
	dtype.Uint8: "uchar", dtype.Bool: "uchar", dtype.Float16: "ushort", dtype.BFloat16: "ushort", dtype.Complex64: "pair"}

// words are unsigned integers of a size, for elements whose bits are only moved.
var words = [...]string{1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}

// computed reports whether functions are computed with a type.
func computed(dt dtype.Type) bool { return dt >= dtype.Float32 && dt <= dtype.Bool }

// The families of elementwise.cl, as they are told apart in kernelKey.
const (
	unary = iota
	unaryGrad
	binary
	compare
)

func (d *Device) elementwise(family, op int, dt, result dtype.Type, function string) C.cl_kernel {
	return d.kernel(kernelKey{file: "elementwise.cl", name: "run", op: op, in: dt, out: result, variant: family}, func() string {
		o := " -DOP=" + function + " -DIN=" + types[dt] + " -DOUT=" + types[result]
		if family == unary {
			o += " -DUNARY"
		}
		switch {
		case family == compare || function == "not_bool":
		case dt.IsFloat():
			o += " -DREALS"
		default:
			o += " -DINTEGERS"
		}
		return o
	})
}

// Binary is [kernel.Binary].
func (d *Device) Binary(op kernel.BinaryOp, dt dtype.Type, shape []int, out, a, b Operand) bool {
	if !computed(dt) {
		return false
	}
	n, ok := d.walk(shape, &out, &a, &b)
	if ok && n > 0 {
		d.line(d.elementwise(binary, int(op), dt, dt, "map_"+binaryNames[op]+"_"+suffixes[dt]), n)
	}
	return ok
}

// Compare is [kernel.Compare].
func (d *Device) Compare(op kernel.CompareOp, dt dtype.Type, shape []int, out, a, b Operand) bool {
	if !computed(dt) {
		return false
	}
	n, ok := d.walk(shape, &out, &a, &b)
	if ok && n > 0 {
		d.line(d.elementwise(compare, int(op), dt, dtype.Bool, "compare_"+compareNames[op]), n)
	}
	return ok
}

// Unary is [kernel.Unary].
func (d *Device) Unary(op kernel.UnaryOp, dt dtype.Type, shape []int, out, a Operand) bool {
	if !computed(dt) {
		return false
	}
	n, ok := d.walk(shape, &out, &a)
	if ok && n > 0 {
		name := "map_" + unaryNames[op] + "_" + suffixes[dt]
		if dt == dtype.Bool && op == kernel.Not {
			name = "not_bool"
		}
		d.line(d.elementwise(unary, int(op), dt, dt, name), n)
	}
	return ok
}

// UnaryGrad is [kernel.UnaryGrad].
func (d *Device) UnaryGrad(op kernel.UnaryOp, dt dtype.Type, shape []int, dx, dy, saved Operand) bool {
	if dt != dtype.Float32 && dt != dtype.Float64 {
		return false
	}
	n, ok := d.walk(shape, &dx, &dy, &saved)
	if ok && n > 0 {
		d.line(d.elementwise(unaryGrad, int(op), dt, dt, "map_"+unaryNames[op]+"_grad_"+suffixes[dt]), n)
	}
	return ok
}

// Copy is [kernel.Copy].
func (d *Device) Copy(dt dtype.Type, shape []int, out, a Operand) bool {
	n, ok := d.walk(shape, &out, &a)
	if ok && n > 0 {
		d.line(d.kernel(kernelKey{file: "move.cl", name: "copy", op: dt.Size()}, func() string { return " -DWORD=" + words[dt.Size()] }), n)
	}
	return ok
}

// Where is [kernel.Where].
func (d *Device) Where(dt dtype.Type, shape []int, out, cond, a, b Operand) bool {
	n, ok := d.walk(shape, &out, &cond, &a, &b)
	if ok && n > 0 {
		d.line(d.kernel(kernelKey{file: "move.cl", name: "choose", op: dt.Size()}, func() string { return " -DWORD=" + words[dt.Size()] }), n)
	}
	return ok
}

// Cast is [kernel.Cast].
func (d *Device) Cast(to, from dtype.Type, shape []int, out, a Operand) bool {
	if to == from {
		return d.Copy(to, shape, out, a)
	}
	n, ok := d.walk(shape, &out, &a)
	if ok && n > 0 {
		d.line(d.kernel(kernelKey{file: "cast.cl", name: "run", in: from, out: to}, func() string {
			name := suffixes[to]
			if to == dtype.Bool {
				name = "bool"
			}
			return " -DOP=cast_" + name + "_" + suffixes[from] + " -DIN=" + types[from] + " -DOUT=" + types[to]
		}), n)
	}
	return ok
}
