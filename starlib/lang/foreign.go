package lang

import (
	"regexp"
	"strings"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// foreign are names of PyTorch and of the libraries around it, wherever they stand, and what there is instead.
var foreign = map[string]string{
	"get_world_size":          "it is dist.world_size()",
	"tril":                    "it is tensor.tril(t), and a method of tensors",
	"triu":                    "it is tensor.triu(t), and a method of tensors",
	"empty_like":              "it is tensor.zeros_like(t)",
	"get_rank":                "it is dist.rank()",
	"get_local_rank":          "it is dist.local_rank()",
	"get_local_size":          "it is dist.local_size()",
	"is_main_process":         "it is dist.is_main()",
	"is_master":               "it is dist.is_main()",
	"synchronize":             "it is dist.barrier()",
	"get_backend":             "it is dist.backend(group)",
	"is_initialized":          "it is dist.is_distributed()",
	"TCPStore":                "it is dist.store",
	"FileStore":               "it is dist.store",
	"HashStore":               "it is dist.store",
	"PrefixStore":             "it is dist.store",
	"all_gather_object":       "dist.all_gather(x) takes any value, and returns the list",
	"gather_object":           "dist.gather(x) takes any value, and returns the list",
	"broadcast_object":        "dist.broadcast(x) takes any value, and returns it",
	"broadcast_object_list":   "dist.broadcast(x) takes any value, and returns it",
	"scatter_object_list":     "dist.scatter(list) takes any values, and returns the rank's own",
	"all_gather_into_tensor":  "it is dist.all_gather(t)",
	"reduce_scatter_tensor":   "it is dist.reduce_scatter(list)",
	"DistributedDataParallel": "it is dist.ddp(module)",
	"DataParallel":            "it is dist.ddp(module), with a rank for each part",
	"DistributedSampler":      "data.loader gives each rank its own samples",
	"DataLoader":              "it is data.loader(ds, batch = …)",
	"TensorDataset":           "it is data.dataset(x, y)",
	"state_dict":              "it is m.state(); checkpoint.save takes modules and optimizers as they are",
	"load_state_dict":         "it is m.load_state(state); checkpoint.restore puts back what was saved",
	"manual_seed":             "--seed sets the seed of all random numbers; random.generator(seed) has its own",
	"cuda":                    "tensors are in main memory, and there are no devices: leave it out",
	"cpu":                     "tensors are in main memory, and there are no devices: leave it out",
	"device":                  "tensors are in main memory, and there are no devices: leave it out",
	"is_cuda":                 "tensors are in main memory, and there are no devices",
	"numpy":                   "t.tolist() gives lists; tensors do what arrays do",
	"from_numpy":              "it is tensor(list)",
	"CrossEntropyLoss":        "it is the function nn.cross_entropy(logits, labels)",
	"MSELoss":                 "it is the function nn.mse_loss(x, y)",
	"L1Loss":                  "it is the function nn.l1_loss(x, y)",
	"NLLLoss":                 "it is the function nn.nll_loss(x, y)",
	"BCEWithLogitsLoss":       "it is the function nn.bce_with_logits(x, y)",
	"BatchNorm1d":             "it is nn.batch_norm(channels)",
	"BatchNorm2d":             "it is nn.batch_norm(channels)",
	"functional":              "the functions are in nn itself: nn.cross_entropy(x, y)",
	"Module":                  "it is nn.module(forward, …)",
	"lr_scheduler":            "a schedule is given as lr: optim.adam(params, lr = optim.cosine(0.1, steps))",
	"SummaryWriter":           "it is run.log(loss = x)",
	"contiguous":              "leave it out: what needs the elements side by side copies them by itself",
	"is_contiguous":           "leave it out: what needs the elements side by side copies them by itself",
	"randperm":                "it is random.generator(seed).permutation(n)",
	"empty":                   "it is tensor.zeros(shape)",
	"meshgrid":                "it is x.unsqueeze(1).expand(n, m) and y.unsqueeze(0).expand(n, m) for x of n and y of m elements",
	"ModuleList":              "modules in a list are fields of nn.module(forward, layers = [...])",
	"ModuleDict":              "modules in a dict are fields of nn.module(forward, layers = {...})",
	"Identity":                "nn.sequential takes functions: lambda x: x",
	"Dropout2d":               "it is x * mask with mask = nn.dropout(p)(tensor.ones(n, c, 1, 1))",
	"dropout2d":               "it is x * mask with mask = nn.dropout(p)(tensor.ones(n, c, 1, 1))",
	"ConvTranspose1d":         "it is nn.conv_transpose2d(i, o, (1, kernel)) of x.unsqueeze(2)",
	"conv_transpose1d":        "it is nn.conv_transpose2d(i, o, (1, kernel)) of x.unsqueeze(2)",
	"EmbeddingBag":            "it is nn.embedding(n, dim), and the mean or sum over dim 1 of what it gives",
	"embedding_bag":           "it is nn.embedding(n, dim), and the mean or sum over dim 1 of what it gives",
	"BCELoss":                 "it is the function nn.bce_with_logits(x, y), of what comes before the sigmoid",
	"KLDivLoss":               "it is the function nn.kl_div(x, y)",
	"StepLR":                  "a schedule is given as lr: optim.adam(params, lr = optim.step_decay(…))",
	"CosineAnnealingLR":       "a schedule is given as lr: optim.adam(params, lr = optim.cosine(0.1, steps))",
	"ReduceLROnPlateau":       "a schedule is given as lr: optim.adam(params, lr = optim.plateau(…))",
	"LambdaLR":                "a schedule is given as lr, which may be a function of the step: optim.adam(params, lr = f)",
	"ExponentialLR":           "a schedule is given as lr, which may be a function of the step: optim.adam(params, lr = f)",
	"random_split":            "it is data.split(ds, …)",
	"ConcatDataset":           "it is data.concat(…)",
	"ToTensor":                "images are tensors; data.to_float makes them floats from 0 to 1",
}

// Foreign says what there is instead of a name of PyTorch, "" where nothing is known.
func Foreign(name string) string { return foreign[name] }

// libraries are names under which Python has what the modules of a recipe are.
var libraries = map[string]bool{"torch": true, "np": true, "numpy": true, "F": true, "jnp": true, "jax": true, "tf": true}

// ofLibrary says what there is instead of torch.NAME, where torch is the unknown name at a position.
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
	if hint := Instead(member); hint != "" {
		return hint
	}
	if _, there := env[member]; there && member != "" {
		return "it is " + member + " here"
	}
	if module := moduleOf(member, env); module != "" {
		return "it is " + module + "." + member + " here"
	}
	return "tensors are in tensor, layers and their functions in nn, optimizers in optim"
}

