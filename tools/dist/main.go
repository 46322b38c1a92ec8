// Command dist makes what users install: an archive, a Debian package and a wheel for Linux on each processor, with their
// contents, licences and checksums. `make dist` runs it from the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"drun/internal/try"
)

// release is what is made, for all processors.
type release struct {
	version string // as Python, Debian and SemVer order it
	made    time.Time
	out     string // the folder of the packages
	zig     string // the folder of PyPI's ziglang
	gloo    string // the folder of Gloo's source
	golden  string // the tests of the bits, as a regular expression
}

// packages are the names of what is made.
const packages = `drun[_\-]*`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var r release
	arches := flag.String("arch", "amd64,arm64", "the processors, with commas")
	flag.StringVar(&r.version, "version", "", "the version")
	seconds := flag.Int64("time", 0, "when the version was made, in seconds since 1970: the time of all packed files")
	flag.StringVar(&r.out, "out", "bin/dist", "the folder of the packages")
	flag.StringVar(&r.zig, "zig", "", "the folder of PyPI's ziglang")
	flag.StringVar(&r.gloo, "gloo", "", "the folder of Gloo's source")
	flag.StringVar(&r.golden, "golden", "", "the tests of the bits, as a regular expression")
	flag.Parse()
	r.made = time.Unix(*seconds, 0).UTC()
	if err := r.make(ctx, strings.Split(*arches, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (r release) make(ctx context.Context, arches []string) (err error) {
	defer try.Caught(&err)
	for _, dir := range []*string{&r.out, &r.zig, &r.gloo} {
		*dir = try.To(filepath.Abs(*dir))
	}
	old := try.To(filepath.Glob(filepath.Join(r.out, packages)))
	for _, file := range old {
		try.Ok(os.Remove(file))
	}
	for _, arch := range arches {
		b := try.To(newBuild(r, arch))
		fmt.Println("building for", arch)
		files := try.To(b.programs(ctx))
		fmt.Println("checking the bits on", arch)
		try.Ok(b.checkBits(ctx))
		files = append(files, try.To(b.documents(ctx, files))...)
		files = append(files, try.To(examples(ctx))...)
		for _, pack := range []func(build, []file) error{packArchive, packDebian, packWheel} {
			try.Ok(pack(b, files))
		}
	}
	return r.sums()
}

// sums writes SHA256SUMS, as sha256sum --check reads it.
func (r release) sums() (err error) {
	defer try.Caught(&err)
	var lines strings.Builder
	for _, path := range try.To(filepath.Glob(filepath.Join(r.out, packages))) {
		f := file{name: filepath.Base(path), path: path}
		sum := try.To(f.sum())
		fmt.Fprintf(&lines, "%x  %s\n", sum, f.name)
		fmt.Printf("%s  %d MB\n", path, try.To(os.Stat(path)).Size()/1e6)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(lines.String()), 0o644)
}
