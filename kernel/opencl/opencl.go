// Package opencl computes on OpenCL devices what package kernel computes on the processor, with the same bits: a Device
// has buffers, a queue, and for each family of kernels a method that takes the arguments of kernel's function. A
// method puts its kernel into the queue and returns; it reports false for what it has no kernel for. The kernels are in cl/, and share their
// elementwise functions' text with package kernel.
//
// OpenCL's library is loaded when it is first asked for. A Device is used by one goroutine at a time, but
// buffers may be freed by any.
package opencl

// #cgo CFLAGS: -O2 -Wall -std=gnu11
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
// #cgo noescape drun_cl_launch
// #cgo nocallback drun_cl_launch
import "C"

import (
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"
)

// Found describes a device of this machine.
type Found struct {
	Device   string // its name in --device: opencl:0
	Platform string
	Name     string
	Driver   string
	Version  string // of OpenCL
	Memory   int    // in bytes
	GPU      bool
	Float64  bool
	Exact    bool // it can round quotients and roots of float32 correctly
	Usable   bool // it is available, and has a compiler

	c C.cl_found
}

// patience is how long OpenCL may take to list its devices: a driver whose device is broken may never answer.
var patience = 20 * time.Second

const install = "install your GPU's driver, which brings OpenCL, or to compute on the processor through it PoCL (Debian, Ubuntu: apt-get install pocl-opencl-icd ocl-icd-libopencl1)"

var library struct {
	sync.Mutex
	loaded bool
}

// load loads OpenCL's library.
func load() error {
	library.Lock()
	defer library.Unlock()
	if library.loaded {
		return nil
	}
	path := os.Getenv("DRUN_OPENCL_LIB")
	if path == "" {
		path = "libOpenCL.so.1"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [C.TEXT_SIZE]C.char
	if C.drun_cl_load(name, &why[0]) != 0 {
		return fmt.Errorf("OpenCL is missing: %s: %s, or say where its library is in DRUN_OPENCL_LIB", C.GoString(&why[0]), install)
	}
	library.loaded = true
	return nil
}

// List returns the devices of all platforms, GPUs or not.
func List() ([]Found, error) {
	type answer struct {
		found []Found
		err   error
	}
	asked := make(chan answer, 1) // asking goes on if the driver hangs: a thread cannot be ended
	go func() {
		found, err := list()
		asked <- answer{found, err}
	}()
	select {
	case a := <-asked:
		return a.found, a.err
	case <-time.After(patience):
		return nil, fmt.Errorf("OpenCL did not list its devices within %v: a driver hangs; clinfo shows which (drivers are listed in /etc/OpenCL/vendors)", patience)
	}
}

func list() ([]Found, error) {
	if err := load(); err != nil {
		return nil, err
	}
	c := make([]C.cl_found, C.MOST_DEVICES)
	var n C.int
	if code := C.drun_cl_list(&c[0], &n); code != 0 {
		return nil, fmt.Errorf("OpenCL cannot list its platforms: %s", codeText(int(code)))
	}
	var all []Found
	for i := range c[:n] {
		f := &c[i]
		all = append(all, Found{
			Device: fmt.Sprintf("opencl:%d", i), Platform: C.GoString(&f.platform_name[0]), Name: C.GoString(&f.name[0]),
			Driver: C.GoString(&f.driver[0]), Version: C.GoString(&f.version[0]), Memory: int(f.memory),
			GPU: f._type&C.CL_DEVICE_TYPE_GPU != 0, Float64: f.float64 != 0,
			Exact: f.float32&C.CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0, Usable: f.usable != 0, c: *f,
		})
	}
	return all, nil
}

// codes are the errors that a user may meet; OpenCL's others mean a bug.
var codes = map[int]string{
	C.CL_MEM_OBJECT_ALLOCATION_FAILURE: "the device has no memory left",
	C.CL_OUT_OF_RESOURCES:              "the device has no memory or other resources left, or a kernel failed",
	C.CL_OUT_OF_HOST_MEMORY:            "the machine has no memory left",
	C.CL_INVALID_BUFFER_SIZE:           "the size is more than the device allows",
	-2:                                 "the device is not available",
	-9999:                              "a kernel read or wrote memory that is not its own",
}

func codeText(code int) string {
	if text := codes[code]; text != "" {
		return fmt.Sprintf("%s (OpenCL's error %d)", text, code)
	}
	return fmt.Sprintf("OpenCL's error %d", code)
}
