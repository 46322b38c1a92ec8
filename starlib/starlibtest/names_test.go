package starlibtest_test

import (
	"regexp"
	"strings"
	"testing"

	"drun/starlib/universe"
)

// promised are the names and signatures that users' recipes rely on. drun may change anything beyond them, such as
// additional parameters at the end.
var promised = map[string]string{
	"tensor": `tensor(data, dtype = None, requires_grad = False) zeros(*shape) ones(*shape) full(shape, value) zeros_like(t) ones_like(t) full_like(t, value) rand_like(t) randn_like(t) eye(n) arange(start, end = None, step = 1)
		linspace(start, end, steps) tril_indices(row, col, offset = 0) triu_indices(row, col, offset = 0) rand(*shape) randn(*shape) randint(low, high, shape) cat(tensors, dim = 0) stack(tensors, dim = 0)
		where(cond, a, b) one_hot(t, classes = -1) tril(t, diagonal = 0) triu(t, diagonal = 0) pad(t, pad, value = 0)
		multinomial(p, n) bincount(t) is_nan(t) is_inf(t) is_finite(t) einsum(equation, *operands) no_grad(iterable_or_fn, *args, **kwargs)
		float32 float64 int64 int32 int8 uint8 bool float16 bfloat16 complex64`,
	"Tensor": `ndim dim() numel() size(dim = None) float() double() long() int() bool() chunk(chunks, dim = 0) split(split_size, dim = 0)
		unbind(dim = 0) repeat(*sizes) repeat_interleave(repeats, dim = None) roll(shifts, dims = None)
		diagonal(offset = 0, dim1 = 0, dim2 = 1) diag(diagonal = 0) tril(diagonal = 0) triu(diagonal = 0) trace() outer(other) dot(other) minimum(other) maximum(other)
		any(dim = None, keepdim = False) all(dim = None, keepdim = False) argsort(dim = -1, descending = False)
		unique(sorted = True, return_inverse = False, return_counts = False, dim = None) nonzero(as_tuple = False)
		median(dim = None, keepdim = False) quantile(q, dim = None, keepdim = False, interpolation = "linear")
		logsumexp(dim = None, keepdim = False) prod(dim = None, keepdim = False) cumprod(dim) log1p() expm1() sin() cos() tan()
		asin() acos() atan() atan2(other) floor() ceil() round() trunc() sign() remainder(other) isnan() isinf() isfinite()
		erf() neg() reciprocal() scatter(dim, index, src) index_put(indices, values, accumulate = False)
		index_put_(indices, values, accumulate = False)
		histc(bins = 100, min = 0, max = 0) histogram(bins, *, range = None, weight = None, density = False)
		shape T mT dtype grad requires_grad requires_grad_(requires_grad = True) item() tolist() reshape(*shape) view(*shape) transpose(dim0, dim1) permute(*dims)
		squeeze(dim = None) unsqueeze(dim) expand(*sizes) flatten(start_dim = 0, end_dim = -1) narrow(dim, start, length)
		select(dim, index) gather(dim, index) scatter_add(dim, index, src) index_select(dim, index) masked_fill(mask, value)
		flip(*dims) matmul(other) sum(dim = None, keepdim = False) mean(dim = None, keepdim = False)
		var(dim = None, unbiased = True, keepdim = False) std(dim = None, unbiased = True, keepdim = False)
		max(dim = None, keepdim = False) min(dim = None, keepdim = False) argmax(dim = None, keepdim = False)
		sort(dim = -1, descending = False) topk(k, dim = -1, largest = True) cumsum(dim) exp() log() sqrt() tanh() sigmoid()
		relu() gelu() silu() softmax(dim) log_softmax(dim) abs() clamp(min = None, max = None) pow(exponent)
		norm(p = 2, dim = None, keepdim = False) backward(retain_graph = False) detach() clone() to(dtype)
		copy_(src) add_(other) sub_(other) mul_(other) zero_() fill_(value)`,
	"linalg": `solve(a, b) inv(a) det(a) slogdet(a) cholesky(a) qr(a, mode = "reduced") svd(a, full_matrices = True) eigh(a)
		norm(a, ord = None, dim = None, keepdim = False)`,
	"fft": `fft(x, imag = None, n = None, dim = -1, norm = "backward") ifft(x, imag = None, n = None, dim = -1, norm = "backward")
		rfft(x, n = None, dim = -1, norm = "backward") irfft(x, imag, n = None, dim = -1, norm = "backward")
		fft2(x, imag = None, s = None, dim = (-2, -1), norm = "backward") fftfreq(n, d = 1.0)`,
	"random":    `generator(seed)`,
	"Generator": `rand(*shape) randn(*shape) randint(low, high) choice(items) shuffle(items) permutation(n)`,
	"nn": `linear(i, o, bias = True) conv2d(i, o, kernel, stride = 1, padding = 0, bias = True) embedding(n, dim) layer_norm(dim)
		rms_norm(dim) batch_norm(channels) dropout(p, group = None) max_pool2d(kernel, stride = None, padding = 0)
		avg_pool2d(kernel, stride = None, padding = 0) flatten() relu() gelu() silu() tanh() sigmoid() sequential(*modules)
		attention(q, k, v, causal = False) cross_entropy(logits, target) mse_loss(input, target) l1_loss(input, target)
		bce_with_logits(logits, target) nll_loss(log_probabilities, target) accuracy(logits, target)
		leaky_relu(negative_slope = 0.01) elu(alpha = 1.0) softplus(beta = 1.0, threshold = 20.0) mish() softmax(dim) log_softmax(dim)
		cross_entropy(logits, target, reduction = "mean", weight = None, ignore_index = -100, label_smoothing = 0)
		bce_with_logits(logits, target, reduction = "mean", weight = None, pos_weight = None)
		huber_loss(input, target, reduction = "mean", delta = 1.0) smooth_l1_loss(input, target, reduction = "mean", beta = 1.0)
		kl_div(input, target, reduction = "mean", log_target = False) cosine_similarity(x1, x2, dim = 1, eps = 1e-8)
		cosine_embedding_loss(input1, input2, target, reduction = "mean", margin = 0)
		triplet_margin_loss(anchor, positive, negative, reduction = "mean", margin = 1.0, p = 2.0, eps = 1e-6, swap = False)
		conv2d(i, o, kernel, stride = 1, padding = 0, bias = True, dilation = 1, groups = 1, padding_mode = "zeros")
		conv1d(i, o, kernel, stride = 1, padding = 0, bias = True, dilation = 1, groups = 1, padding_mode = "zeros")
		conv3d(i, o, kernel, stride = 1, padding = 0, bias = True, dilation = 1, groups = 1, padding_mode = "zeros")
		conv_transpose2d(i, o, kernel, stride = 1, padding = 0, output_padding = 0, groups = 1, bias = True, dilation = 1)
		group_norm(groups, channels, eps = 1e-5, affine = True) instance_norm(channels, eps = 1e-5, affine = False, momentum = 0.1, track_running_stats = False)
		nll_loss(log_probabilities, target, reduction = "mean", weight = None, ignore_index = -100)
		max_pool1d(kernel, stride = None, padding = 0) avg_pool1d(kernel, stride = None, padding = 0)
		adaptive_avg_pool1d(size) adaptive_avg_pool2d(size) adaptive_max_pool1d(size) adaptive_max_pool2d(size)
		upsample(size = None, scale_factor = None, mode = "nearest", align_corners = False)
		interpolate(x, size = None, scale_factor = None, mode = "nearest", align_corners = False)
		lstm(input_size, hidden_size, num_layers = 1, bias = True, batch_first = False, dropout = 0, bidirectional = False)
		gru(input_size, hidden_size, num_layers = 1, bias = True, batch_first = False, dropout = 0, bidirectional = False)
		rnn(input_size, hidden_size, num_layers = 1, bias = True, batch_first = False, dropout = 0, bidirectional = False, nonlinearity = "tanh")
		attention(q, k, v, causal = False, mask = None, dropout = 0, scale = None)
		multi_head_attention(embed_dim, num_heads, dropout = 0, bias = True, batch_first = False)
		transformer_encoder_layer(d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu", layer_norm_eps = 1e-5, batch_first = False, norm_first = False, bias = True)
		transformer_decoder_layer(d_model, nhead, dim_feedforward = 2048, dropout = 0.1, activation = "relu", layer_norm_eps = 1e-5, batch_first = False, norm_first = False, bias = True)
		rotary_embedding(x, base = 10000.0, offset = 0, interleaved = False)
		module(forward, **fields) parameter(t) buffer(t)`,
	"init": `uniform_(t, a = 0, b = 1) normal_(t, mean = 0, std = 1) trunc_normal_(t, mean = 0, std = 1, a = -2, b = 2) constant_(t, val)
		ones_(t) zeros_(t) eye_(t) xavier_uniform_(t, gain = 1) xavier_normal_(t, gain = 1)
		kaiming_uniform_(t, a = 0, mode = "fan_in", nonlinearity = "leaky_relu") kaiming_normal_(t, a = 0, mode = "fan_in", nonlinearity = "leaky_relu")
		orthogonal_(t, gain = 1) calculate_gain(nonlinearity, param = None)`,
	"Module": `modules() named_modules() children() apply(fn) register_forward_hook(fn) parameters() named_parameters() buffers() train() eval() state() training load_state(dict, strict = True)`,
	"optim": `sgd(params, lr, momentum = 0, nesterov = False, weight_decay = 0)
		adam(params, lr, betas = (0.9, 0.999), eps = 1e-8, weight_decay = 0)
		adamw(params, lr, betas = (0.9, 0.999), eps = 1e-8, weight_decay = 0)
		cosine(lr, steps, warmup = 0, end = 0) step_decay(lr, every, gamma = 0.1)
		clip_grad_norm(params, max_norm, sharded = [], group = None) clip_grad_value(params, clip_value)
		rmsprop(params, lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = False)
		adagrad(params, lr = 0.01, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10)
		lion(params, lr = 0.0001, betas = (0.9, 0.99), weight_decay = 0)
		lbfgs(params, lr = 1, max_iter = 20, max_eval = None, tolerance_grad = 1e-7, tolerance_change = 1e-9, history_size = 100, line_search_fn = None)
		multi_step(lr, milestones, gamma = 0.1) linear(lr, start_factor = 0.3333333333333333, end_factor = 1.0, total_iters = 5)
		one_cycle(max_lr, total_steps, pct_start = 0.3, anneal_strategy = "cos", div_factor = 25.0, final_div_factor = 10000.0, three_phase = False, cycle_momentum = False, base_momentum = 0.85, max_momentum = 0.95) chained(*schedules) sequential(schedules, milestones)
		plateau(lr, mode = "min", factor = 0.1, patience = 10, threshold = 0.0001, threshold_mode = "rel", cooldown = 0, min_lr = 0, eps = 1e-8)
		ema(params, decay = 0.999)`,
	"Plateau":   "step(metric) lr",
	"Average":   "update() swap() averages",
	"Optimizer": `step(closure = None) zero_grad() lr`,
	"data": `csv(path, label = None) npy(path) npz(path) idx(path) safetensors(path) text(path) bytes(path)
		dataset(x, y) split(ds, fraction)
		csv(path, label = None, delimiter = None, columns = None, categories = None, missing = None) jsonl(path)
		table(path, format = None, columns = None, delimiter = None, header = True, missing_values = None)
		stream(path, format = None, label = None, label_dtype = "int64", delimiter = None, buffer = 10000, columns = None) tokenizer(path)
		image(path, mode = "RGB") image_folder(path, transform = None, mode = "RGB") mnist(path, train = True) cifar10(path, train = True)
		cifar100(path, train = True, labels = "fine") compose(transforms) resize(size) center_crop(size) random_crop(size, padding = 0)
		random_resized_crop(size, scale = (0.08, 1.0), ratio = (0.75, 1.3333333333333333)) random_horizontal_flip(p = 0.5)
		random_vertical_flip(p = 0.5) grayscale() to_float() normalize(mean, std)
		split(ds, fraction, stratify = False) kfold(ds, k, shuffle = True, stratify = False) subset(ds, indices) concat(datasets)
		map(ds, fn, random = False) cache(ds) weighted_sampler(weights, samples = None, replacement = True)
		collate(samples) pad_collate(samples, padding_value = 0) pad_sequence(sequences, batch_first = False, padding_value = 0)
		loader(ds, batch, shuffle = False, drop_last = False, shard = True, group = None, transform = None, sampler = None, collate = None, prefetch = 2)`,
	"Dataset":    `x y classes`,
	"Tokenizer":  `vocab_size special encode(text, special = True) decode(ids, skip_special = True) id(token) token(id)`,
	"Table":      `columns categories(column) codes(column, categories = None) dataset(label = None, columns = None, categories = None, missing = None)`,
	"Loader":     `epochs(n)`,
	"checkpoint": `save(state, step, score = None, memory = False) restore(state, step = "last", strict = True) save_file(state, path) load_file(path)`,
}

