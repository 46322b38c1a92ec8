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

// positions returns a kernel of whole.cl that compares elements of type dt: the first is the largest or the smallest, and NaN comes before or after all numbers.
func (d *Device) positions(name string, dt dtype.Type, largest, nanFirst bool) C.cl_kernel {
	options := " -DPOSITION"
	if largest {
		options += " -DLARGEST"
	}
	if nanFirst {
		options += " -DNAN_FIRST"
	}
	return d.kernel(kernelKey{file: "whole.cl", name: name, in: dt, options: options}, func() string { return options + " -DIN=" + types[dt] })
}

// ArgReduce is [kernel.ArgReduce].
func (d *Device) ArgReduce(op kernel.ReduceOp, dt dtype.Type, outer, n, inner int, indices, in Place) {
	k := d.positions("position", dt, op == kernel.MaxOver, true)
	d.begin().place(indices).place(in).longs(n, inner)
	d.launch(k, [3]int{outer * inner, 1, 1}, [3]int{64, 1, 1})
}

// MostOrdered is how long Order's rows may be: each element is compared with all of its row.
const MostOrdered = 1024

// Order writes where in its row of n each of total elements in order lies; equal ones keep their order, and NaN counts as the largest.
func (d *Device) Order(dt dtype.Type, total, n int, descending bool, indices, in Place) {
	k := d.positions("order", dt, descending, descending)
	d.begin().place(indices).place(in).longs(total, n)
	d.line(k, total)
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
