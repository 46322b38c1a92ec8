package starlibtest_test

import (
	"strings"
	"testing"

	"drun/starlib"
	"drun/starlib/starlibtest"
)

// Lines of a PyTorch script that a recipe writes differently: each error says how.
func TestForeign(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"tensor.exp(x)", "tensor has no .exp field or method: it is a method of Tensor: x.exp(…)"},
		{"torch.exp(x)", "undefined: torch: it is a method of Tensor: x.exp(…)"},
		{"F.relu(x)", "it is a method of Tensor: x.relu(…)"},
		{"torch.zeros(2)", "undefined: torch: it is tensor.zeros here"},
		{"torch.frobnicate(x)", "undefined: torch: tensors are in tensor"},
		{"m.to('cpu')", "drun run --device says where tensors are: leave it out"},
		{"torch.autograd.grad(x)", "undefined: torch: gradients are computed by loss.backward() or tensor.grad(outputs, inputs)"},
		{"x, = tensor.grad(x, x)", "unparenthesized tuple with trailing comma: write (x,)"},
		{"m.forward(x)", "a module is called: m(x)"},
		{"optim.sgd([x], lr = 1.0).param_groups", "opt.lr is the rate"},
		{"optim.sgd([x], lr = 1.0).state_dict()", "checkpoint.save takes optimizers as they are"},
		{"nn.utils.clip_grad_norm_(x)", "optim.clip_grad_norm"},
		{"data.loader(data.dataset(x), 2, num_workers = 2)", "unexpected argument num_workers: files are read and decoded on the rank's own threads"},
		{"nn.linear(2, 2, kernel_size = 3)", "unexpected argument kernel_size: linear("},
		{"tensor.zeros(2, device = 'cpu')", "drun run --device says where tensors are"},
		{"nn.linear(2, 2, biass = False)", "unexpected argument biass (did you mean bias?): linear("},
		{"nn.linear(2, 2, BIAS = False)", "unexpected argument BIAS (did you mean bias?): linear("},
		{"nn.linear(2, 2, frobnicate = False)", "unexpected argument frobnicate: linear("},
		{"nn.relu(x)", "nn.relu: got 1 arguments, want at most 0: relu() -> Module: it makes a layer, and the layer is called with the tensor: layer = nn.relu(…), then layer(x)"},
		{"nn.gelu(x)", "got Tensor"},
		{"optim.adam(m, lr = 0.1)", "optim.adam: argument params: want iterable, got Module: m.parameters() gives the parameters of a module m"},
		{"nn.cross_entropy(x, tensor.ones(2))", "probabilities of shape (2,) do not fit scores of shape (2, 2): class numbers are integers, target.long()"},
		{"nn.cross_entropy(x, tensor.ones(3))", "probabilities of shape (3,) do not fit scores of shape (2, 2)"},
		{"dist.get_local_process_group()", "it is dist.local_group()"},
		{"dist.monitored_barrier()", "it is dist.barrier()"},
		{"fully_shard(m)", "undefined: fully_shard: it is dist.fsdp(m, group = mesh)"},
		{"nn.Conv3d(1, 1, 3)", "it is nn.conv3d"},
		{"nn.parallel.DistributedDataParallel(m)", "it is dist.ddp(module)"},
		{"LinearLR(1)", "it is optim.linear"},
		{`dist.init_device_mesh((1,), ("dp",)).get_group("dp")`, "it is mesh[name]"},
		{"init_process_group_()", "undefined: init_process_group_"},
		{"dist.ddp(m).module", "DDP has no .module field or method: it is dist.unwrap(m)"},
		{"nn.gelu(x)", "then layer(x)"},
	} {
		src := "x = tensor.ones(2, 2, requires_grad = True)\nm = nn.linear(2, 2)\n" + c.src
		_, err := starlibtest.New(t, t.TempDir(), starlib.Rank{Stage: starlib.Running}, nil).Exec("r.star", src)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.src, err, c.want)
		}
	}
}

// PyTorch's names of arguments work where drun's are shorter, and are an error where both are given.
func TestOtherSpellings(t *testing.T) {
	for _, src := range []string{
		"data.loader(data.dataset(x), batch_size = 2)", "nn.conv2d(1, 1, kernel_size = 3)", "nn.conv2d(in_channels = 1, out_channels = 1, kernel_size = 3)",
		"x.sum(axis = 0)", "x.sum(axis = 0, keepdims = True)", `dist.init_device_mesh((1,), mesh_dim_names = ("dp",))`, "nn.linear(in_features = 2, out_features = 1)",
		"x.flip(dims = (0, 1))", "x.permute(dims = (1, 0))", "tensor.one_hot(x.long(), num_classes = 3)", "linalg.inv(A = tensor.eye(2))", "nn.layer_norm(normalized_shape = 2)",
	} {
		if _, err := starlibtest.New(t, t.TempDir(), starlib.Rank{Stage: starlib.Running}, nil).Exec("r.star", "x = tensor.ones(2, 2)\n_ = "+src); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
	for src, want := range map[string]string{
		"x.sum(dim = 0, axis = 1)": "argument axis is given twice", "x.sum(0, axis = 1)": "argument axis is given twice", "x.flip(0, dims = (1,))": "unexpected argument dims",
		"nn.conv2d(1, 1, 3, kernel_size = 3)": "argument kernel_size is given twice",
	} {
		_, err := starlibtest.New(t, t.TempDir(), starlib.Rank{Stage: starlib.Running}, nil).Exec("r.star", "x = tensor.ones(2, 2)\n_ = "+src)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", src, err, want)
		}
	}
}
