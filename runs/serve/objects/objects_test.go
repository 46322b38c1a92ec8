package objects

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"drun/internal/exit"
	"drun/internal/s3test"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func each(t *testing.T, fn func(t *testing.T, s Store)) {
	t.Run("folder", func(t *testing.T) { fn(t, &Folder{filepath.Join(t.TempDir(), "artifacts")}) })
	t.Run("bucket", func(t *testing.T) {
		s3test.Start(t)
		b, err := OpenBucket(t.Context(), "s3://weights/team/a")
		ok(t, err)
		fn(t, b)
	})
}

func read(t *testing.T, s Store, name string) (string, error) {
	t.Helper()
	content, size, err := s.Get(t.Context(), name)
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err == nil && int64(len(text)) != size {
		t.Errorf("%s has %d bytes, not %d", name, len(text), size)
	}
	return string(text), err
}

func TestStore(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		large := strings.Repeat("0123456789abcdef", 5<<20/4) // more than one part
		for name, content := range map[string]string{"a/b/c.txt": "one", "a/b/d": "", "a/e": large, "f": "two", "a/b/c.txt ä+%": "three"} {
			ok(t, s.Put(ctx, name, strings.NewReader(content), int64(len(content))))
			if got, err := read(t, s, name); err != nil || got != content {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		ok(t, s.Put(ctx, "f", strings.NewReader("again"), -1))
		if got, err := read(t, s, "f"); err != nil || got != "again" {
			t.Errorf("f is %q, %v", got, err)
		}
		for folder, want := range map[string]string{"": "[{a true 0} {f false 5}]", "a": fmt.Sprintf("[{b true 0} {e false %d}]", len(large)), "a/b": "[{c.txt false 3} {c.txt ä+% false 5} {d false 0}]", "none": "[]", "f": "[]"} {
			list, err := s.List(ctx, folder)
			ok(t, err)
			for i := range list {
				if list[i].Dir {
					list[i].Size = 0
				} else if time.Since(list[i].Modified) > time.Hour {
					t.Errorf("%s was modified at %v", list[i].Name, list[i].Modified)
				}
				list[i].Modified = time.Time{}
			}
			if got := strings.ReplaceAll(fmt.Sprint(list), " 0001-01-01 00:00:00 +0000 UTC", ""); got != want {
				t.Errorf("%q has %s, want %s", folder, got, want)
			}
		}
		for _, name := range []string{"a", "a/none", "none"} {
			if _, err := read(t, s, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"", ".", "..", "a/../b", "/a", "a/", "a//b", "a\\b", "a\x00b", strings.Repeat("a", 300), temporary + "x", "\xff"} {
			if err := s.Put(ctx, name, strings.NewReader("x"), 1); exit.CodeOf(err) != exit.Usage {
				t.Errorf("put %q: %v", name, err)
			}
			if _, err := read(t, s, name); exit.CodeOf(err) != exit.Usage {
				t.Errorf("get %q: %v", name, err)
			}
			if err := s.Remove(ctx, name); exit.CodeOf(err) != exit.Usage {
				t.Errorf("remove %q: %v", name, err)
			}
		}
		ok(t, s.Remove(ctx, "a/b"))
		ok(t, s.Remove(ctx, "none"))
		if _, err := read(t, s, "a/b/d"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it was not removed: %v", err)
		}
		if _, err := read(t, s, "a/e"); err != nil {
			t.Errorf("too much was removed: %v", err)
		}
		// A content that ends too soon leaves nothing.
		cut := io.MultiReader(strings.NewReader("half"), &failing{})
		if err := s.Put(ctx, "cut", cut, 8); err == nil {
			t.Error("half a file was accepted")
		}
		if _, err := read(t, s, "cut"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("half a file is there: %v", err)
		}
	})
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A link that somebody puts into the folder leads nowhere.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	f := &Folder{filepath.Join(dir, "artifacts")}
	ok(t, f.Put(t.Context(), "a/b", strings.NewReader("x"), 1))
	ok(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600))
	ok(t, os.Symlink(dir, filepath.Join(f.Path, "a", "out")))
	ok(t, os.Symlink(filepath.Join(dir, "secret"), filepath.Join(f.Path, "a", "file")))
	for _, name := range []string{"a/out/secret", "a/file"} {
		if got, err := read(t, f, name); err == nil {
			t.Errorf("%s is %q", name, got)
		}
	}
	if err := f.Put(t.Context(), "a/out/new", strings.NewReader("x"), 1); err == nil {
		t.Error("a file was written through a link")
	}
	ok(t, f.Remove(t.Context(), "a"))
	if _, err := os.Stat(filepath.Join(dir, "secret")); err != nil {
		t.Error(err)
	}
}

