package lang

import (
	"cmp"
	"regexp"
	"strings"
	"sync"

	"drun/docs"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// foreign maps names of PyTorch and related libraries, wherever they occur, to what to use instead.
var foreign = map[string]string{
	"is_master":                    "it is dist.is_main()",
	"FSDP":                         "it is dist.fsdp(module)",
	"DDP":                          "it is dist.ddp(module)",
	"MixedPrecision":               "it is dist.fsdp(module, param_dtype = \"bfloat16\", reduce_dtype = …)",
	"MixedPrecisionPolicy":         "it is dist.fsdp(module, param_dtype = \"bfloat16\", reduce_dtype = …)",
	"PipelineStage":                "it is dist.pipeline(stages, micro_batches)",
	"ScheduleGPipe":                "it is dist.pipeline(stages, micro_batches, schedule = \"gpipe\")",
	"Schedule1F1B":                 "it is dist.pipeline(stages, micro_batches)",
	"ScheduleInterleaved1F1B":      "it is dist.pipeline(stages, micro_batches, schedule = \"interleaved\")",
	"ScheduleZBVZeroBubble":        "it is dist.pipeline(stages, micro_batches, schedule = \"zero_bubble\")",
	"abort_process_group":          "it is fail(reason), which ends the waits of all ranks and the run",
	"get_local_rank":               "it is dist.local_rank()",
	"get_local_size":               "it is dist.local_size()",
	"get_local_process_group":      "it is dist.local_group()",
	"abort":                        "it is fail(reason), which ends the waits of all ranks and the run",
	"monitored_barrier":            "it is dist.barrier(): on timeout its error names the missing ranks, and where they are",
	"parallel":                     "it is dist.ddp(module)",
	"DeviceMesh":                   "it is dist.init_device_mesh(shape, names)",
	"Join":                         "it is dist.join(fn, model, opt); data.loader(…, drop_last = True) gives all ranks equally many batches",
	"init_rpc":                     "nothing is needed: dist.rpc_async(rank, function, …) works at once, and dist.serve() executes the calls of others",
	"launch_subprocesses":          "nothing is needed: drun run -n 4 starts the ranks",
	"spawn":                        "nothing is needed: drun run -n 4 starts the ranks",
	"setup_dist":                   "nothing is needed: drun connects the ranks",
	"unwrap_dist":                  "it is dist.unwrap(module)",
	"get_world_size":               "it is dist.world_size()",
	"get_rank":                     "it is dist.rank()",
	"FileStore":                    "it is dist.store.file(name)",
	"HashStore":                    "it is dist.store.hash()",
	"PrefixStore":                  "it is dist.store.prefix(prefix, store)",
	"all_gather_object":            "dist.all_gather(x) takes any value, and returns the list",
	"gather_object":                "dist.gather(x) takes any value, and returns the list",
	"broadcast_object":             "dist.broadcast(x) takes any value, and returns it",
	"broadcast_object_list":        "dist.broadcast(x) takes any value, and returns it",
	"scatter_object_list":          "dist.scatter(list) takes any values, and returns the rank's own",
	"DistributedSampler":           "data.loader gives each rank its own samples",
	"DataLoader":                   "it is data.loader(ds, batch = …)",
	"TensorDataset":                "it is data.dataset(x, y)",
	"state_dict":                   "it is m.state(); checkpoint.save takes modules and optimizers as they are",
	"load_state_dict":              "it is m.load_state(state); checkpoint.restore puts back what was saved",
	"manual_seed":                  "--seed sets the seed of all random numbers; random.generator(seed) has its own",
	"cuda":                         "drun run --device says where tensors are: leave it out",
	"cpu":                          "drun run --device says where tensors are: leave it out",
	"device":                       "drun run --device says where tensors are: leave it out",
	"is_cuda":                      "drun run --device says where tensors are, and run.device() tells it",
	"numpy":                        "t.tolist() gives lists; tensors do what arrays do",
	"from_numpy":                   "it is tensor(list)",
	"CrossEntropyLoss":             "it is nn.cross_entropy()",
	"MSELoss":                      "it is nn.mse_loss()",
	"L1Loss":                       "it is nn.l1_loss()",
	"NLLLoss":                      "it is nn.nll_loss()",
	"BCEWithLogitsLoss":            "it is nn.bce_with_logits()",
	"Module":                       "it is nn.module(forward, …)",
	"lr_scheduler":                 "a schedule is given as lr: optim.adam(params, lr = optim.cosine(0.1, steps))",
	"SummaryWriter":                "it is run.log(loss = x)",
	"HuberLoss":                    "it is nn.huber_loss()",
	"SmoothL1Loss":                 "it is nn.smooth_l1_loss()",
	"KLDivLoss":                    "it is nn.kl_div()",
	"TripletMarginLoss":            "it is nn.triplet_margin_loss()",
	"BatchNorm3d":                  "it is nn.batch_norm(channels)",
	"SyncBatchNorm":                "it is dist.sync_batch_norm(model)",
	"convert_sync_batchnorm":       "it is dist.sync_batch_norm(model)",
	"InstanceNorm2d":               "it is nn.instance_norm(channels)",
	"ModuleList":                   "a list of modules can be a field of nn.module",
	"ModuleDict":                   "a dict of modules can be a field of nn.module",
	"MultiheadAttention":           "it is nn.multi_head_attention(embed_dim, num_heads)",
	"scaled_dot_product_attention": "it is nn.attention(q, k, v)",
	"clip_grad_norm_":              "it is optim.clip_grad_norm(params, max_norm)",
	"clip_grad_value_":             "it is optim.clip_grad_value(params, clip_value)",
	"AveragedModel":                "it is optim.swa(params), or optim.ema(params)",
	"StepLR":                       "it is optim.step_decay(lr, every), the lr of an optimizer",
	"ExponentialLR":                "it is optim.step_decay(lr, 1, gamma), the lr of an optimizer",
	"MultiStepLR":                  "it is optim.multi_step(lr, milestones), the lr of an optimizer",
	"CosineAnnealingLR":            "it is optim.cosine(lr, steps), the lr of an optimizer",
	"OneCycleLR":                   "it is optim.one_cycle(max_lr, total_steps), the lr of an optimizer",
	"ReduceLROnPlateau":            "it is optim.plateau(lr), the lr of an optimizer",
	"LambdaLR":                     "the lr of an optimizer may be a function of the step",
	"random_split":                 "it is data.split(ds, fraction)",
	"ConcatDataset":                "it is data.concat(datasets)",
	"WeightedRandomSampler":        "it is data.weighted_sampler(weights)",
	"ImageFolder":                  "it is data.image_folder(path)",
	"transforms":                   "they are in data itself: data.compose([data.resize(32), data.to_float()])",
	"register_buffer":              "it is a field nn.buffer(t) of nn.module",
	"randperm":                     "it is random.generator(seed).permutation(n)",
	"ToTensor":                     "images are tensors; data.to_float() converts them to floats from 0 to 1",
}

// foreignMethods are attributes that PyTorch's tensors, modules and optimizers have, by the type that lacks them here.
var foreignMethods = map[string]map[string]string{
	"Tensor": {

		"masked_fill_": "write x[mask] = value", "normal_": "it is nn.init.normal_(x)", "uniform_": "it is nn.init.uniform_(x)",
		"softplus": "it is nn.functional.softplus(x)", "leaky_relu": "it is nn.functional.leaky_relu(x)", "elu": "it is nn.functional.elu(x)", "mish": "it is nn.functional.mish(x)",
		"type": "x.dtype is its type, and x.to(\"float64\") converts", "data": "x.detach() is the tensor without its gradient",
		"is_contiguous": "operations that need it copy by themselves: leave it out",
	},
	"string": {
		"zfill": `write "%03d" % n`, "rjust": `write "%5s" % s`, "ljust": `write "%-5s" % s`, "decode": "bytes are decoded by str(b)", "encode": "bytes(s) gives a string's bytes",
	},
	"Module": {
		"half": "float16 is for storage: m.bfloat16() computes in half the bytes", "forward": "a module is called: m(x)",
		"zero_grad": "it is opt.zero_grad()", "named_children": "m.children() has them, m.named_modules() all with their names",
		"requires_grad_": "write for p in m.parameters(): p.requires_grad = False", "add_module": "it is a field: m.name = module",
		"load": "m.load_state(checkpoint.load_file(path))",
	},
	"Mesh": {
		"get_group": "it is mesh[name]", "get_local_rank": "it is mesh.rank(name)", "get_coordinate": "it is mesh.coordinate()",
		"mesh_dim_names": "it is mesh.names", "ndim": "it is len(mesh.shape)", "mesh": "mesh.ranks and mesh.shape have it",
	},
	"DDP": {
		"module": "it is dist.unwrap(m)",
	},
	"module": {
		"utils":             "gradients are clipped by optim.clip_grad_norm, sequences padded by data.pad_sequence, weights normalised by nn.weight_norm and nn.spectral_norm",
		"swa_utils":         "averages are optim.swa(params) and optim.ema(params)",
		"set_default_dtype": "tensors are made with dtype = …, and m.double() converts a module",
		"autograd":          "gradients are computed by loss.backward() or tensor.grad(outputs, inputs); none flow through dist.rpc",
	},
	"Optimizer": {
		"param_groups": "opt.lr is the rate, and can be assigned",
		"state_dict":   "checkpoint.save takes optimizers as they are", "load_state_dict": "checkpoint.restore puts back what was saved",
	},
}

// Foreign says what to use instead of a PyTorch name, "" if unknown.
func Foreign(name string) string { return cmp.Or(foreign[name], explained()[name]) }

// explained says what the tables of docs/from-pytorch.md have for the names in their first column: the same name in the second
// column in drun's spelling; or, if there are as many names, the one at the same position; or else the whole second column.
var explained = sync.OnceValue(func() map[string]string {
	span := regexp.MustCompile("`([^`]+)`")
	theirs := regexp.MustCompile(`^(?:[\w.]+\.)?([A-Za-z]\w*)(?:\(.*)?$`)
	ours := regexp.MustCompile(`(?:^| )(\w*)\.(\w+)`)
	found := map[string]string{}
	for row := range strings.Lines(docs.FromPyTorch) {
		cells := strings.Split(row, " | ")
		if len(cells) < 3 || strings.HasPrefix(row, "| PyTorch |") {
			continue
		}
		var here []string
		spelt := map[string]string{}
		owner := ""
		for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
			for _, name := range ours.FindAllStringSubmatch(m[1], -1) {
				owner = cmp.Or(name[1], owner)
				here = append(here, owner+"."+name[2])
				spelt[strings.ReplaceAll(name[2], "_", "")] = owner + "." + name[2]
			}
		}
		there := span.FindAllStringSubmatch(cells[0], -1)
		for i, m := range there {
			name := theirs.FindStringSubmatch(m[1])
			if name == nil || found[name[1]] != "" {
				continue
			}
			same := spelt[strings.ToLower(strings.ReplaceAll(name[1], "_", ""))]
			switch {
			case same != "":
				found[name[1]] = "it is " + same
			case len(here) == len(there):
				found[name[1]] = "it is " + here[i]
			case strings.HasPrefix(cells[1], "nothing"):
				found[name[1]] = "nothing is needed: leave it out"
			default:
				found[name[1]] = "it is " + strings.ReplaceAll(cells[1], "`", "")
			}
		}
	}
	return found
})

