package universe_test

import (
	"testing"

	"drun/starlib/universe"
)

func TestSearch(t *testing.T) {
	reference := universe.Reference()
	for text, want := range map[string]string{
		"all_reduce": "dist.all_reduce", "ALLREDUCE": "dist.all_reduce", "DataLoader": "data.loader", "cross_entropy": "nn.cross_entropy",
		"plateau": "optim.plateau", "Tensor": "Tensor", "half cosine": "optim.cosine", "requires_grad_": "Tensor.requires_grad_", "nn.linear": "nn.linear",
		"momentum nesterov": "optim.sgd", "save weights": "checkpoint.save_file", "loader epochs": "Loader.epochs",
	} {
		found := reference.Search(text)
		if len(found) == 0 || found[0].Path() != want {
			t.Errorf("%q finds first %v, want %s", text, found, want)
		}
	}
	for text, want := range map[string]string{"DataLoader": "data.loader", "torch.nn.CrossEntropyLoss": "nn.cross_entropy", "SGD": "optim.sgd",
		"all_gather_into_tensor": "dist.all_gather_into_tensor", "cuda": "", "xyzzy": ""} {
		says, found := reference.Instead(text)
		if (says == "") != (text == "xyzzy") || found == nil || want == "" && len(found) > 0 || want != "" && (len(found) == 0 || found[0].Path() != want) {
			t.Errorf("instead of %s: %q, %v, want %s", text, says, found, want)
		}
	}
	for _, text := range []string{"F.normalize", "torch.nn.functional.normalize", "nn.functional.normalize"} {
		if found := reference.Find(text); len(found) != 1 || found[0].Path() != "functional.normalize" {
			t.Errorf("%s: %v", text, found)
		}
	}
	for _, nothing := range []string{"", "  ", "xyzzy", "all_reduce xyzzy", "."} {
		if found := reference.Search(nothing); len(found) != 0 {
			t.Errorf("%q finds %d entries", nothing, len(found))
		}
	}
	whole := reference.Search("loss")
	if len(whole) < 5 || whole[0].Owner == "" {
		t.Errorf("loss: %d entries", len(whole))
	}
}