// between puts a proxy before the S3 server, in which requests fail for which fail is true: as it has answered them then.
func between(t *testing.T, address string, fail func(n int64, w http.ResponseWriter, r *http.Request) bool) *atomic.Int64 {
	t.Helper()
	n := &atomic.Int64{}
	to := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", address, r.In.Host // which is signed
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fail(n.Add(1), w, r) {
			to.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", proxy.URL)
	return n
}

// A server that fails for a moment is asked again; one that goes on failing is given up, with words.
func TestBucketFails(t *testing.T) {
	attempts = 3
	address := s3test.Start(t)
	broken, cut := func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		ok(t, err)
		conn.Close()
	}
	for name, fail := range map[string]func(http.ResponseWriter){"503": broken, "connections that end": cut} {
		t.Run(name, func(t *testing.T) {
			var failing atomic.Int64 // requests that will fail
			n := between(t, address, func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
				if failing.Add(-1) < 0 {
					return false
				}
				fail(w)
				return true
			})
			b, err := OpenBucket(t.Context(), "s3://weights/faults")
			ok(t, err)
			failing.Store(2)
			ok(t, b.Put(t.Context(), "a", strings.NewReader("content"), 7))
			failing.Store(2)
			if got, err := read(t, b, "a"); err != nil || got != "content" {
				t.Errorf("read %q, %v", got, err)
			}
			failing.Store(1 << 40)
			began := n.Load()
			err = b.Put(t.Context(), "a", strings.NewReader("content"), 7)
			if !errors.As(err, new(*Unavailable)) || exit.HintOf(err) == "" || !strings.Contains(err.Error(), "the bucket weights at http://") {
				t.Errorf("it says %v, hint %q", err, exit.HintOf(err))
			}
			if asked := n.Load() - began; asked < 2 || asked > int64(attempts) {
				t.Errorf("it was asked %d times", asked)
			}
			if _, err := b.List(t.Context(), ""); !errors.As(err, new(*Unavailable)) {
				t.Errorf("list: %v", err)
			}
			if _, err := read(t, b, "a"); !errors.As(err, new(*Unavailable)) {
				t.Errorf("get: %v", err)
			}
			if err := b.Remove(t.Context(), "a"); !errors.As(err, new(*Unavailable)) {
				t.Errorf("remove: %v", err)
			}
			failing.Store(0)
			if got, err := read(t, b, "a"); err != nil || got != "content" {
				t.Errorf("then it reads %q, %v", got, err)
			}
		})
	}
}

// What is wrong from the start is said then.
func TestOpenBucket(t *testing.T) {
	s3test.Start(t)
	for _, c := range []struct{ address, key, value, says, hint string }{
		{"s3://none", "", "", "there is no bucket none", "aws s3 mb"},
		{"s3://weights", "AWS_SECRET_ACCESS_KEY", "wrong", "weights at http", "credentials"},
		{"s3://weights", "AWS_ENDPOINT_URL_S3", "ftp://x", "AWS_ENDPOINT_URL", "want http"},
		{"weights", "", "", "no address of a bucket", "want s3://BUCKET"},
		{"s3://weights/../x", "", "", "no path of a file", ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			if c.key != "" {
				t.Setenv(c.key, c.value)
			}
			_, err := OpenBucket(t.Context(), c.address)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(exit.HintOf(err), c.hint) {
				t.Errorf("%s: %v, hint %q", c.address, err, exit.HintOf(err))
			}
		})
	}
}

// Chunks are kept by their sums, and those that nothing refers to can be listed with their age.
func TestChunks(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		c := &Chunks{t.Context(), s}
		sums := []string{strings.Repeat("a", 64), "ab" + strings.Repeat("c", 62)}
		for _, sum := range sums {
			ok(t, c.Put(sum, []byte(sum)))
		}
		if got, err := c.Get(sums[1]); err != nil || string(got) != sums[1] {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := c.Get(strings.Repeat("f", 64)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a chunk that is not there: %v", err)
		}
		if old, err := c.Before(time.Now().Add(time.Hour)); err != nil || fmt.Sprint(old) != fmt.Sprint(sums) {
			t.Errorf("there are %v, %v", old, err)
		}
		if old, err := c.Before(time.Now().Add(-time.Hour)); err != nil || len(old) != 0 {
			t.Errorf("older ones are %v, %v", old, err)
		}
		ok(t, c.Remove(sums[0]))
		if _, err := c.Get(sums[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a chunk that was removed: %v", err)
		}
	})
}