// ForeignMethod says what to use instead of a PyTorch attribute that a type lacks, "" if unknown.
func ForeignMethod(typ, name string) string {
	return cmp.Or(foreignMethod(typ, name), explained()[name])
}

func foreignMethod(typ, name string) string {
	return cmp.Or(foreignMethods[typ][name], foreign[name])
}

// libraries are the usual names, in Python, of libraries whose place a recipe's modules take.
var libraries = map[string]bool{"torch": true, "np": true, "numpy": true, "F": true, "jnp": true, "jax": true, "tf": true}

// ofLibrary says what to use instead of torch.NAME, where torch, or another library, is the unknown name at a position.
func ofLibrary(name string, at syntax.Position, tree *syntax.File, env starlark.StringDict) string {
	if !libraries[name] {
		return ""
	}
	member := ""
	syntax.Walk(tree, func(n syntax.Node) bool {
		if dot, ok := n.(*syntax.DotExpr); ok {
			if id, ok := dot.X.(*syntax.Ident); ok && id.NamePos == at {
				member = dot.Name.Name
			}
		}
		return member == ""
	})
	if hint := foreignMethod("module", member); hint != "" {
		return hint
	}
	if _, there := env[member]; there && member != "" {
		return "it is " + member + " here"
	}
	if tensors, ok := env["tensor"].(starlark.HasAttrs); ok && member != "" {
		if _, err := tensors.Attr(member); err != nil { // it is a method here
			_, hint, _ := strings.Cut(err.Error(), ": ")
			return hint
		}
	}
	if module := moduleOf(member, env); module != "" {
		return "it is " + module + "." + member + " here"
	}
	if hint := explained()[member]; hint != "" {
		return hint
	}
	return "tensors are in tensor, layers and their functions in nn, optimizers in optim"
}