// surprises are errors of the language that surprise those who know Python.
var surprises = sync.OnceValue(func() []surprise {
	return []surprise{
		{regexp.MustCompile(`does not associate with`), "comparisons do not chain: write a < b and b < c"},
		{regexp.MustCompile(`^can't assign to sliceexpr$`), `x["1:3"] = v sets those elements of a tensor; a list is made anew, x = x[:1] + v + x[3:]`},
		{regexp.MustCompile(`got string, want iterable$|^string value is not iterable$`), "a text has no items of its own: s.elems() gives its characters"},
		{regexp.MustCompile(`^local variable \w+ referenced before assignment$`), "a function that assigns a name has a variable of its own; what it changes outside is kept in a list or dict that main() makes"},
		{regexp.MustCompile(`^(\w+: )?cannot .* frozen (list|dict|set|hash table|struct)$`), "what the top level makes, and run.params gives, stays as it is once main() runs: make it in main(), or change a copy, list(x) or dict(x)"},
		{regexp.MustCompile(`^positional argument may not follow \*args$`), "put it into the list: f(*(a + [b]))"},
		{regexp.MustCompile(`format spec features not supported in replacement fields`), `write "%.3f" % x`},
		{regexp.MustCompile(`^can't assign to \.\w+ field of dict$`), `an entry of a dict is d["name"]`},
		{regexp.MustCompile(`unknown (dtype|type) "?(cuda|cpu|mps)`), "tensors are in main memory, and there are no devices: leave it out"},
	}
})

type surprise struct {
	is   *regexp.Regexp
	hint string
}

var noAttribute = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(.* has no \.(\w+) (?:attribute|field or method))( \(did you mean .*\))?$`)
})

// Hinted is an error of the language with what to write instead.
func Hinted(msg string) string { return surprised(&Error{Msg: msg}).Msg }

// surprised adds to an error of the language what to write instead.
func surprised(e *Error) *Error {
	if strings.HasPrefix(e.Msg, "fail: ") { // the recipe's own words
		return e
	}
	for _, s := range surprises() {
		if s.is.MatchString(e.Msg) {
			e.Msg += ": " + s.hint
			return e
		}
	}
	m := noAttribute().FindStringSubmatch(e.Msg)
	if m == nil {
		return e
	}
	hint := foreign[m[2]]
	if strings.HasPrefix(m[1], "Tensor has ") || strings.HasPrefix(m[1], "module has ") {
		hint = Instead(m[2])
	}
	if hint != "" {
		e.Msg = m[1] + ": " + hint
	}
	return e
}

// surprisingSyntax is a hint at a place where the parser stops: msg, and the line before and after it.
func surprisingSyntax(msg, before, rest string) string {
	switch {
	case strings.HasPrefix(msg, "got for, want") && strings.Count(before, "(") > strings.Count(before, ")"):
		return "there are no generator expressions: write a list, [f(x) for x in items]"
	case strings.HasPrefix(msg, "got string literal, want") && strings.HasSuffix(strings.TrimRight(before, " \t"), `"`),
		strings.HasPrefix(msg, "got string literal, want") && strings.HasSuffix(strings.TrimRight(before, " \t"), "'"):
		return "texts that stand side by side are not joined: write + between them"
	case strings.HasPrefix(msg, "got '*', want primary") && starred().MatchString(rest) && (strings.TrimSpace(before) == "" || strings.HasSuffix(strings.TrimSpace(before), ",")):
		return "there is no starred name on the left: write first, rest = x[0], x[1:]"
	}
	return ""
}

var starred = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\*\s*[\pL_][\pL\pN_]*\s*(,.*)?=[^=]`) })
