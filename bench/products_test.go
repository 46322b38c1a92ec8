package main

import "testing"

// The products are those of the model: a step makes three for each weight and each token, and attention's six.
func TestProductsOfGPT(t *testing.T) {
	const weights = 4*(128*384+128*128+2*128*512) + 128*65
	want := 2.0 * (3*weights*768 + 4*6*48*64*64*32)
	got := 0.0
	for _, p := range productsOfGPT() {
		got += 2 * float64(p.times*p.batch) * float64(p.m*p.n) * float64(p.k)
	}
	if got != want {
		t.Errorf("a step makes %.0f operations in products, want %.0f", got, want)
	}
}

func TestProduct(t *testing.T) {
	const batch, m, n, k = 2, 3, 5, 4
	at := func(x []float32, pair, i, j, rows, columns int, trans bool) float32 {
		if trans {
			i, j, columns = j, i, rows
		}
		return x[pair*len(x)/batch+i*columns+j]
	}
	for _, trans := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		p := product{1, batch, m, n, k, trans[0], trans[1]}
		a, b, c := filled(batch*m*k), filled(batch*k*n), make([]float32, batch*m*n)
		if err := p.run(c, a, b); err != nil {
			t.Fatal(err)
		}
		for pair := range batch {
			for i := range m {
				for j := range n {
					want := float32(0)
					for l := range k {
						want += at(a, pair, i, l, m, k, p.transA) * at(b, pair, l, j, k, n, p.transB)
					}
					if got := c[pair*m*n+i*n+j]; got-want > 1e-5 || want-got > 1e-5 {
						t.Errorf("transposed %v: pair %d, element %d, %d is %v, want %v", trans, pair, i, j, got, want)
					}
				}
			}
		}
	}
}
