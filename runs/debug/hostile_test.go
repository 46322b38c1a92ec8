package debug

import (
	"drun/engine"
	"drun/engine/run"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostile are recipes in which the past is hard to come to. Each is stepped through from its first statement at "# from" on.
var hostile = map[string]string{
	"iterators": `def main():
    d = {"a": 1, "b": 2}
    total = []
    for i, (k, v) in enumerate(zip(d, [x * x for x in range(5) if x])): # from
        total.append((i, k, v))
        for c in k.elems():
            total += [c]
        d[k] = d[k] + v
    e = sorted(total, key = lambda t: str(t))
    run.log(n = len(e))
`,
	"recursion": `def fib(n, seen):
    seen.append(n)
    if n < 2:
        return n
    a = fib(n - 1, seen)
    b = fib(n - 2, seen)
    return a + b

def main():
    seen = []
    n = dist.rank() # from
    x = fib(4 + n, seen)
    y = [fib(k, seen) for k in range(3)]
    z = [y[0], seen[-1]]
    run.log(x = x, all_ranks = True)
`,
	"while": `def main():
    w = tensor.ones(2)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    n, losses = 0, []
    while True: # from
        loss = (w * w).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
        n += 1
        if n > 3:
            break
        elif n == 2:
            continue
        n = n
    run.log(n = n, loss = losses[-1])
`,
	"async": `def main():
    x = tensor.ones(4) * (dist.rank() + 1)
    for step in range(3): # from
        work = dist.all_reduce(x.clone(), async_op = True) # what it works on is not seen: it may be anything meanwhile
        z = x * 3
        y = work.wait()
        x = x + y / 2 + z
        s = dist.all_gather({"rank": dist.rank(), "step": step})
        dist.barrier()
    run.log(x = x.sum().item(), s = len(s))
`,
	"pairs": `def main():
    x = tensor.arange(3.0) + dist.rank()
    for step in range(4): # from
        if dist.rank() == 0:
            dist.send(x, dst = 1)
            x = dist.recv(1) + 1
        else:
            y = dist.recv(0)
            dist.send(y * 2, dst = 0)
            x = y
    run.log(x = x.sum().item(), all_ranks = True)
`,
	"unsaved": `def main():
    w = tensor.ones(2)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    state = {"w": w, "opt": opt, "step": 0}
    checkpoint.restore(state)
    history, last, hits = [], None, {}
    for step in range(state["step"], 6):
        noise = random.generator(step).rand(2)
        loss = (w * w * noise).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        last = w.detach().clone() if step % 2 else last
        hits[step] = last
        history.append(loss.item())
        state["step"] = step + 1
        checkpoint.save(state, step = step)
        if step == 3:
            mark = step # from
    run.log(n = len(history), last = last.sum().item())
`,
	"streams": `def main():
    model = nn.sequential(nn.linear(4, 4), nn.dropout(0.5), nn.linear(4, 1))
    opt = optim.adam(model.parameters(), lr = 0.01)
    batches = data.loader(data.dataset(tensor.arange(64.0).view(16, 4)), batch = 2, shuffle = True, transform = lambda x, y, generator: (x + generator.rand(4), y))
    r = 0
    for epoch in batches.epochs(2): # from
        for x, _ in batches:
            r = tensor.rand(2)
            loss = model(x).pow(2).mean()
            loss.backward()
            dist.sync_grad(model.parameters())
            opt.step()
            opt.zero_grad()
    run.log(loss = loss.item(), r = r.sum().item())
`,
	"hooks": `def main():
    seen = []
    def average(bucket):
        g = bucket.buffer
        seen.append(g.sum().item())
        return dist.all_reduce(g) / 2
    model = dist.ddp(nn.linear(3, 1), hook = average)
    opt = optim.sgd(model.parameters(), lr = 0.1)
    for step in range(3): # from
        k = step * 2
        model(tensor.full([2, 3], float(dist.rank() + step))).sum().backward()
        opt.step()
        opt.zero_grad()
        opt.step()
    run.log(n = len(seen))
`,
	"alone": `def main():
    w = tensor.ones(2)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    a, b = 0, 0
    for step in range(4): # from
        if dist.rank() == 1:
            (w * w).sum().backward()
            opt.step()
            opt.zero_grad()
            a += 1
        else:
            b = b + step
    dist.broadcast(w.detach(), src = 1)
    run.log(w = w.sum().item(), b = b)
`,
	"closures": `def counter():
    state = {"n": 0}
    def bump(by):
        state["n"] += by
        return state["n"]
    return bump

def main():
    bump = counter()
    f = [lambda x: x + bump(k) for k in range(3)]
    total = 0 # from
    for g in f:
        total += g(1)
        h = struct(a = total, g = g)
        s = set([total, h.a])
    t = {k: [v] for k, v in {"x": total}.items()}
    run.log(total = total)
`,
	"groups": `def main():
    g = dist.new_group([0, 1])
    dist.store.set("n", "0")
    dist.barrier()
    for step in range(3): # from
        x = dist.all_reduce(tensor.ones(2) * step, group = g)
        n = dist.store.add("count", 1) if dist.rank() == 0 else 0
        o = dist.broadcast([step, n], src = 0)
        y = dist.all_gather(x)
    run.log(n = n)
`,
	"views": `def main():
    a = tensor.zeros(3, 3)
    rows = [a[i] for i in range(3)]
    for i in range(3): # from
        rows[i].fill_(float(i))
        a[":, 0"] = tensor.full([3], 7.0 + i)
        t = a.t()
        t[i] = t[i] * 2
        b = {"kept": a, "copy": a.clone()}
    run.log(a = a.sum().item())
`,
	"loose": `def main():
    w = tensor.ones(2)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    n = 0
    for step in range(3): # from
        (w * w).sum().backward()
        opt.step()
        opt.zero_grad()
        now = n
        n += 1
    run.log(n = n)
`,
	"files": `load("lib/part.star", "part", "LIMIT")

def main():
    x = 0
    for i in range(LIMIT): # from
        x = part(x, i)
        y = [part(z, i) for z in range(2)]
    run.log(x = x)
`,
	"two optimizers": `def main():
    a, b = tensor.ones(2), tensor.ones(2)
    a.requires_grad, b.requires_grad = True, True
    one, two = optim.sgd([a], lr = 0.1), optim.adamw([b], lr = 0.1)
    for step in range(3): # from
        (a * b).sum().backward()
        one.step()
        c = a.detach().clone()
        two.step()
        one.zero_grad()
        two.zero_grad()
    run.log(a = a.sum().item())
`,
	"ddp": `def main():
    model = dist.ddp(nn.linear(3, 1))
    opt = optim.sgd(model.parameters(), lr = 0.1)
    for step in range(3): # from
        x = tensor.full([2, 3], float(dist.rank() + step))
        loss = model(x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        m = dist.average_metrics({"loss": loss.item()})
    run.log(m)
`,
}

// Values shown in the past are those of that moment: going back statement by statement gives what was there on the way forward.
func TestHostile(t *testing.T) {
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, src, 2)
			o.Threads = 2
			lib := filepath.Join(filepath.Dir(o.Recipe), "lib")
			err := os.Mkdir(lib, 0o755)
			if err == nil {
				err = os.WriteFile(filepath.Join(lib, "part.star"), []byte("LIMIT = 3\n\ndef part(x, i):\n    if i % 2:\n        y = x + i\n    else:\n        y = x * 2 + 1\n    return y\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, forward := range []string{"next", "step"} {
				forwardAndBack(t, o, src, forward)
				o.Home = t.TempDir()
			}
		})
	}
}

