package tensor

// Where takes a's elements where cond is true and b's where it is false.
func Where(cond, a, b *Tensor) (*Tensor, error) { panic("kernel") }
