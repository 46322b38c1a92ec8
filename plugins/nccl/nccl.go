// Package nccl is the backend that moves tensors with NCCL, NVIDIA's library of collectives between GPUs. drun's
// tensors lie in host memory, so they are staged: copied to the GPU, exchanged and reduced there, and copied back, in
// chunks that overlap. The program drun-backend-nccl beneath this package serves it to drun.
//
// Neither CUDA nor NCCL is needed to build it: libcuda.so.1 and libnccl.so.2 are looked for at run time, and Probe
// says what is missing.
package nccl

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"drun/collective"
)

// Options of the backend; the zero value chooses by itself.
type Options struct {
	// NCCL and CUDA are the libraries' files, or the folders they are in.
	// Empty: the loader's search path, then where packages put them.
	NCCL, CUDA string
	// Devices are the GPUs of this machine's ranks, by local rank. Empty: the GPU of the local rank's number.
	Devices []int
	// ShareGPU lets several ranks use one GPU. It is slow, and meant for tests.
	ShareGPU bool
	// ZeroCopy lets NCCL's all_reduce access host memory directly where it can, instead of staging.
	ZeroCopy bool
	// Log gets what NCCL prints. Nil: it goes where NCCL sends it.
	Log *os.File

	problem       error // of the environment
	deterministic bool  // contributions are gathered and combined in rank order, as the World asks
}

// FromEnvironment reads DRUN_NCCL_LIB, DRUN_CUDA_LIB, DRUN_NCCL_DEVICES ("2,3"),
// DRUN_NCCL_SHARE_GPU and DRUN_NCCL_ZERO_COPY.
func FromEnvironment() Options {
	o := Options{
		NCCL: os.Getenv("DRUN_NCCL_LIB"), CUDA: os.Getenv("DRUN_CUDA_LIB"),
		ShareGPU: os.Getenv("DRUN_NCCL_SHARE_GPU") == "1", ZeroCopy: os.Getenv("DRUN_NCCL_ZERO_COPY") == "1",
	}
	if list := os.Getenv("DRUN_NCCL_DEVICES"); list != "" {
		for s := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || n < 0 {
				o.problem = fmt.Errorf("DRUN_NCCL_DEVICES is %q, but takes the numbers of GPUs, as in 0,1", list)
				break
			}
			o.Devices = append(o.Devices, n)
		}
	}
	return o
}

// Backend is the NCCL engine.
type Backend struct {
	options Options
	arena   []byte // where the calls' buffers lie, if that is known
}

// New returns the backend.
func New(options Options) *Backend { return &Backend{options: options} }

func (b *Backend) Name() string { return "nccl" }

// Properties say that it is the default between nodes if there is no better one.
func (b *Backend) Properties() collective.Properties { return collective.Properties{BetweenNodes: 1} }

// Map tells the backend where the calls' buffers lie, so that it can prepare that memory for DMA as it is used.
func (b *Backend) Map(arena []byte) { b.arena = arena }
