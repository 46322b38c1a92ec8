package main

import (
	"context"
	"debug/elf"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"drun/internal/try"
)

// glibc is the newest version of the C library that a program may need: RHEL 8's, and what manylinux_2_28 promises.
const glibc = "2.28"

// machines is what compilers and Python call Go's processors.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// build makes the programs for one processor.
type build struct {
	release
	arch, machine string
	folder        string // of what is not packed as it is
}

func newBuild(r release, arch string) (build, error) {
	machine := machines[arch]
	if machine == "" {
		return build{}, fmt.Errorf("no processor %q", arch)
	}
	b := build{r, arch, machine, filepath.Join(r.out, arch)}
	return b, os.MkdirAll(b.folder, 0o755)
}

// compiler is zig's for C or C++, with the headers and symbols of that glibc.
func (b build) compiler(language string) []string {
	return []string{filepath.Join(b.zig, "zig"), language, "-target", b.machine + "-linux-gnu." + glibc}
}

// run runs a command with the environment of a build for the processor.
func (b build) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+b.arch, "CGO_ENABLED=1",
		"CC="+strings.Join(b.compiler("cc"), " "), "CXX="+strings.Join(b.compiler("c++"), " "),
		"CGO_CXXFLAGS=-O2 -I"+b.gloo+" -I"+b.folder)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return nil
}

// programs compiles drun and its plugins. The plugin mpi is not among them: it is built for the Open MPI of a site.
func (b build) programs(ctx context.Context) (files []file, err error) {
	defer try.Caught(&err)
	try.Ok(b.library(ctx))
	for _, p := range []struct{ pkg, in, tags string }{
		{"./cmd/drun", "bin", ""},
		{"./cmd/drun-plugin-host", "bin", ""},
		{"./plugins/nccl/drun-backend-nccl", "lib/drun/plugins", ""},
		{"./plugins/gloo/drun-backend-gloo", "lib/drun/plugins", "gloo"},
	} {
		f := file{name: filepath.Join(p.in, filepath.Base(p.pkg)), mode: 0o755}
		f.path = filepath.Join(b.folder, f.name)
		try.Ok(b.run(ctx, "go", "build", "-ldflags=-s -w -extldflags=-L"+b.folder, "-tags", p.tags, "-o", f.path, p.pkg))
		try.Ok(checkSymbols(f.path))
		files = append(files, f)
	}
	return files, nil
}

// notBuilt are the sources of Gloo for what its plugin does not use: other devices, stores and transports.
var notBuilt = regexp.MustCompile(`/(cuda|hip|win|redis|tls|.*_test)[^/]*$`)

// library compiles Gloo to a static library.
func (b build) library(ctx context.Context) (err error) {
	defer try.Caught(&err)
	archive := filepath.Join(b.folder, "libgloo.a")
	if _, err := os.Stat(archive); err == nil {
		return nil
	}
	config := string(try.To(os.ReadFile(filepath.Join(b.gloo, "gloo/config.h.in"))))
	cmake := string(try.To(os.ReadFile(filepath.Join(b.gloo, "CMakeLists.txt"))))
	for _, part := range regexp.MustCompile(`set\((GLOO_VERSION_\w+) (\d+)\)`).FindAllStringSubmatch(cmake, -1) {
		config = strings.ReplaceAll(config, "@"+part[1]+"@", part[2])
	}
	config = regexp.MustCompile(`#cmakedefine01 (\w+)`).ReplaceAllString(config, "#define $1 0")
	config = strings.Replace(config, "GLOO_HAVE_TRANSPORT_TCP 0", "GLOO_HAVE_TRANSPORT_TCP 1", 1)
	try.Ok(os.MkdirAll(filepath.Join(b.folder, "gloo"), 0o755))
	try.Ok(os.WriteFile(filepath.Join(b.folder, "gloo/config.h"), []byte(config), 0o644))
	var objects []string
	for _, dir := range []string{"", "common", "rendezvous", "transport", "transport/tcp"} {
		for _, source := range try.To(filepath.Glob(filepath.Join(b.gloo, "gloo", dir, "*.cc"))) {
			if notBuilt.MatchString(source) {
				continue
			}
			object := filepath.Join(b.folder, "gloo", strings.ReplaceAll(dir+"/"+filepath.Base(source), "/", "_")+".o")
			arguments := append(b.compiler("c++"), "-std=c++17", "-O2", "-w", "-fPIC", "-I"+b.gloo, "-I"+b.folder, "-c", source, "-o", object)
			try.Ok(b.run(ctx, arguments[0], arguments[1:]...))
			objects = append(objects, object)
		}
	}
	return b.run(ctx, filepath.Join(b.zig, "zig"), append([]string{"ar", "rcs", archive}, objects...)...)
}

// bundled are the libraries that every Linux with glibc has; a program may need no other.
var bundled = regexp.MustCompile(`^(lib(c|m|dl|rt|pthread|resolv)\.so\.\d|ld-linux.*)$`)

// checkSymbols returns an error if the program would not start on a system with that glibc.
func checkSymbols(path string) (err error) {
	defer try.Caught(&err)
	program := try.To(elf.Open(path))
	defer program.Close()
	for _, library := range try.To(program.ImportedLibraries()) {
		if !bundled.MatchString(library) {
			return fmt.Errorf("%s needs %s", path, library)
		}
	}
	for _, s := range try.To(program.ImportedSymbols()) {
		if v, is := strings.CutPrefix(s.Version, "GLIBC_"); s.Version != "" && (!is || !version.IsValid("go"+v) || version.Compare("go"+v, "go"+glibc) > 0) {
			return fmt.Errorf("%s needs %s of %s", path, s.Name, s.Version)
		}
	}
	return nil
}

// checkBits runs the tests of the kernels' bits, compiled as the packed programs are: another compiler made them.
func (b build) checkBits(ctx context.Context) error {
	args := []string{"test", "-vet=off", "-ldflags=-s -w", "-run", b.golden}
	if b.arch != runtime.GOARCH {
		args = slices.Insert(args, 1, "-exec", "qemu-"+b.machine+" -L /usr/"+b.machine+"-linux-gnu")
	}
	return b.run(ctx, "go", append(args, "./kernel", "./tensor/optim")...)
}
