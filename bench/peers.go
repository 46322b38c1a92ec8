package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The programs in the table.
const (
	drunName     = "drun"
	torchName    = "PyTorch"
	mpiName      = "Open MPI"
	glooName     = "Gloo"
	openBLASName = "OpenBLAS"
	plainName    = "plain file" // written and synchronised
	mlflowName   = "MLflow"

	// The same libraries, told to use their AVX-512 kernels: OpenBLAS does not recognise every processor that has them,
	// and PyTorch uses its AVX2 kernels unless told otherwise.
	openBLASWideName = "OpenBLAS for AVX-512"
	torchWideName    = "PyTorch for AVX-512"
)

var peerNames = []string{torchName, torchWideName, mpiName, glooName, openBLASName, openBLASWideName, plainName, mlflowName}

// variants are a peer run in several ways. A bar is set by the best of them.
var variants = map[string][]string{
	torchName:    {torchName, torchWideName},
	openBLASName: {openBLASName, openBLASWideName},
}

// install says how to install a peer on Debian and Ubuntu.
var install = map[string]string{
	torchName:    "python3-torch python3-numpy",
	mpiName:      "openmpi-bin libopenmpi-dev",
	glooName:     "libgloo-dev g++",
	openBLASName: "libopenblas0-pthread",
	// The same libraries, on a processor with AVX-512.
	openBLASWideName: "libopenblas0-pthread",
	torchWideName:    "python3-torch python3-numpy",
	mlflowName:       fromPyPI,
}

// fromPyPI says that the Makefile installs it.
const fromPyPI = "make exchange"

// mlflowPython is the interpreter that has MLflow.
const mlflowPython = "bin/exchange/bin/python"

// peers are the programs that this machine has, and for missing ones the reason.
type peers struct {
	folder string // of the compiled peers
	python string
	lacks  map[string]error
}

const peerSources = "bench/peers"

// findPeers looks for each peer, and compiles into folder those that need it.
func findPeers(ctx context.Context, folder string) *peers {
	p := &peers{folder: folder, lacks: map[string]error{}}
	build := func(who string, args ...string) {
		if p.lacks[who] == nil {
			p.lacks[who] = quietly(ctx, args...)
		}
	}
	p.lacks[torchName] = fmt.Errorf("no python3 imports torch")
	for _, python := range []string{"python3", "/usr/bin/python3"} { // another python3 may come first in PATH
		if quietly(ctx, python, "-c", "import torch.distributed") == nil {
			p.python = python
			p.lacks[torchName] = nil
			break
		}
	}
	build(mlflowName, mlflowPython, "-c", "import mlflow")
	build(mpiName, "mpicc", "-O2", peerSources+"/allreduce_mpi.c", "-o", p.built("allreduce_mpi"))
	build(mpiName, "mpicc", "-O2", peerSources+"/hello_mpi.c", "-o", p.built("hello_mpi"))
	build(glooName, "g++", "-O2", "-std=c++17", peerSources+"/allreduce_gloo.cc", "-o", p.built("allreduce_gloo"), "-lgloo")
	build(openBLASName, "cc", "-O2", peerSources+"/gemm_openblas.c", "-o", p.built("gemm_openblas"), "-ldl")
	build(openBLASName, p.built("gemm_openblas"), "8", "8", "8")
	for wide, narrow := range map[string]string{openBLASWideName: openBLASName, torchWideName: torchName} {
		p.lacks[wide] = p.lacks[narrow]
		if p.has(wide) && kernelPath() != "avx512" {
			p.lacks[wide] = fmt.Errorf("this processor has no AVX-512")
		}
	}
	return p
}

func (p *peers) built(name string) string { return filepath.Join(p.folder, name) }

func (p *peers) has(who string) bool { return p.lacks[who] == nil }

// missing says for each missing peer how to install it.
func (p *peers) missing() []string {
	var lines []string
	for _, who := range peerNames {
		if err := p.lacks[who]; err != nil {
			how := "apt-get install --no-install-recommends " + install[who]
			if install[who] == fromPyPI {
				how = fromPyPI
			}
			lines = append(lines, fmt.Sprintf("%s is not installed (%v): %s", who, err, how))
		}
	}
	return lines
}

// quietly runs a program without showing its output; the error is the last line that it printed.
func quietly(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if text := strings.TrimSpace(string(output)); err != nil && text != "" {
		return fmt.Errorf("%s", text[strings.LastIndexByte(text, '\n')+1:])
	}
	return err
}
