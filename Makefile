# Needs Go, a C compiler and make; `make lint` also the network.

export CGO_ENABLED = 1

# The linter runs by version, so that it need not be installed.
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Where goroutines, processes or shared memory meet.
RACE  = ./checkpoints/... ./collective/... ./engine/... ./history/... ./starlib/...
# Where time is spent.
BENCH = ./checkpoints/... ./collective/... ./engine/... ./history/... ./kernel/... ./starlib/... ./tensor/...

# The engines whose headers are here, as build tags.
ENGINES = $$(sh plugins/engines.sh)

.PHONY: build plugins demo test test-gpu race bench microbench lint fmt clean

build:
	@mkdir -p bin
	go build -trimpath -o bin/drun ./cmd/drun

# The backends that stand on libraries, as far as those are here.
plugins: build
	@mkdir -p bin/plugins
	@sh plugins/engines.sh -v
	go build -trimpath -tags "$(ENGINES)" -o bin/plugins/ ./plugins/nccl/drun-backend-nccl ./plugins/example
	@mv bin/plugins/example bin/plugins/drun-backend-example
	@case "$(ENGINES)" in *gloo*) go build -trimpath -tags gloo -o bin/plugins/ ./plugins/gloo/drun-backend-gloo;; esac

# Trains a classifier of handwritten digits on two ranks, and shows the run.
demo: build
	bin/drun run examples/digits.star -n 2
	bin/drun show last

test: build
	@sh plugins/engines.sh -install
	go vet ./...
	go vet -tags "$(ENGINES)" ./plugins/...
	go test -tags "$(ENGINES)" ./...
	go test -race -short $(RACE)

# On a machine with a GPU: the conformance suite over the real NCCL, and its speed.
test-gpu:
	DRUN_TEST_GPU=1 go test -count=1 -v -run 'TestGPU' ./plugins/nccl

race:
	go test -race ./...

# Beside the peers in bench/peers, where they are installed; ARGS="-only start,train -rounds 3" measures less.
bench: build
	go run ./bench $(ARGS)

# Go's own benchmarks, package by package.
microbench:
	go test -run '^$$' -bench . -benchmem -benchtime 200ms $(BENCH)

lint:
	$(GOLANGCI) run ./...

fmt:
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

clean:
	rm -rf bin
