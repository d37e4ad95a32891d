# `make` or `make help` lists what there is. Every target does its own set-up.

SHELL     := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BIN        := bin/controller
# Which packages the tests of `make test` and `make test-docker` run.
PKG        ?= ./...
# Arguments for go test, for example: make test TESTFLAGS='-run Claim -v'
TESTFLAGS  ?=
# Scenario files for `make scenarios`.
SCENARIOS  ?= scenarios/*.yaml
# Arguments for `make run`, for example: make run RUNFLAGS='--migrate --config my.yaml'
RUNFLAGS   ?=
# Arguments for `make dev`, for example: make dev DEVFLAGS='--listen 127.0.0.1:9000'
DEVFLAGS   ?=
# Arguments for the benchmark.
BENCHFLAGS ?=

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the controller into bin/
	@mkdir -p bin
	go build -o $(BIN) ./cmd/controller

.PHONY: test
test: ## Run the tests, against Docker if it answers, else the local Postgres
	@source .ci/lib.sh; test_server
	go test -race $(TESTFLAGS) $(PKG)

.PHONY: test-docker
test-docker: ## Run the tests against a container; fail if there is no Docker
	SIDING_TEST_REQUIRE=docker go test -race -count=1 $(TESTFLAGS) $(PKG)

.PHONY: e2e
e2e: postgres ## Run the binary, as several processes that are killed; shows what it saw
	go test -race -count=1 -v $(TESTFLAGS) ./e2e

.PHONY: lint
lint: ## Run go vet and golangci-lint (its first build takes some minutes)
	go vet ./...
	go tool -modfile=tools/go.mod golangci-lint run ./...

.PHONY: fmt
fmt: ## Format all Go files
	gofmt -w $$(git ls-files '*.go')

.PHONY: run
run: build ## Run a controller on the configured database (config.example.yaml)
	$(BIN) serve $(RUNFLAGS)

.PHONY: dev
dev: build postgres ## Run a controller on a private Postgres that keeps its data
	$(BIN) dev $(DEVFLAGS)

.PHONY: demo
demo: build postgres ## Show an order step onto the siding and let others pass
	$(BIN) demo

.PHONY: scenarios
scenarios: build postgres ## Run the scenario files, observed beside expected
	$(BIN) scenario run $(SCENARIOS)

.PHONY: bench
bench: postgres ## Compare with other systems on one Postgres
	cd bench && go run ./cmd/compare $(BENCHFLAGS)

.PHONY: image
image: ## Build the image siding:local (BASE=IMAGE: what it is based on)
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -o $(BIN) ./cmd/controller
	docker build $(if $(BASE),--build-arg BASE=$(BASE)) -t siding:local .

.PHONY: compose
compose: image ## Start Postgres, two controllers and two agents in containers
	docker-compose up -d

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

# Not listed: what other targets need.
.PHONY: postgres
postgres:
	@source .ci/lib.sh; ensure_postgres
