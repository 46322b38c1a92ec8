package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/sourcegraph/jsonrpc2"
	"go.uber.org/goleak"
)

// An editor speaks with a server as editors do.
type editor struct {
	*testing.T
	conn        *jsonrpc2.Conn
	diagnostics chan published
	ended       chan bool
}

type published struct {
	URI         string       `json:"uri"`
	Diagnostics []Diagnostic `json:"diagnostics"`
}

func newEditor(t *testing.T) *editor {
	t.Helper()
	mine, theirs := net.Pipe()
	e := &editor{T: t, diagnostics: make(chan published, 100), ended: make(chan bool, 1)}
	go func() { e.ended <- New("test", os.Stderr).Serve(context.Background(), theirs) }()
	e.conn = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewBufferedStream(mine, jsonrpc2.VSCodeObjectCodec{}),
		jsonrpc2.HandlerWithError(func(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) (any, error) {
			var p published
			if req.Method == "textDocument/publishDiagnostics" && json.Unmarshal(*req.Params, &p) == nil {
				e.diagnostics <- p
			}
			return nil, nil
		}))
	var hello struct {
		Capabilities map[string]any `json:"capabilities"`
	}
	e.call("initialize", map[string]any{"processId": nil, "rootUri": nil, "capabilities": map[string]any{}}, &hello)
	if hello.Capabilities["hoverProvider"] != true || hello.Capabilities["positionEncoding"] != "utf-16" {
		t.Fatalf("capabilities %v", hello.Capabilities)
	}
	e.tell("initialized", map[string]any{})
	return e
}

func (e *editor) call(method string, params, result any) {
	e.Helper()
	ctx, stop := context.WithTimeout(e.Context(), 20*time.Second)
	defer stop()
	if err := e.conn.Call(ctx, method, params, result); err != nil {
		e.Fatalf("%s: %v", method, err)
	}
}

func (e *editor) tell(method string, params any) {
	e.Helper()
	if err := e.conn.Notify(e.Context(), method, params); err != nil {
		e.Fatalf("%s: %v", method, err)
	}
}

func (e *editor) open(path, text string) string {
	e.tell("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uriOf(path), "languageId": "starlark", "version": 1, "text": text}})
	return uriOf(path)
}

func (e *editor) change(uri, text string) {
	e.tell("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": uri, "version": 2}, "contentChanges": []any{map[string]any{"text": text}}})
}

// problems waits for the diagnostics of a document that satisfy.
func (e *editor) problems(uri string, ok func([]Diagnostic) bool) {
	e.Helper()
	last := []Diagnostic{}
	for limit := time.After(20 * time.Second); ; {
		select {
		case p := <-e.diagnostics:
			if p.URI == uri {
				if last = p.Diagnostics; ok(last) {
					return
				}
			}
		case <-limit:
			e.Fatalf("the last diagnostics of %s: %+v", uri, last)
		}
	}
}

func (e *editor) end() {
	e.Helper()
	e.call("shutdown", nil, nil)
	e.tell("exit", nil)
	if !<-e.ended {
		e.Error("the server did not end well")
	}
	e.conn.Close()
}

// place is where | stands in a text, which is returned without it.
func place(text string) (string, Position) {
	before, _, _ := strings.Cut(text, "|")
	lines := strings.Split(before, "\n")
	last := lines[len(lines)-1]
	units := 0
	for _, r := range last {
		units++
		if r > 0xffff {
			units++
		}
	}
	return strings.Replace(text, "|", "", 1), Position{len(lines) - 1, units}
}

