package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"drun/collective"
	"drun/collective/disttest"
	"drun/collective/shm"
	"drun/engine"
	"drun/engine/board"
	"drun/internal/exit"
	"drun/internal/testlimit"
	"drun/starlib"
	"drun/starlib/checkpoint"
	"drun/starlib/lang"
	"drun/starlib/run"
	"drun/starlib/universe"

	"go.starlark.net/starlark"
)

// calls are the builtins through which ranks meet, each in the forms that it has:
// its name in tables, then a call that every rank makes alike.
var calls = map[string][2]string{
	"barrier":                {"dist.barrier", `dist.barrier()`},
	"all_reduce a tensor":    {"dist.all_reduce", `dist.all_reduce(tensor.ones(2))`},
	"all_reduce a number":    {"dist.all_reduce", `dist.all_reduce(1)`},
	"all_reduce later":       {"dist.all_reduce", `dist.all_reduce(tensor.ones(3), async_op = True).wait()`},
	"broadcast a tensor":     {"dist.broadcast", `dist.broadcast(tensor.ones(2))`},
	"broadcast a value":      {"dist.broadcast", `dist.broadcast("b")`},
	"reduce a tensor":        {"dist.reduce", `dist.reduce(tensor.ones(2))`},
	"reduce a number":        {"dist.reduce", `dist.reduce(1)`},
	"all_gather a tensor":    {"dist.all_gather", `dist.all_gather(tensor.ones(2))`},
	"all_gather a value":     {"dist.all_gather", `dist.all_gather("a")`},
	"gather a tensor":        {"dist.gather", `dist.gather(tensor.ones(2))`},
	"gather a value":         {"dist.gather", `dist.gather("g")`},
	"scatter":                {"dist.scatter", `dist.scatter([1] * n if dist.is_main() else None)`},
	"reduce_scatter":         {"dist.reduce_scatter", `dist.reduce_scatter([tensor.ones(2)] * n)`},
	"all_to_all":             {"dist.all_to_all", `dist.all_to_all(tensor.ones(n))`},
	"send":                   {"dist.send", `dist.send("s", other)`},
	"isend":                  {"dist.isend", `dist.isend("s", other).wait()`},
	"recv":                   {"dist.recv", `dist.recv(other)`},
	"irecv":                  {"dist.irecv", `dist.irecv(other).wait()`},
	"recv_any":               {"dist.recv_any", `dist.recv_any()`},
	"broadcast_tensors":      {"dist.broadcast_tensors", `dist.broadcast_tensors([tensor.ones(2)])`},
	"sync_grad":              {"dist.sync_grad", `dist.sync_grad([x])`},
	"sync_buffer":            {"dist.sync_buffer", `dist.sync_buffer([tensor.ones(2)])`},
	"average_metrics":        {"dist.average_metrics", `dist.average_metrics({"a": 1.0})`},
	"reduce_dict":            {"dist.reduce_dict", `dist.reduce_dict({"a": 1.0})`},
	"shared_random_seed":     {"dist.shared_random_seed", `dist.shared_random_seed()`},
	"master_first":           {"dist.master_first", `dist.master_first(lambda: 1)`},
	"local_master_first":     {"dist.local_master_first", `dist.local_master_first(lambda: 1)`},
	"read_file":              {"dist.read_file", `dist.read_file("f")`},
	"new_group":              {"dist.new_group", `dist.new_group([0, 1])`},
	"init_process_group":     {"dist.init_process_group", `dist.init_process_group()`},
	"destroy_process_group":  {"dist.destroy_process_group", `dist.destroy_process_group(ending)`},
	"new_subgroups":          {"dist.new_subgroups", `dist.new_subgroups(n)`},
	"all_gather_into_tensor": {"dist.all_gather_into_tensor", `dist.all_gather_into_tensor(tensor.zeros(n), tensor.ones(1))`},
	"reduce_scatter_tensor":  {"dist.reduce_scatter_tensor", `dist.reduce_scatter_tensor(tensor.zeros(1), tensor.ones(n))`},
	"all_to_all_single":      {"dist.all_to_all_single", `dist.all_to_all_single(tensor.zeros(n), tensor.ones(n))`},
	"coalescing":             {"dist.coalescing", `dist.coalescing(lambda: [dist.all_reduce(tensor.ones(5)), dist.all_reduce(tensor.ones(4))])`},
	"all_reduce_coalesced":   {"dist.all_reduce_coalesced", `dist.all_reduce_coalesced([tensor.ones(5), tensor.ones(4)])`},
	"sync_batch_norm":        {"dist.sync_batch_norm", `dist.sync_batch_norm(nn.batch_norm(1))`},
	"join":                   {"dist.join", `dist.join(lambda: None, hook)`},
	"ring_attention":         {"dist.ring_attention", `dist.ring_attention(*[tensor.ones(2, 2)] * 3)`},
	"by_enumeration":         {"dist.new_subgroups_by_enumeration", `dist.new_subgroups_by_enumeration([range(n)])`},
	"split_group":            {"dist.split_group", `dist.split_group(None, [range(n)])`},
	"init_device_mesh":       {"dist.init_device_mesh", `dist.init_device_mesh((n,), ("dp",))`},
	"init_parallelism":       {"dist.init_parallelism", `dist.init_parallelism()`},
	"copy_to_group":          {"dist.copy_to_group in backward", `dist.copy_to_group(x).sum().backward()`},
	"reduce_from_group":      {"dist.reduce_from_group", `dist.reduce_from_group(x)`},
	"ddp":                    {"dist.ddp", `dist.ddp(nn.linear(3, 1))`},
	"ddp in backward":        {"dist.ddp in backward", `loss.backward()`},
	"fsdp":                   {"dist.fsdp", `dist.fsdp(nn.linear(3, 1))`},
	"a unit's forward":       {"dist.fsdp in forward", `parts(tensor.ones(1, 2))`},
	"a unit's backward":      {"dist.fsdp in backward", `spread.backward()`},
	"column_linear":          {"dist.column_linear", `dist.column_linear(6, 6)`},
	"row_linear":             {"dist.row_linear", `dist.row_linear(6, 6)`},
	"a row's forward":        {"dist.row_linear", `row(tensor.ones(1, 6 // n))`},
	"vocab_embedding":        {"dist.vocab_embedding", `dist.vocab_embedding(6, 6)`},
	"parallelize_module":     {"dist.parallelize_module", `dist.parallelize_module(nn.sequential(nn.linear(6, 6)), group, {"0": "colwise"})`},
	"words":                  {"dist.vocab_embedding", `words(tensor.tensor([1, 5]))`},
	"zero":                   {"dist.zero", `dist.zero(optim.sgd([x], lr = 1))`},
	"a divided step":         {"Optimizer.step", `divided.step()`},
	"pipeline":               {"dist.pipeline", `dist.pipeline([nn.relu()] * n, 2)`},
	"a pipeline's step":      {"Pipeline.step", `pipe.step(tensor.ones(2, 2), tensor.ones(2, 2), nn.mse_loss)`},
	"rpc":                    {"dist.rpc", `dist.rpc(other, f)`},
	"serve":                  {"dist.serve", `dist.serve()`},
	"all_reduce in backward": {"dist.all_reduce in backward", `reduced.sum().backward()`},
	"all_gather in backward": {"dist.all_gather in backward", `gathered[0].sum().backward()`},
	"a group's barrier":      {"dist.barrier", `dist.barrier(group)`},
	"a group's all_reduce":   {"dist.all_reduce", `dist.all_reduce(tensor.ones(2), group = group)`},
	"checkpoint.save":        {"checkpoint.save", `checkpoint.save({"a": 1}, step = 1)`},
	"run.should_stop":        {"run.should_stop", `run.should_stop()`},
	"optim.clip_grad_norm":   {"optim.clip_grad_norm", `optim.clip_grad_norm([x], 1.0, sharded = [x])`},
	"checkpoint.restore":     {"", `checkpoint.restore({"a": 1})`}, // no call to others, but they wait in vain
	"a rank that makes none": {"", `dist.rank()`},
}

