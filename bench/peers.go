package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The programs in the table.
const (
	drunName     = "drun"
	torchName    = "PyTorch" // of today, from PyPI
	compiledName = "compiled PyTorch"
	jaxName      = "JAX"
	debianName   = "Debian's PyTorch"
	llmcName     = "llm.c"
	mpiName      = "Open MPI"
	glooName     = "Gloo"
	openBLASName = "OpenBLAS"
	peakName     = "multiply-adds" // as many as a core can do
	plainName    = "plain file"    // written and synchronised
	mlflowName   = "MLflow"

	// The same libraries, told to use their AVX-512 kernels: OpenBLAS does not recognise every processor that has them,
	// and Debian's PyTorch uses its AVX2 kernels unless told otherwise.
	openBLASWideName = "OpenBLAS for AVX-512"
	debianWideName   = "Debian's PyTorch for AVX-512"

	// bestName stands for the best of the programs that train.
	bestName = "best peer"
)

var peerNames = []string{torchName, compiledName, jaxName, debianName, debianWideName, llmcName, mpiName, glooName, openBLASName, openBLASWideName, plainName, mlflowName, peakName}

// variants are programs of which the best sets a bar.
var variants = map[string][]string{
	bestName:     {torchName, compiledName, jaxName, debianName, debianWideName},
	openBLASName: {openBLASName, openBLASWideName},
}

// install says how to install a peer; Debian's packages on Debian and Ubuntu.
var install = map[string]string{
	torchName: todayInstall, compiledName: todayInstall, jaxName: todayInstall,
	debianName: debianInstall, debianWideName: debianInstall,
	llmcName:     "git clone https://github.com/karpathy/llm.c elsewhere, and name that folder in LLMC",
	mpiName:      packages + "openmpi-bin libopenmpi-dev",
	glooName:     packages + "libgloo-dev g++",
	openBLASName: openBLASInstall, openBLASWideName: openBLASInstall,
	mlflowName: "make exchange",
	peakName:   packages + "gcc",
}

const (
	packages        = "apt-get install --no-install-recommends "
	todayInstall    = "make bin/peers"
	debianInstall   = packages + "python3-torch python3-numpy"
	openBLASInstall = packages + "libopenblas0-pthread"
)

// The interpreters that have PyTorch of today and JAX, and MLflow.
const (
	todayPython  = "bin/peers/bin/python"
	mlflowPython = "bin/exchange/bin/python"
)

// peers are the programs that this machine has, and for missing ones the reason.
type peers struct {
	folder string // of the compiled peers
	debian string // the interpreter that has Debian's PyTorch
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
	p.lacks[debianName] = fmt.Errorf("no python3 imports torch")
	for _, python := range []string{"python3", "/usr/bin/python3"} { // another python3 may come first in PATH
		if quietly(ctx, python, "-c", "import torch.distributed") == nil {
			p.debian = python
			p.lacks[debianName] = nil
			break
		}
	}
	build(torchName, todayPython, "-c", "import torch.distributed")
	p.lacks[compiledName] = p.lacks[torchName]
	build(jaxName, todayPython, "-c", "import jax, safetensors")
	if llmc := os.Getenv("LLMC"); llmc == "" {
		p.lacks[llmcName] = fmt.Errorf("LLMC names no folder")
	} else {
		build(llmcName, "cc", "-O3", "-march=native", "-fopenmp", "-w", "-I"+llmc, peerSources+"/gpt2_llmc.c", "-o", p.built("gpt2_llmc"), "-lm")
	}
	build(mlflowName, mlflowPython, "-c", "import mlflow")
	build(mpiName, "mpicc", "-O2", peerSources+"/allreduce_mpi.c", "-o", p.built("allreduce_mpi"))
	build(mpiName, "mpicc", "-O2", peerSources+"/hello_mpi.c", "-o", p.built("hello_mpi"))
	build(glooName, "g++", "-O2", "-std=c++17", peerSources+"/allreduce_gloo.cc", "-o", p.built("allreduce_gloo"), "-lgloo")
	build(openBLASName, "cc", "-O2", peerSources+"/gemm_openblas.c", "-o", p.built("gemm_openblas"), "-ldl")
	build(openBLASName, p.built("gemm_openblas"), "8", "8", "8")
	build(peakName, "cc", "-O3", "-march=native", "-pthread", peerSources+"/peak.c", "-o", p.built("peak"))
	for wide, narrow := range map[string]string{openBLASWideName: openBLASName, debianWideName: debianName} {
		p.lacks[wide] = p.lacks[narrow]
		if p.has(wide) && os.Getenv("DRUN_KERNEL") == onlyAVX2["DRUN_KERNEL"] {
			p.lacks[wide] = fmt.Errorf("only AVX2 is measured")
		} else if p.has(wide) && !slices.Contains([]string{"avx512", "avx512bf16", "amx"}, kernelPath()) {
			p.lacks[wide] = fmt.Errorf("this processor has no AVX-512")
		}
	}
	return p
}

// ofToday and ofDebian are command lines of scripts in the two Pythons.
func ofToday(script string, args ...string) []string {
	return append([]string{todayPython, filepath.Join(peerSources, script)}, args...)
}

func (p *peers) ofDebian(script string, args ...string) []string {
	return append([]string{p.debian, filepath.Join(peerSources, script)}, args...)
}

// wide tells Debian's PyTorch to use AVX-512.
var wide = []string{"env", "ATEN_CPU_CAPABILITY=avx512"}

// torch runs a script with each PyTorch: today's, and Debian's by default and with AVX-512.
func (p *peers) torch(group, suffix string, ranks int, script string, args ...string) []probe {
	line := p.ofDebian(script, args...)
	return []probe{
		{group, torchName, suffix, printed(ofToday(script, args...), ranks)},
		{group, debianName, suffix, printed(line, ranks)},
		{group, debianWideName, suffix, printed(append(slices.Clone(wide), line...), ranks)},
	}
}

func (p *peers) built(name string) string { return filepath.Join(p.folder, name) }

func (p *peers) has(who string) bool { return p.lacks[who] == nil }

// missing says for each missing peer how to install it.
func (p *peers) missing() []string {
	var lines []string
	for _, who := range peerNames {
		if err := p.lacks[who]; err != nil {
			lines = append(lines, fmt.Sprintf("%s is not installed (%v): %s", who, err, install[who]))
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