// surprises are language errors that surprise Python users.
var surprises = sync.OnceValue(func() []surprise {
	return []surprise{
		{regexp.MustCompile(`does not associate with`), "comparisons do not chain: write a < b and b < c"},
		{regexp.MustCompile(`^can't assign to sliceexpr$`), `x["1:3"] = v sets those elements of a tensor; for a list, make a new one: x = x[:1] + v + x[3:]`},
		{regexp.MustCompile(`got string, want iterable$|^string value is not iterable$`), "a string is not iterable: s.elems() gives its characters"},
		{regexp.MustCompile(`^local variable \w+ referenced before assignment$`), "a function that assigns a name has its own variable; keep what functions change in a list or dict that main() makes"},
		{regexp.MustCompile(`^(\w+: )?cannot .* frozen (list|dict|set|hash table|struct)$`), "what the top level makes or run.params returns is frozen once main() runs: make it in main(), or change a copy, list(x) or dict(x)"},
		{regexp.MustCompile(`^positional argument may not follow \*args$`), "put it into the list: f(*(a + [b]))"},
		{regexp.MustCompile(`format spec features not supported in replacement fields`), `write "%.3f" % x`},
		{regexp.MustCompile(`^can't assign to \.\w+ field of dict$`), `an entry of a dict is d["name"]`},
		{regexp.MustCompile(`unknown (dtype|type) "?(cuda|cpu|mps)`), "drun run --device says where tensors are: leave it out"},
	}
})