// alone are builtins of dist that do not meet others, or as another builtin does: rpc.
var alone = []string{"rank", "world_size", "local_rank", "local_size", "node_rank", "num_nodes", "is_distributed", "is_main",
	"backend", "shard", "unwrap", "local_group", "rpc_async", "remote", "data_parallel",
	"premul_sum", "join_hook", "P2POp", "batch_isend_irecv", "get_process_group_ranks", "get_group_rank", "get_global_rank"}

// before is what all ranks do first, the same.
const before = `
n, other = dist.world_size(), 1 - min(dist.rank(), 1)
x = nn.parameter(tensor.ones(2))
loss = dist.ddp(nn.linear(2, 1))(tensor.ones(1, 2)).sum()
reduced = dist.all_reduce(x)
gathered = dist.all_gather(x)
group = dist.new_group(range(n))
ending = dist.new_group(range(n))
divided = dist.zero(optim.sgd([x], lr = 1))
pipe = dist.pipeline([nn.linear(2, 2) for _ in range(n)], 2)
def f():
    pass
define(f)
hook = dist.join_hook(lambda: None)
row = dist.row_linear(6, 6)
words = dist.vocab_embedding(6, 6)
parts = dist.fsdp(nn.linear(2, 1))
spread = parts(tensor.ones(1, 2)).sum()
`

