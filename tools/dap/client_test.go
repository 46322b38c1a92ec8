package dap

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"drun/internal/programs"
	"drun/internal/testlimit"
)

const client = "../../bin/dap"

// recipes are files for the scenarios; those of docs/debugging.md are added.
var recipes = map[string]string{
	"train.star": `"""Trains."""
load("lib/model.star", "forward")
params = run.params(steps = 3)

def main():
    w = tensor.ones(4)
    w.requires_grad = True
    opt = optim.sgd([w], lr = 0.1)
    total = 0
    kept = {"losses": []}
    def keep(x):
        kept["losses"].append(x)
    for step in range(params.steps):
        x = tensor.linspace(0.0, 1.0, 4) + step + dist.rank()
        # The loss is that of a loaded
        # file.
        loss = forward(w, x)
        loss.backward()
        dist.sync_grad([w])
        opt.step()
        opt.zero_grad()
        total += loss.item()
        keep(loss.item())
        run.log(loss = loss.item())
    run.log(total = total)
`,
	"lib/model.star": `# A model.

def forward(w, x):
    h = x * w
    return (
        h * h
    ).sum()
`,
	"long.star": `def main():
    w = tensor.ones(4)
    n = 0
    for step in range(150000):
        w.mul_(1.0001 if step % 2 else 0.9999)
        dist.all_reduce(w, op = "avg")
        if step == 1000:
            print("going")
        if step % 1000 == 0:
            run.log(step = step, w = w.sum().item())
        if run.should_stop():
            break
`,
}

// scenario runs one of testdata/client.js in a folder, and returns it.
func scenario(t *testing.T, name, dir string) {
	t.Helper()
	script, err := filepath.Abs("testdata/client.js")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := filepath.Abs(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Time(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script, name)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CLIENT="+installed, "DRUN="+program(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func program(t *testing.T) string {
	t.Helper()
	file, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	file, err = filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// folder has the recipes; it skips the test where the client is not installed.
func folder(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(client + "/node_modules/@vscode/debugadapter-testsupport"); err != nil {
		t.Skip("VS Code's client for tests is not installed: make bin/dap")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: apt-get install nodejs npm")
	}
	dir := t.TempDir()
	page, err := os.ReadFile("../../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```python\n([^`]*)```\n\n```sh\ndrun (?:run|debug) (\\w+\\.star)").FindAllStringSubmatch(string(page), -1) {
		files[m[2]] = m[1]
	}
	for name, text := range recipes {
		files[name] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// drun runs a command in a folder.
func drun(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func digests(t *testing.T, dir, run string) string {
	t.Helper()
	out, err := drun(t, dir, "metrics", run, "--csv")
	if err != nil {
		t.Fatal(out)
	}
	return regexp.MustCompile(`,[0-9T:.+Z-]{20,}`).ReplaceAllString(out, "")
}

// A run that was stepped, and gone back in, has the bits of an undisturbed one.
func TestSteps(t *testing.T) {
	dir := folder(t)
	scenario(t, "steps", dir)
	if out, err := drun(t, dir, "run", "train.star", "-n", "2", "-p", "steps=4"); err != nil {
		t.Fatal(out)
	}
	if a, b := digests(t, dir, "1"), digests(t, dir, "2"); a != b || !strings.Contains(a, "total") {
		t.Errorf("the debugged run has\n%sand the other\n%s", a, b)
	}
	out, err := drun(t, dir, "replay", "1")
	if err != nil || !strings.Contains(out, "the same bits") {
		t.Errorf("a replay of the debugged run: %s", out)
	}
}

// The hunts of docs/debugging.md.
func TestHunts(t *testing.T) {
	for _, name := range []string{"deadlock", "nan", "nanstop", "drift", "fails", "failure"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, name, folder(t))
		})
	}
}

// A run that is attached to goes on with the same bits.
func TestAttach(t *testing.T) {
	for _, name := range []string{"attach", "changed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			running := exec.CommandContext(t.Context(), program(t), "run", "long.star", "-n", "2")
			running.Dir = dir
			out, err := running.StdoutPipe()
			if err == nil {
				err = running.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			go func() { _, _ = io.Copy(io.Discard, out) }()
			scenario(t, name, dir)
			if err := running.Wait(); err != nil {
				t.Fatal(err)
			}
			if out, err := drun(t, dir, "replay", "last"); err != nil || !strings.Contains(out, "the same bits") {
				t.Errorf("a replay of the run: %s", out)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for name, want := range map[string]string{"dies": "killed by signal 9", "away": "interrupted", "entry": "interrupted"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			scenario(t, name, dir)
			if out, err := drun(t, dir, "show", "last"); err != nil || !strings.Contains(out, want) {
				t.Errorf("the run is not %s: %s", want, out)
			}
		})
	}
}