var (
	declaration = regexp.MustCompile(`\w+(\([^()]*(\([^()]*\)[^()]*)*\))?`)
	types       = regexp.MustCompile(`: [^=,)]+`)
)

func TestPromisedNames(t *testing.T) {
	reference := universe.Reference()
	for owner, names := range promised {
		for _, want := range declaration.FindAllString(names, -1) {
			name, _, _ := strings.Cut(want, "(")
			found := reference.Find(owner + "." + name)
			if len(found) != 1 {
				t.Errorf("%s.%s: %d entries in the reference", owner, name, len(found))
				continue
			}
			entry := found[0]
			if entry.Doc == "" {
				t.Errorf("%s.%s has no documentation", owner, name)
			}
			head, _, _ := strings.Cut(entry.Signature, " -> ")
			got := types.ReplaceAllStringFunc(head, func(s string) string { return strings.Repeat(" ", strings.Count(s, " =")) })
			if !begins(parameters(got), parameters(want)) {
				t.Errorf("%s.%s: got %s, want %s", owner, name, entry.Signature, want)
			}
		}
	}
}

// parameters are the parameters of a signature; an attribute has none.
func parameters(signature string) []string {
	_, list, _ := strings.Cut(signature, "(")
	list = strings.TrimSuffix(strings.TrimSpace(list), ")")
	if list == "" {
		return nil
	}
	var params []string
	depth, start := 0, 0
	for i, c := range list + "," {
		switch {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			params = append(params, strings.Join(strings.Fields(strings.ReplaceAll(list[start:i], "=", " = ")), " "))
			start = i + 1
		}
	}
	return params
}

// begins reports whether got starts with the wanted parameters. A required one may have become optional, as lr did when
// groups of parameters got their own.
func begins(got, want []string) bool {
	for i, w := range want {
		if i >= len(got) || got[i] != w && got[i] != w+" = None" {
			return false
		}
	}
	return true
}
