# `make` prints the menu. Go is all that is needed; with a C compiler the tests
# look for data races too. Tools come from tools/, pinned, apart from the
# product's own go.mod.

GO         ?= go
FUZZTIME   ?= 10s
TESTFLAGS  ?=
BENCHTIME  ?= 1s
BENCH      ?= .
BENCHFLAGS ?=
SOAK       ?= 10m
SEED       ?= 0
SOAKFLAGS  ?=
VERSION    ?=

TOOL    = $(GO) tool -modfile=tools/go.mod
LDFLAGS = $(if $(VERSION),-X main.version=$(VERSION))
# Go says CGO_ENABLED=1 on any machine when it was set by hand: look for the compiler too.
CC_FOUND = $(shell test "$$($(GO) env CGO_ENABLED)" = 1 && command -v $$($(GO) env CC | cut -d' ' -f1))
# What the program must build for besides the system at hand.
SYSTEMS = freebsd darwin
# The package that has files of its own for some systems; all others build there as they do here.
SYSTEM_PACKAGES = ./internal/kit
# Hand-written Go only; nothing generated, nothing fetched.
GO_FILES = $$(find . -name '*.go' -not -path './.*' -not -path '*/testdata/*')

.DEFAULT_GOAL := help
.PHONY: help run cluster build test race test-all soak check fuzz bench bench-go vuln clean

help: ## this menu
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do printf '  make %-10s %s\n' "$$name" "$$what"; done

# Not by go run, which fails after Ctrl-C though the program has ended well.
run: build ## start a node with a small live community, and say where to look [until Ctrl-C]
	bin/tidemark run --demo

cluster: build ## three nodes and a fourth that only answers, on this machine: kill some (RESTART=0: they stay away) [until Ctrl-C]
	examples/cluster.sh

build: ## bin/tidemark (VERSION=v1.2.3 names it) [2 s; 1 min where nothing is compiled yet]
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/tidemark ./cmd/tidemark

# Most packages wait more than they compute: with more of them at once than there are processors
# the tests end sooner.
AT_ONCE = -p=$$(($$(getconf _NPROCESSORS_ONLN) + 2))
# Vet is part of check: here it would look at all that is imported once more.
TEST    = $(GO) test $(AT_ONCE) -vet=off -count=1 $(TESTFLAGS)
# Where goroutines share memory, and the tests there that have one goroutine and take long.
SHARED  = ./sinks/... ./internal/node/... ./query/spread/... ./query/service/... ./pipeline/jetlog/...
ALONE   = ^Test(KilledAtEveryStep|FullDisk|Twins)$$

test: ## what proves a change: unit tests, twins, the simulation, twelve stories with real processes [2 min; 4 where nothing is compiled yet]
	CGO_ENABLED=0 $(TEST) -short -timeout 10m ./...

race: ## the race detector, where goroutines share memory; needs a C compiler [3 min; 4 where nothing is compiled yet]
	$(TEST) -race -short -parallel 6 -skip '$(ALONE)' -timeout 10m $(SHARED)

# Without the race detector, under which fleets of nodes starve on two cores: race has it, here
# for more packages.
test-all: ## every test, all stories, all of Higgs, then race; with a browser, Redis, zsh, fish where they are [17 min]
	CGO_ENABLED=0 $(TEST) -timeout 30m ./...
	@$(if $(CC_FOUND),$(MAKE) race SHARED='./sinks/... ./internal/node/... ./internal/job ./query/... ./pipeline/... ./cmd/tidemark/importer',echo 'make test-all: no C compiler found, so data races are not looked for')

soak: ## real processes under real faults and abuse (SOAK=10m; SEED=0 draws one; SOAKFLAGS='-abuse notices') [10 min]
	$(GO) test -count=1 -timeout 0 -v -run '^TestSoak$$' ./internal/soak -soak $(SOAK) -seed $(SEED) $(SOAKFLAGS)

# Without cgo, as what is built: then what is imported is compiled once for all of these, and
# for the programs that tests start.
check: export CGO_ENABLED = 0
check: ## build, for other systems too, vet, staticcheck, gofumpt, go mod tidy [1 min; 3 where nothing is compiled yet]
	$(GO) build ./...
	@for system in $(SYSTEMS); do echo "GOOS=$$system $(GO) build, of what has files for systems"; \
		GOOS=$$system $(GO) build $(SYSTEM_PACKAGES) || exit 1; done
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@unformatted=$$($(TOOL) gofumpt -l $(GO_FILES)) || exit 1; test -z "$$unformatted" || { echo "gofumpt -w is due for:"; echo "$$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	@echo 'make check: good'

# A failure that wrote no input is Go's own: -fuzztime may end in a bare
# "context deadline exceeded" (go.dev/issue/75804, mended in Go 1.27).
fuzz: ## each fuzz target for a while (FUZZTIME=10s) [10 min]
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		name=$${func#func }; dir=$$(dirname "$$file"); echo "== $$dir $$name"; \
		if out=$$($(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$dir" 2>&1 </dev/null); then \
			echo "$$out" | tail -n 1; \
		elif echo "$$out" | grep -q '^ *context deadline exceeded$$' && ! echo "$$out" | grep -qE 'Failing input|seed corpus entry|panic:'; then \
			echo "ended late, without a failing input: taken as good"; \
		else echo "$$out"; exit 1; fi; \
	done

bench: ## one table: every target, measured beside its rival (BENCHFLAGS='-only packs') [7 min]
	@GO='$(GO)' $(GO) run ./internal/bench $(BENCHFLAGS)

bench-go: ## Go benchmarks; compare two outputs with: go tool -modfile=tools/go.mod benchstat OLD NEW [20 min]
	@dirs=$$(grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	test -n "$$dirs" || { echo "make bench-go: there are no benchmarks yet"; exit 0; }; \
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 60m $$dirs

vuln: ## known vulnerabilities in what the program calls; asks vuln.go.dev [1 min]
	$(TOOL) govulncheck ./...

clean: ## remove what make built, and the data of make run and make cluster; data/ stays
	rm -rf bin data-demo data-cluster
