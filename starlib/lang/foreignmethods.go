package lang

// foreignMethods are attributes that PyTorch's tensors, modules and optimizers have, by the type that lacks them here.
var foreignMethods = map[string]map[string]string{
	"Tensor": {
		"logical_xor":  "write x ^ y, of bools",
		"t":            "it is x.T",
		"nelement":     "it is x.numel()",
		"movedim":      "it is x.permute(…)",
		"masked_fill_": "write x[mask] = value", "normal_": "it is nn.init.normal_(x)", "uniform_": "it is nn.init.uniform_(x)",
		"nanmean":   "write x[~x.isnan()].mean()",
		"bernoulli": "write tensor.rand_like(x) < x",
		"softplus":  "it is a layer: nn.softplus()(x)", "leaky_relu": "it is a layer: nn.leaky_relu()(x)", "elu": "it is a layer: nn.elu()(x)", "mish": "it is a layer: nn.mish()(x)",
		"type": "x.dtype is its type, and x.to(\"float64\") converts", "data": "x.detach() is the tensor without its gradient",
		"contiguous": "operations that need it copy by themselves: leave it out", "is_contiguous": "operations that need it copy by themselves: leave it out",
	},
	"Module": {
		"to": "tensors are in main memory, and there are no devices: leave it out", "forward": "a module is called: m(x)",
		"zero_grad": "it is opt.zero_grad()", "named_children": "m.children() has them, m.named_modules() all with their names",
		"requires_grad_": "write for p in m.parameters(): p.requires_grad = False", "add_module": "it is a field: m.name = module",
		"load": "m.load_state(checkpoint.load_file(path))",
	},
	"DDP": {
		"module": "it is dist.unwrap(m)",
	},
	"module": {
		"utils": "gradients are clipped by optim.clip_grad_norm, sequences padded by data.pad_sequence",
	},
	"Optimizer": {
		"param_groups": "opt.lr is the rate, and can be assigned",
		"state_dict":   "checkpoint.save takes optimizers as they are", "load_state_dict": "checkpoint.restore puts back what was saved",
	},
}