// Ranks that make different calls all learn of both, by name and line, at once.
func TestEveryPairOfBuiltins(t *testing.T) {
	if testing.Short() {
		t.Skip("its ranks share nothing in a run, where each is a process")
	}
	for _, m := range universe.Modules() {
		for _, d := range m.Defs {
			known := m.Name != "dist" || slices.Contains(alone, d.Name())
			for _, c := range calls {
				known = known || strings.HasPrefix(c[0], m.Name+"."+d.Name())
			}
			if !known {
				t.Errorf("dist.%s is not among the calls of this test", d.Name())
			}
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(calls))
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			walk(t, n, names, func(a, b string) {
				if !fit(a, b, n) {
					disagree(t, n, dir, a, b)
				}
			})
		})
	}
}

// walk calls do for ordered pairs, several at once: most of the time ranks wait. Each call is paired with its next
// neighbour and two others, in both orders; DRUN_TEST_PAIRS=all (make pairs) pairs all.
func walk(t *testing.T, n int, names []string, do func(a, b string)) {
	places := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, a := range names {
		for j, b := range names {
			apart := (j - i + len(names)) % len(names)
			apart = min(apart, len(names)-apart)
			if a == b || t.Failed() && testing.Short() || os.Getenv("DRUN_TEST_PAIRS") != "all" && apart > 1 && apart%13 != n {
				continue
			}
			places <- struct{}{}
			wg.Go(func() { do(a, b); <-places })
		}
	}
	wg.Wait()
}

// fit tells whether two calls belong together, or need no others.
func fit(a, b string, n int) bool {
	sends, receives := []string{"send", "isend"}, []string{"recv", "irecv", "recv_any"}
	message := slices.Contains(sends, a) && slices.Contains(receives, b) || slices.Contains(sends, b) && slices.Contains(receives, a)
	// A message is sent though nobody takes it, unless the receiver has returned by then.
	idle := func(call string) bool { return calls[call][0] == "" || slices.Contains(sends, call) }
	if a == "rpc" && b == "serve" || a == "serve" && b == "rpc" {
		return true
	}
	// To send to a rank that has returned fails at once, perhaps before the third rank has made its call.
	remote := []string{"rpc", "serve"}
	if n > 2 && (idle(a) && slices.Contains(remote, b) || slices.Contains(remote, a) && idle(b)) {
		return true
	}
	return message && (n == 2 || slices.Contains(receives, a)) || idle(a) && idle(b)
}

// disagree lets rank 0 make one call and the others another.
func disagree(t *testing.T, n int, dir, a, b string) {
	source := before + "def main():\n  if dist.is_main():\n    " + calls[a][1] + "\n  else:\n    " + calls[b][1] + "\n\nmain()\n"
	lines := [2]int{strings.Count(before, "\n") + 3, strings.Count(before, "\n") + 5}
	for i, call := range []string{a, b} { // a call in backward stands where the forward one is
		if name, ok := strings.CutSuffix(call, " in backward"); ok && name != "ddp" {
			lines[i] = strings.Count(before[:strings.Index(before, "dist."+name)], "\n") + 1
		}
	}
	start := time.Now()
	failures := runRanks(t, n, dir, source)
	what := fmt.Sprintf("%s | %s, %d ranks", a, b, n)
	if took := time.Since(start); took > testlimit.Time(bound) {
		t.Errorf("%s: it took %v", what, took)
	}
	first := engine.First(slices.DeleteFunc(slices.Clone(failures), func(f *engine.Failure) bool { return f == nil }))
	if first == nil {
		t.Errorf("%s: nobody noticed", what)
		return
	}
	for rank, f := range failures {
		if f == nil {
			continue // it had returned
		}
		text := f.Message + "\n" + f.Traceback
		problem := ""
		for i, call := range []string{a, b} {
			if row := regexp.MustCompile(fmt.Sprintf(`(?m)^  %d  .*%s.* recipe:%d(:|,)`, i, regexp.QuoteMeta(calls[call][0]), lines[i])); !row.MatchString(text) {
				problem += fmt.Sprintf(" no row of rank %d with %q and line %d;", i, calls[call][0], lines[i])
			}
		}
		if f.Code != exit.Mismatch {
			problem += fmt.Sprintf(" exit code %d;", f.Code)
		}
		if strings.Contains(text, "internal error") || strings.Contains(text, "goroutine") {
			problem += " an internal error;"
		}
		if problem != "" {
			t.Errorf("%s: rank %d:%s\n%s", what, rank, problem, text)
		}
	}
}