func ask(uri string, p Position) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": uri}, "position": p}
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEditor(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := write(t, map[string]string{
		"drun.toml":     "",
		"lib/nets.star": "WIDTH = 3\n\ndef mlp(widths, act = \"relu\"):\n    \"\"\"Layers of these widths.\"\"\"\n    return widths\n",
	})
	e := newEditor(t)

	// Diagnostics: of names, of syntax, of a loaded file that is open and not saved; gone once it is right.
	main := filepath.Join(dir, "exp", "train.star")
	uri := e.open(main, "load(\"//lib/nets.star\", \"mlp\")\n\ndef main():\n    x = '😀'; tensr.zeros(3)\n    mlp(1, 2, 3)\n")
	e.problems(uri, func(list []Diagnostic) bool {
		return len(list) == 2 && list[0].Range == Range{Position{3, 14}, Position{3, 19}} && strings.Contains(list[0].Message, "did you mean tensor?") &&
			list[0].Severity == 1 && strings.Contains(list[1].Message, "mlp")
	})
	good := "load(\"//lib/nets.star\", \"mlp\")\n\ndef main():\n    if dist.rank() == 0:\n        dist.barrier()\n    mlp([1])\n"
	e.change(uri, good)
	e.problems(uri, func(list []Diagnostic) bool { return len(list) == 1 && list[0].Severity == 2 })
	lib := e.open(filepath.Join(dir, "lib", "nets.star"), "def mlp():\n    pass\n")
	e.problems(uri, func(list []Diagnostic) bool { return len(list) == 2 })
	e.problems(lib, func(list []Diagnostic) bool { return len(list) == 0 })
	e.tell("textDocument/didClose", map[string]any{"textDocument": map[string]any{"uri": lib}})
	e.change(uri, "def main(:\n")
	e.problems(uri, func(list []Diagnostic) bool { return len(list) == 1 && list[0].Range.Start == Position{0, 9} })

	// Completion.
	for _, c := range []struct{ text, has, not string }{
		{"def main():\n    tensor.ze|", "zeros", "ones"},
		{"def main():\n    x = tensor.zeros(3)\n    x.requires_gr|", "requires_grad", "zeros"},
		{"def main():\n    m = nn.linear(2, 3)\n    m.par|", "parameters", "partition"},
		{"def main():\n    m = nn.linear(2, 3, bi|", "bias", "bytes"},
		{"p = run.params(lr = 0.1, batch = 3)\ndef main():\n    p.|", "batch", "zeros"},
		{"load(\"//lib/nets.star\", \"mlp\")\ndef main():\n    ml|\n", "mlp", "map"},
		{"def main():\n    some_name = 3\n    some|", "some_name", "sorted"},
		{"def main():\n    wh|", "while", "where"},
		{"def main():\n    x = \"tensor.|", "", "zeros"},
	} {
		text, at := place(c.text)
		e.change(uri, text)
		var items []Item
		e.call("textDocument/completion", ask(uri, at), &items)
		found := map[string]bool{}
		for _, i := range items {
			found[i.Label] = true
		}
		if c.has != "" && !found[c.has] || found[c.not] {
			t.Errorf("%q: %v", c.text, items)
		}
	}

	// Signatures: of builtins, methods, functions of the recipe and of what it loads; and which parameter is given.
	for _, c := range []struct{ text, label, active string }{
		{"def main():\n    nn.linear(|", "nn.linear(i: int, o: int, bias: bool = True) -> Module", "i: int"},
		{"def main():\n    nn.linear(2, |)\n", "nn.linear(i: int, o: int, bias: bool = True) -> Module", "o: int"},
		{"def main():\n    nn.linear(2,\n        3, # of (\n        bias = |", "nn.linear(", "bias: bool = True"},
		{"def main():\n    nn.linear([1, (2, 3)][0], \",(\", |)\n", "nn.linear(", "bias: bool = True"},
		{"def main():\n    nn.linear(1, 2, True, |)\n", "nn.linear(", ""},
		{"def main():\n    nn.linear(1, bios = |)\n", "nn.linear(", ""},
		{"def main():\n    x = tensor.zeros(3)\n    x.argmax(|", "Tensor.argmax(", "dim: int = None"},
		{"def main():\n    print(dist.all_reduce(1, |))\n", "dist.all_reduce(", "op: string | ReduceOp = \"sum\""},
		{"load(\"//lib/nets.star\", \"mlp\")\ndef main():\n    mlp([1], |)\n", "mlp(widths, act = \"relu\")", "act = \"relu\""},
		{"def f(x, é = 1,\n      *rest, scale = (1, 2)):\n    pass\ndef main():\n    f(1, 2, 3, |)\n", "f(x, é = 1, *rest, scale = (1, 2))", "*rest"},
		{"def f(x, s = \"😀\", *, scale = (1, 2), **more):\n    pass\ndef main():\n    f(1, scale = |", "f(x, s = \"😀\", *, scale = (1, 2), **more)", "scale = (1, 2)"},
		{"def f(x, *, scale = (1, 2), **more):\n    pass\ndef main():\n    f(1, other = |", "f(x, *, scale = (1, 2), **more)", "**more"},
		{"def f(x, *, scale = (1, 2), **more):\n    pass\ndef main():\n    f(1, |", "f(x, *, scale = (1, 2), **more)", ""},
		{"def f(scale):\n    pass\ndef main():\n    f(scale = (3, |", "", ""},
		{"x = (1, \ndef g(a):\n    pass\ndef main():\n    g(|", "g(a)", "a"},
		{"x = (1, \ndef main():\n    y = |", "", ""},
		{"def main(|", "", ""},
		{"def main():\n    len = lambda x: x\n    len(|)\n", "", ""},
		{"def main():\n    nn.linear(2, 3)|\n", "", ""},
	} {
		text, at := place(c.text)
		e.change(uri, text)
		var help struct {
			Signatures []struct {
				Label         string
				Documentation struct{ Value string }
				Parameters    []struct{ Label [2]int }
			}
			ActiveParameter int
		}
		e.call("textDocument/signatureHelp", ask(uri, at), &help)
		if c.label == "" || len(help.Signatures) != 1 {
			if c.label != "" || len(help.Signatures) > 0 {
				t.Errorf("%q: %+v", c.text, help)
			}
			continue
		}
		got, active := help.Signatures[0], ""
		if i := help.ActiveParameter; i < len(got.Parameters) {
			label := utf16.Encode([]rune(got.Label))
			active = string(utf16.Decode(label[got.Parameters[i].Label[0]:got.Parameters[i].Label[1]]))
		}
		if !strings.HasPrefix(got.Label, c.label) || c.active != active {
			t.Errorf("%q: %q of %+v", c.text, active, help)
		}
		if strings.HasPrefix(c.label, "mlp(") && got.Documentation.Value != "Layers of these widths." {
			t.Errorf("%q: %+v", c.text, help)
		}
	}

	// Hover.
	for _, c := range []struct{ text, want string }{
		{"def main():\n    dist.all_re|duce(1)\n", "dist.all_reduce("},
		{"def main():\n    x = tensor.zeros(3)\n    x.arg|max()\n", "Tensor.argmax("},
		{"load(\"//lib/nets.star\", \"mlp\")\ndef main():\n    ml|p([1])\n", "def mlp(widths, act = \"relu\")\n```\n\nLayers of these widths."},
		{"def main():\n    le|n([])\n", "len(x: any) -> int"},
		{"def main():\n    x = nn.conv2d(3, 8, 3)(tensor.zeros(4, 3, 10, 12)).flatten(2)\n    print(|x)\n", "(4, 8, 80) float32"},
		{"def f(|x):\n    return x\ndef main():\n    f(tensor.zeros(2, 3))\n    f(tensor.zeros(4, 3))\n", "(?, 3) float32"},
		{"def f(|x):\n    return x\ndef main():\n    f(data.csv(\"a.csv\")[0])\n    f(tensor.zeros(4, 3))\n", "def f(x)\n```\n\n"},
		{"def main():\n    pass  |\n", ""},
	} {
		text, at := place(c.text)
		e.change(uri, text)
		var hover struct {
			Contents struct{ Value string }
		}
		e.call("textDocument/hover", ask(uri, at), &hover)
		if !strings.Contains(hover.Contents.Value, c.want) || c.want == "" && hover.Contents.Value != "" {
			t.Errorf("%q: %q", c.text, hover.Contents.Value)
		}
	}

	// Definition: here, over load, and of a file.
	nets := uriOf(filepath.Join(dir, "lib", "nets.star"))
	for _, c := range []struct {
		text string
		want Location
	}{
		{"def f(x):\n    return x\ndef main():\n    '😀' + f|(1)\n", Location{uri, Range{Position{0, 4}, Position{0, 5}}}},
		{"def f(x):\n    return |x\n", Location{uri, Range{Position{0, 6}, Position{0, 7}}}},
		{"load(\"//lib/nets.star\", net = \"mlp\")\ndef main():\n    n|et([1])\n", Location{nets, Range{Position{2, 4}, Position{2, 7}}}},
		{"load(\"//lib/nets.star\", \"W|IDTH\")\n", Location{nets, Range{Position{0, 0}, Position{0, 5}}}},
		{"load(\"//lib/ne|ts.star\", \"mlp\")\n", Location{URI: nets}},
		{"def main():\n    tensor.zeros|(1)\n", Location{}},
	} {
		text, at := place(c.text)
		e.change(uri, text)
		var got Location
		e.call("textDocument/definition", ask(uri, at), &got)
		if got != c.want {
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
	}

	// Formatting.
	e.change(uri, "def main( ):\n  print('😀')")
	var edits []struct {
		Range   Range
		NewText string
	}
	e.call("textDocument/formatting", map[string]any{"textDocument": map[string]any{"uri": uri}, "options": map[string]any{}}, &edits)
	if len(edits) != 1 || edits[0].NewText != "def main():\n    print(\"😀\")\n" || edits[0].Range != (Range{End: Position{1, 13}}) {
		t.Errorf("edits %+v", edits)
	}

	// What is wrong in a message is its error, and the server goes on.
	for method, params := range map[string]any{"textDocument/hover": ask("file:///none.star", Position{}), "textDocument/completion": 3, "no/method": nil, "textDocument/didOpen": map[string]any{}} {
		if err := e.conn.Call(t.Context(), method, params, nil); err == nil {
			t.Errorf("%s: no error", method)
		}
	}
	e.call("textDocument/hover", ask(uri, Position{-5, 1 << 30}), nil)
	e.end()
}

// large is a recipe of so many lines, of what recipes consist of.
func large(lines int) string {
	var b strings.Builder
	b.WriteString("params = run.params(lr = 0.1)\n\n")
	n := 2
	for i := 0; n < lines-20; i++ {
		fmt.Fprintf(&b, `def step%d(model, opt, x, y):
    """One step."""
    total = 0.0
    for k in range(3):
        loss = nn.cross_entropy(model(x), y)
        if k %% 2 == 0 and loss.item() > 0.5:
            loss = loss * 0.5
        loss.backward()
        dist.sync_grad(model.parameters())
        opt.step()
        opt.zero_grad()
        total += loss.item()
    values = [v * 2 for v in range(10) if v > 3]
    return total / len(values)

`, i)
		n += 15
	}
	b.WriteString("def main():\n    model = nn.sequential(nn.linear(8, 8), nn.relu(), nn.linear(8, 2))\n    opt = optim.sgd(model.parameters(), lr = params.lr)\n    x, y = tensor.randn(4, 8), tensor.zeros(4, dtype = \"int64\")\n")
	for i := 0; i*15 < lines-40; i++ {
		fmt.Fprintf(&b, "    run.log(loss = step%d(model, opt, x, y))\n", i)
	}
	return b.String()
}

func BenchmarkDiagnostics(b *testing.B) {
	text := large(1000)
	s := New("test", io.Discard)
	d := newDocument("file:///tmp/large.star", text)
	for b.Loop() {
		if list := s.diagnose(d); len(list) != 0 {
			b.Fatalf("%+v", list)
		}
	}
	b.ReportMetric(float64(strings.Count(text, "\n")), "lines")
}

// No bytes end the server, and no document and place make it panic.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{"load(\"//a\", \"b\")\nb.", "def f(x): return x\nf(", "x = run.params(a = 1)\nx.a", "tensor.zeros(", "for 😀 in x:\n\ttensor."} {
		f.Add(text, 0, 3)
		f.Add(text, 1, 2)
	}
	var logged bytes.Buffer
	s := New("test", &logged)
	f.Fuzz(func(t *testing.T, text string, line, character int) {
		d := newDocument("file:///tmp/fuzz/x.star", text)
		p := Position{line, character}
		s.completion(d, p)
		s.hover(d, p)
		s.signatureHelp(d, p)
		s.definition(d, p)
		s.diagnose(d)
		if logged.Len() > 0 {
			t.Fatal(logged.String())
		}
	})
}

func TestAnyBytes(t *testing.T) {
	for _, sent := range []string{"", "Content-Length: 5\r\n\r\n{}", "Content-Length: 99999999999\r\n\r\n{", "Content-Length: -1\r\n\r\n", "\x00\xff\r\n\r\n", "Content-Length: 2\r\n\r\n[]Content-Length: 4\r\n\r\nnull"} {
		mine, theirs := net.Pipe()
		ended := make(chan bool, 1)
		go func() { ended <- New("test", io.Discard).Serve(t.Context(), theirs) }()
		go io.Copy(io.Discard, mine)
		_, _ = io.WriteString(mine, sent)
		mine.Close()
		select {
		case clean := <-ended:
			if clean {
				t.Errorf("%q: a clean end", sent)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%q: the server goes on", sent)
		}
	}
}
