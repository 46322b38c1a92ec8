package opencl

// #include "shim.h"
import "C"

import (
	"fmt"

	"drun/kernel"
	"drun/kernel/dtype"
)

// wholes are the reductions that come to the same in any order.
var wholes = map[kernel.ReduceOp]string{
	kernel.Sum: " -DOP=sum -DFIRST=0", kernel.Prod: " -DOP=product -DFIRST=1", kernel.MinOver: " -DOP=least -DFIRST=a[0]",
	kernel.MaxOver: " -DOP=most -DFIRST=a[0]", kernel.Any: " -DOP=any -DFIRST=0 -DTRUTH", kernel.All: " -DOP=all -DFIRST=1 -DTRUTH",
}

// reduceWhole is Reduce of integers and bools, and of any and all.
func (d *Device) reduceWhole(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, out, in Place) {
	k := d.kernel(kernelKey{file: "whole.cl", name: "reduce", op: int(op), in: dt}, func() string {
		result := types[dt]
		switch op {
		case kernel.Sum, kernel.Prod:
			result = "ulong"
		case kernel.Any, kernel.All:
			result = "uchar"
		}
		return wholes[op] + " -DIN=" + types[dt] + " -DOUT=" + result
	})
	d.begin().place(out).place(in).longs(n, inner)
	d.launch(k, [3]int{outer * inner, 1, 1}, [3]int{64, 1, 1})
}

// ArgReduce is [kernel.ArgReduce].
func (d *Device) ArgReduce(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, indices, in Place) {
	k := d.kernel(kernelKey{file: "whole.cl", name: "position", op: int(op), in: dt}, func() string {
		if op == kernel.MaxOver {
			return " -DPOSITION -DLARGEST=1 -DIN=" + types[dt]
		}
		return " -DPOSITION -DLARGEST=0 -DIN=" + types[dt]
	})
	d.begin().place(indices).place(in).longs(n, inner)
	d.launch(k, [3]int{outer * inner, 1, 1}, [3]int{64, 1, 1})
}

// scan returns a kernel of scan.cl for elements of type dt, and integers that are added up in wide.
func (d *Device) scan(name string, dt dtype.Type, wide, op string) C.cl_kernel {
	return d.kernel(kernelKey{file: "scan.cl", name: name, in: dt, options: wide + op}, func() string {
		first := map[string]int{"+": 0, "*": 1}[op]
		options := fmt.Sprintf(" -DOP=%s -DFIRST=%d -DIN=", op, first)
		switch {
		case dt == dtype.Float64:
			return options + "double -DREAL -DDOUBLE"
		case dt == dtype.Float32:
			return options + "float -DREAL"
		case wide == "":
			return options + words[dt.Size()] + " -DT=" + words[dt.Size()]
		}
		return options + types[dt] + " -DT=" + wide
	})
}

// Cumulate is [kernel.CumSum], or with product [kernel.CumProd].
func (d *Device) Cumulate(product bool, dt dtype.Type, outer, n, inner int, out, in Place) {
	op := "+"
	if product {
		op = "*"
	}
	k := d.scan("cumulate", dt, "ulong", op)
	d.begin().place(out).place(in).longs(outer*inner, n, inner)
	d.line(k, outer*inner)
}

// CumProdGrad is [kernel.CumProdGrad].
func (d *Device) CumProdGrad(dt dtype.Type, outer, n, inner int, dx, dy, x Place) {
	k := d.scan("cumprod_grad", dt, "", "*")
	d.begin().place(dx).place(dy).place(x).longs(outer*inner, n, inner)
	d.line(k, outer*inner)
}

// ScatterAdd is [kernel.ScatterAdd].
func (d *Device) ScatterAdd(dt dtype.Type, outer, from, to, inner int, out, in, index Place) {
	k := d.scan("scatter_add", dt, "", "+")
	d.begin().place(out).place(in).place(index).longs(outer*inner, from, inner, to)
	d.line(k, outer*inner)
}