// bound is how long ranks may take to notice on an idle machine: some do only when they have waited
// in vain for a while, and many pairs run at once.
const bound = 10 * time.Second

// runRanks executes a recipe on ranks in this process, with all that a worker has
// but its agent, and tells how each failed.
func runRanks(t *testing.T, n int, dir, source string) []*engine.Failure {
	file, err := board.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	memory, err := shm.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	failures := make([]*engine.Failure, n)
	ctx, stop := context.WithTimeout(t.Context(), testlimit.Time(bound)) // a pair that hangs is told by its name
	defer stop()
	workers, comms := make([]*worker, n), make([]collective.Comm, n)
	for rank := range n { // all are open before the first begins: a failure here closes them
		w := &worker{job: &engine.Job{Recipe: "recipe"}, ctx: ctx}
		w.job.Placement.Rank = rank
		if w.board, err = board.Open(disttest.Dup(t, file), rank); err != nil {
			t.Fatal(err)
		}
		defer w.board.Close()
		comm, err := shm.Open(disttest.Dup(t, memory), rank, n)
		if err != nil {
			t.Fatal(err)
		}
		closing := &closesGroups{Comm: comm}
		defer closing.Close()
		workers[rank], comms[rank] = w, closing
	}
	var wg sync.WaitGroup
	for rank, w := range workers {
		wg.Go(func() {
			w.board.SetState(collective.Running)
			err := w.executeWith(comms[rank], n, dir, source)
			if err != nil {
				w.abort(err)
				failures[rank] = w.failure(err)
			} else {
				w.board.SetState(collective.Returned)
			}
		})
	}
	wg.Wait()
	return failures
}

// closesGroups closes its groups with itself, as the end of a rank's process does.
type closesGroups struct {
	*shm.Comm
	groups []collective.Comm
}

func (c *closesGroups) Split(ctx context.Context, group collective.Group) (collective.Comm, error) {
	comm, err := c.Comm.Split(ctx, group)
	if made, ok := comm.(*shm.Comm); ok && made != nil {
		comm = &closesGroups{Comm: made}
		c.groups = append(c.groups, comm)
	}
	return comm, err
}

func (c *closesGroups) Close() error {
	for _, g := range c.groups {
		_ = g.Close()
	}
	return c.Comm.Close()
}

func (w *worker) executeWith(comm collective.Comm, n int, dir, source string) error {
	guarded, err := board.Guard(comm, w.board)
	if err != nil {
		return err
	}
	rank := &starlib.Rank{Rank: w.job.Placement.Rank, WorldSize: n, LocalRank: w.job.Placement.Rank, LocalSize: n, NumNodes: 1, Stage: starlib.Running, At: w.at}
	if rank.Files, err = starlib.OpenFiles(dir); err != nil {
		return err
	}
	u := universe.New(universe.Host{Rank: rank, Recorder: silent{}, Comm: guarded, Backend: "shm", Timeout: 20 * time.Second,
		Store: nothing{}, Context: w.ctx, Stop: func() bool { return false }})
	thread := &starlark.Thread{}
	functions := starlark.StringDict{}
	rank.Global = func(_, name string) starlark.Value { return functions[name] }
	u.Env["define"] = starlark.NewBuiltin("define", func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		functions[args[0].(*starlark.Function).Name()] = args[0]
		return starlark.None, nil
	})
	lang.Watch(thread)
	parsed, err := lang.Parse("recipe", []byte(source))
	if err != nil {
		return err
	}
	program, err := parsed.Compile(u.Env)
	if err != nil {
		return err
	}
	if _, err := program.Init(thread, u.Env); err != nil {
		return lang.Explain(thread, err)
	}
	return u.Dist.Finish()
}

type silent struct{ run.Recorder }

// nothing is an empty store of checkpoints.
type nothing struct{}

func (nothing) Save(int64, *float64, bool, []checkpoint.Item) error { return nil }
func (nothing) Restore(string) (*checkpoint.Restored, error)        { return nil, nil }
func (nothing) Say(string)                                          {}
