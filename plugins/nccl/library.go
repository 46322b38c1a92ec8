package nccl

// #cgo CFLAGS: -O2 -Wall -std=gnu11
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

// The libraries, which are loaded once in a process.
var libraries struct {
	sync.Mutex
	cuda, nccl string // where they were found
}

const (
	cudaName = "libcuda.so.1"
	ncclName = "libnccl.so.2"

	getDriver = "install NVIDIA's driver (Debian, Ubuntu: apt-get install nvidia-driver; in a container: docker run --gpus all)"
	getNCCL   = "install NCCL (pip install nvidia-nccl-cu12, or from developer.nvidia.com/nccl), or say where it is in DRUN_NCCL_LIB"
)

// Probe reports which of driver, GPU and NCCL is missing, and how to get it.
func (b *Backend) Probe(context.Context) error {
	_, err := b.load()
	return err
}

// load finds the libraries and counts the GPUs.
func (b *Backend) load() (devices int, err error) {
	if b.options.problem != nil {
		return 0, b.options.problem
	}
	devices, driver := b.loadCUDA()
	return devices, missing(driver, b.loadNCCL())
}

// missing combines two problems into one sentence.
func missing(driver, nccl error) error {
	switch {
	case driver == nil:
		return nccl
	case nccl == nil:
		return driver
	}
	return fmt.Errorf("%w. Also, %w", driver, nccl)
}

func (b *Backend) loadCUDA() (devices int, err error) {
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.cuda == "" {
		found, err := search(b.options.CUDA, "DRUN_CUDA_LIB", cudaName, cudaFolders(), func(path *C.char, why *C.char) C.int { return C.drun_load_cuda(path, why) })
		if err != nil {
			return 0, fmt.Errorf("the NVIDIA driver is missing: %w: %s", err, getDriver)
		}
		libraries.cuda = found
	}
	var count, version C.int
	var why [C.ERR_SIZE]C.char
	if C.drun_devices(&count, &version, &why[0]) != C.DONE {
		return 0, fmt.Errorf("the NVIDIA driver (%s) does not work: %s: see what nvidia-smi says", libraries.cuda, C.GoString(&why[0]))
	}
	if count == 0 {
		return 0, fmt.Errorf("there is no GPU: the NVIDIA driver (%s) is here, but has no device (CUDA_VISIBLE_DEVICES is %q)",
			libraries.cuda, os.Getenv("CUDA_VISIBLE_DEVICES"))
	}
	return int(count), nil
}

func (b *Backend) loadNCCL() error {
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.nccl == "" {
		found, err := search(b.options.NCCL, "DRUN_NCCL_LIB", ncclName, ncclFolders(), func(path *C.char, why *C.char) C.int { return C.drun_load_nccl(path, why) })
		if err != nil {
			return fmt.Errorf("NCCL is missing: %w: %s", err, getNCCL)
		}
		libraries.nccl = found
	}
	if v := version(); v < C.OLDEST_NCCL {
		return fmt.Errorf("%s is NCCL %s, but at least %s is needed: %s", libraries.nccl, dotted(v), dotted(C.OLDEST_NCCL), getNCCL)
	}
	return nil
}

// search loads the first library that it can: the one asked for, else by the loader's own search, else from the folders.
func search(asked, variable, name string, folders []string, load func(path, why *C.char) C.int) (string, error) {
	try := func(path string) error {
		var why [C.ERR_SIZE]C.char
		c := C.CString(path)
		defer C.free(unsafe.Pointer(c))
		if load(c, &why[0]) != C.DONE {
			return errors.New(C.GoString(&why[0]))
		}
		return nil
	}
	if asked != "" {
		if info, err := os.Stat(asked); err == nil && info.IsDir() {
			asked = filepath.Join(asked, name)
		}
		if err := try(asked); err != nil {
			return "", fmt.Errorf("%s says %w", variable, err)
		}
		return asked, nil
	}
	first := try(name)
	if first == nil {
		return name, nil
	}
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := try(path); err != nil {
			return "", err
		}
		return path, nil
	}
	if strings.HasPrefix(first.Error(), name+": cannot open shared object file") {
		first = fmt.Errorf("%s was not found", name)
	}
	return "", first
}

// cudaFolders are where containers put the driver.
func cudaFolders() []string {
	return []string{"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/cuda/compat"}
}

// ncclFolders are where pip puts NCCL, for the Pythons that can be found.
func ncclFolders() []string {
	roots := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	// A Python's own folder may lie next to any of the links to it.
	python, err := exec.LookPath("python3")
	for range 8 {
		if err != nil {
			break
		}
		roots = append(roots, filepath.Dir(filepath.Dir(python)))
		link := python
		if python, err = os.Readlink(link); err == nil && !filepath.IsAbs(python) {
			python = filepath.Join(filepath.Dir(link), python)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	roots = append(roots, "/usr/local", "/usr")
	var folders []string
	for _, root := range roots {
		if root == "" {
			continue
		}
		for _, packages := range []string{"site-packages", "dist-packages"} {
			for _, lib := range []string{"lib", "lib64"} {
				found, _ := filepath.Glob(filepath.Join(root, lib, "python3*", packages, "nvidia", "nccl", "lib")) // a bad pattern finds nothing
				folders = append(folders, found...)
			}
		}
		folders = append(folders, filepath.Join(root, "lib"))
	}
	return folders
}

// version is NCCL's version, as one number.
func version() int {
	var v C.int
	C.drun_version(&v)
	return int(v)
}

func dotted(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// has reports whether NCCL has a function that not every version has.
func has(function string) bool {
	c := C.CString(function)
	defer C.free(unsafe.Pointer(c))
	return C.drun_has(c) != 0
}

// Version is the library's, if there is one.
func (b *Backend) Version() string {
	_, _ = b.load() // Probe reports the error
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.nccl == "" {
		return ""
	}
	return "nccl " + dotted(version())
}
