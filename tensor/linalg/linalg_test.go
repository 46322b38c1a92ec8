package linalg

import (
	"strings"
	"testing"

	"drun/kernel/dtype"
	"drun/tensor"
)

// What does not take bfloat16 says so.
func TestHalfRefused(t *testing.T) {
	x, err := tensor.Ones(tensor.NewContext(), []int{3, 3}, dtype.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inv(x); err == nil || !strings.Contains(err.Error(), "bfloat16") {
		t.Errorf("error %v", err)
	}
}

// A backward pass notices that what an operation has saved was modified since.
func TestSavedIsChecked(t *testing.T) {
	x, err := tensor.Eye(tensor.NewContext(), 3, 3, dtype.Float64)
	if err == nil {
		err = x.SetRequiresGrad(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	y, err := Inv(x)
	if err == nil {
		err = y.Detach().Fill(tensor.Int(2))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Backward(x.Detach(), false); err == nil || !strings.Contains(err.Error(), "modified in place after inv saved it") {
		t.Errorf("error %v", err)
	}
}
