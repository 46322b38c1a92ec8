package ui

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// serve serves the history beneath a home, and returns an address that lets a browser in.
func serve(t *testing.T, home string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(home)
	ctx, stop := context.WithCancel(context.Background())
	addresses := make(chan string, 10)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, "127.0.0.1", func(a string) { addresses <- a }) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return <-addresses
}

// page is a tab of a browser. Whatever its scripts complain of fails the test.
type page struct {
	*testing.T
	ctx     context.Context
	base    string
	foreign bool // it is not ours: what its scripts complain of is their matter
}

// browse opens an address in a headless Chromium, or skips the test where there is none.
func browse(t *testing.T, address string) *page {
	t.Helper()
	return browseFor(t, address, 90*time.Second)
}

// browseFor does so for a test that takes at most so long.
func browseFor(t *testing.T, address string, most time.Duration) *page {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes long")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("Chromium is not installed: apt-get install chromium fonts-dejavu-core")
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.UserDataDir(t.TempDir()))...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, most)
	t.Cleanup(cancel)
	p := &page{T: t, base: address[:strings.LastIndex(address, "/")]}
	p.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		if p.foreign {
			return
		}
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("a script: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				t.Errorf("the console: %+v", e.Args[0])
			}
		}
	}))
	t.Cleanup(cancel)
	p.do(chromedp.Navigate(address))
	return p
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		body, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		p.Fatalf("%v\n%.3000s", err, body)
	}
}

// open goes to another page of the same server.
func (p *page) open(path string) { p.Helper(); p.do(chromedp.Navigate(p.base + path)) }

// eval is the value of an expression in a page.
func eval[T any](p *page, expression string, opts ...chromedp.EvaluateOption) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, opts...))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// run runs a script in the page.
func (p *page) run(script string) { p.Helper(); eval[chromedp.Void](p, "{"+script+"}") }

// until waits until an expression in the page is true.
func (p *page) until(expression string) {
	p.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		yes, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && yes {
			return
		}
		if time.Now().After(deadline) {
			body, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			p.shot("failed")
			p.Fatalf("never: %s (%v)\n%.3000s", expression, err, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// shot keeps pictures of the page, light and dark, in the folder $DRUN_TEST_PICTURES.
func (p *page) shot(name string) {
	p.Helper()
	dir := os.Getenv("DRUN_TEST_PICTURES")
	if dir == "" {
		return
	}
	for suffix, scheme := range map[string]string{"-dark": "dark", "": "light"} {
		params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
			p.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // charts are drawn again
		png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			p.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+suffix+".png"), png, 0o600); err != nil {
			p.Fatal(err)
		}
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{}); err != nil {
		p.Fatal(err)
	}
}

// text is what the elements of a selector show.
func (p *page) text(selector string) string {
	p.Helper()
	return eval[string](p, fmt.Sprintf("[...document.querySelectorAll(%q)].map(e => e.innerText).join('\\n')", selector))
}