// forwardAndBack steps forward from a recipe's line "# from" on, and back again.
func forwardAndBack(t *testing.T, o run.Options, src, forward string) {
	s := launch(t, o).start()
	before, _, _ := strings.Cut(src, "# from")
	line, last, compared := strings.Count(before, "\n")+1, strings.Count(src, "\n"), 0
	s.do(fmt.Sprintf("break %d", line), "continue", "delete")
	if s.lines()[0] == 0 {
		t.Fatal(s.do("where"))
	}
	// seen takes what each rank has, by its moment.
	seen := func(see func(rank int, at engine.Moment, has string)) {
		t.Helper()
		_ = s.Settle(s.context(), nil)
		for rank, r := range s.Now().Ranks {
			if r.State == Held {
				at := r.Stop.Moment
				at.Locals = 0
				s.do(fmt.Sprintf("rank %d", rank))
				see(rank, at, fmt.Sprintf("line %d of %s\n%s", s.lines()[rank], r.Stop.Frames[0].Func, s.do("locals")))
			}
		}
		s.do("rank 0")
	}
	past := []map[engine.Moment]string{{}, {}}
	note := func(rank int, at engine.Moment, has string) { past[rank][at] = has }
	seen(note)
	first := s.Now().Ranks[0].Stop.Moment
	for range 9 {
		if lines := s.lines(); lines[0] == last || lines[1] == last {
			break
		}
		s.do(forward)
		seen(note)
	}
	s.do("pause")
	for range 12 {
		s.do("back")
		seen(func(rank int, at engine.Moment, has string) {
			if want, is := past[rank][at]; is {
				compared++
				if has != want {
					t.Errorf("rank %d has at %v in the past\n%s\nand had\n%s", rank, at, has, want)
				}
			}
		})
		if s.Now().Ranks[0].Stop.Moment.Same(first) {
			break
		}
	}
	if compared < 6 {
		t.Errorf("only %d moments were compared", compared)
	}
	s.finish()
	s.same()
}
