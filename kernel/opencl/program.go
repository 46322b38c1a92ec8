package opencl

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"drun/internal/try"
	"drun/kernel"
	"drun/kernel/dtype"
)

//go:embed cl
var sources embed.FS

// kernelKey names a kernel: its file in cl/, its function, and what that is compiled for.
type kernelKey struct {
	file, name string
	op         int
	in, out    dtype.Type
	variant    int
	options    string
}

// kernel returns a kernel, which is compiled when it is first needed; options gives the compiler's definitions.
func (d *Device) kernel(key kernelKey, options func() string) C.cl_kernel {
	if k, ok := d.kernels[key]; ok {
		return k
	}
	d.prove(key.file)
	o := options()
	program, ok := d.built[[2]string{key.file, o}]
	if !ok {
		program = d.build(key.file, o)
		d.built[[2]string{key.file, o}] = program
	}
	name := C.CString(key.name)
	defer C.free(unsafe.Pointer(name))
	var code C.int
	k := C.drun_cl_kernel(program, name, &code)
	d.fail("making the kernel "+key.name+" of "+key.file, code)
	d.kernels[key] = k
	return k
}

// build returns a program: from the user's cache if it is there, else compiled and put there.
func (d *Device) build(file, options string) C.cl_program {
	if d.Exact {
		options += " -cl-fp32-correctly-rounded-divide-sqrt"
	}
	options += " -w"
	defer d.wait()()
	text := source(file)
	cached := d.cached(text, options)
	if binary := readCached(cached); binary != nil {
		if program, code, _ := d.compile(string(binary), true, options); code == 0 {
			return program
		}
	}
	program, code, log := d.compile(text, false, options)
	if code != 0 {
		if len(log) > 4000 {
			log = log[:4000] + "…"
		}
		try.Fail("%s (%s, driver %s) cannot compile %s with%s: %s\n%s", d.Device, d.Name, d.Driver, file, options, codeText(int(code)), log)
	}
	if cached == "" {
		return program
	}
	if size := C.drun_cl_binary(program, nil, 0); size > 0 {
		binary := make([]byte, size)
		if C.drun_cl_binary(program, (*C.uchar)(&binary[0]), size) == size {
			writeCached(cached, binary)
		}
	}
	return program
}

func (d *Device) compile(text string, binary bool, options string) (C.cl_program, C.int, string) {
	t, o := C.CString(text), C.CString(options)
	defer C.free(unsafe.Pointer(t))
	defer C.free(unsafe.Pointer(o))
	var code, isBinary C.int
	if binary {
		isBinary = 1
	}
	program := C.drun_cl_build(&d.open, t, C.size_t(len(text)), isBinary, o, &code)
	if code == 0 {
		return program, 0, ""
	}
	log := make([]byte, C.drun_cl_log(&d.open, program, nil, 0))
	if len(log) > 0 {
		C.drun_cl_log(&d.open, program, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log)))
	}
	C.drun_cl_release_program(program)
	return nil, code, strings.TrimRight(string(log), "\x00\n")
}

// source returns a file of cl/ with all that it includes in place: a device's compiler sees no folders.
func source(file string) string {
	seen := map[string]bool{}
	var text strings.Builder
	var add func(file string)
	add = func(file string) {
		raw, err := sources.ReadFile("cl/" + file)
		if text, ok := patched[file]; ok {
			raw = []byte(text)
		}
		if err != nil {
			raw = try.To(kernel.Sources.ReadFile(file))
		}
		if seen[file] && !repeated[file] {
			return
		}
		seen[file] = true
		for line := range strings.Lines(string(raw)) {
			if rest, ok := strings.CutPrefix(line, "#include \""); ok {
				add(strings.TrimSuffix(strings.TrimSpace(rest), "\""))
				continue
			}
			text.WriteString(line)
		}
	}
	add(file)
	return text.String()
}

// patched replaces files, for tests of kernels that are wrong.
var patched map[string]string

// repeated are the files that are meant to be included for one type after the other.
var repeated = map[string]bool{"elementwise.h": true, "activations.h": true, "integer.h": true}

// The cache's files begin with a checksum of what follows: drivers may crash on a file that is broken.
const cacheMagic = "drun's OpenCL program 1\n"

// cached returns the path in the user's cache of a program, "" if it is not to be kept there.
func (d *Device) cached(text, options string) string {
	folder, err := os.UserCacheDir()
	if err != nil || d.caches {
		return ""
	}
	h := sha256.New()
	for _, part := range []string{d.Platform, d.Name, d.Driver, d.Version, options, text} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return filepath.Join(folder, "drun", "opencl", hex.EncodeToString(h.Sum(nil)[:16]))
}

func readCached(path string) []byte {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	raw, ok := bytes.CutPrefix(raw, []byte(cacheMagic))
	if !ok || len(raw) < sha256.Size {
		return nil
	}
	if sum := sha256.Sum256(raw[sha256.Size:]); !bytes.Equal(sum[:], raw[:sha256.Size]) {
		return nil
	}
	return raw[sha256.Size:]
}

// writeCached saves a program; without it, it is compiled again.
func writeCached(path string, binary []byte) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new")
	if err != nil {
		return
	}
	sum := sha256.Sum256(binary)
	_, err = f.Write(append(append([]byte(cacheMagic), sum[:]...), binary...))
	if f.Close() != nil || err != nil || os.Rename(f.Name(), path) != nil {
		_ = os.Remove(f.Name())
	}
}
