# Needs Go, a C compiler and make; `make lint` also the network.

export CGO_ENABLED = 1

# The linter runs by version, so that it need not be installed.
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Where goroutines, processes or shared memory meet.
RACE  = ./checkpoints/... ./collective/... ./engine/... ./history/... ./starlib/...
# Where time is spent.
BENCH = ./checkpoints/... ./collective/... ./engine/... ./history/... ./kernel/... ./starlib/... ./tensor/...

.PHONY: build demo test race bench microbench lint fmt clean

build:
	@mkdir -p bin
	go build -trimpath -o bin/drun ./cmd/drun

# Trains a classifier of handwritten digits on two ranks, and shows the run.
demo: build
	bin/drun run examples/digits.star -n 2
	bin/drun show last

test: build
	go vet ./...
	go test ./...
	go test -race -short $(RACE)

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