type surprise struct {
	is   *regexp.Regexp
	hint string
}

var noAttribute = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(.* has no \.(\w+) (?:attribute|field or method))( \(did you mean .*\))?$`)
})

// Hinted adds to a language error's message what to write instead.
func Hinted(msg string) string { return surprised(&Error{Msg: msg}).Msg }

// surprised adds to a language error what to write instead.
func surprised(e *Error) *Error {
	if strings.HasPrefix(e.Msg, "fail: ") { // the recipe's own words
		return e
	}
	for _, s := range surprises() {
		if s.is.MatchString(e.Msg) {
			e.Msg = strings.TrimSuffix(e.Msg, ": "+s.hint) + ": " + s.hint // it may be there already
			return e
		}
	}
	if m := noAttribute().FindStringSubmatch(e.Msg); m != nil {
		typ, _, _ := strings.Cut(e.Msg, " ")
		if hint := ForeignMethod(typ, m[2]); hint != "" {
			e.Msg = m[1] + ": " + hint
		}
	}
	return e
}

// surprisingSyntax returns a hint for a syntax error, from the parser's message and the line before and after its position.
func surprisingSyntax(msg, before, rest string) string {
	switch {
	case strings.HasPrefix(msg, "got for, want") && strings.Count(before, "(") > strings.Count(before, ")"):
		return "there are no generator expressions: write a list, [f(x) for x in items]"
	case strings.HasPrefix(msg, "got string literal, want") && strings.HasSuffix(strings.TrimRight(before, " \t"), `"`),
		strings.HasPrefix(msg, "got string literal, want") && strings.HasSuffix(strings.TrimRight(before, " \t"), "'"):
		return "adjacent strings are not joined: write + between them"
	case strings.HasPrefix(msg, "got '*', want primary") && starred().MatchString(rest) && (strings.TrimSpace(before) == "" || strings.HasSuffix(strings.TrimSpace(before), ",")):
		return "a starred name cannot be assigned to: write first, rest = x[0], x[1:]"
	case strings.HasPrefix(msg, "got '*', want primary") && strings.Count(before, "[") > strings.Count(before, "]"):
		return "lists are joined with +: [1] + list(x)"
	case msg == "got ':', want newline" && declared().MatchString(before):
		return "there are no type annotations: write x = 1"
	case strings.HasPrefix(msg, "got identifier, want") && grouped().MatchString(rest):
		return "numbers have no _ between digits: write 1000"
	case msg == "unparenthesized tuple with trailing comma":
		return "write (x,)"
	case msg == "got ',', want ':'" && strings.Count(before, "{") > strings.Count(before, "}"):
		return "a set is set([1, 2])"
	}
	return ""
}

var grouped = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d+_\d`) })

var declared = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*[\pL_][\pL\pN_]*\s*$`) })

var starred = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\*\s*[\pL_][\pL\pN_]*\s*(,.*)?=[^=]`) })
