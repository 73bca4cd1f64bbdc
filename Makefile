# Every target runs over every module of the repository, found by its go.mod, so
# that none can be forgotten. GOWORK=off builds each module as its users get it,
# with the versions of its own go.mod; go.work is for editors.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

ifeq ($(filter oneshell,$(.FEATURES)),)
$(error this needs GNU make 3.82 or newer; on macOS: brew install make, then gmake)
endif

export GOWORK := off

FOUND   := $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/node_modules/*'))
MODULES := . $(sort $(filter-out .,$(FOUND)))

# The SDKs of vendors take four minutes of processor time to compile, so their tests run
# without -race, and only on this system.
SLOW_BUILDS := ./examples/uses

# The simulations of bench are seconds of processor time that the race detector makes ten times as long; what they use has
# tests of its own with it.
NO_RACE := $(SLOW_BUILDS) ./bench ./bench/dashboard

# The packages that do arithmetic, as far as they exist: tests with 32-bit ints
# find what they take for granted.
PURE := $(patsubst %,./%/...,$(wildcard throttle backoff warmup sketch quota rate internal/ticks internal/gcra internal/indexheap internal/sfv))

# The modules that users require. releasecheck has the same list.
PUBLISHED := . throttleredis otelheed promheed

# The Go versions with which the published modules are tested, from the go line of their go.mod
# files on.
VERSIONS ?= go1.25.14 go1.26.8 go1.27.4

FUZZTIME     ?= 10s
GOLANGCILINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK  := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# FAST_BUILDS are flags of go test where building is most of the time. With GOGC=400 the compiler needs a quarter less processor
# time for the largest packages and a third more memory; the tests run without it. Tables for debuggers are a quarter
# of the time of linking. go vet is off because make lint runs it with all analyzers over every module.
FAST_BUILDS = -exec='env -u GOGC' -ldflags=-w -vet=off
test-allocs test-race: export GOGC := 400

# summarize prints the output of go test -json and counts the skipped tests. The program is
# built first, because go run would build it while the tests run.
summarize = summary=$$(mktemp -d); trap 'rm -rf "$$summary"' EXIT; \
	(cd bench && go build -o "$$summary/" ./testsummary); \
	summarize() { "$$summary/testsummary"; }

.PHONY: help
help: ## say what there is to make
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | sort | expand -t 16

.PHONY: test
test: test-allocs test-race ## all tests but slow ones

# Slow tests skip with -short. Tests that need a server that is not installed skip too,
# except with CI=true.
.PHONY: test-race
test-race: ## go test -race -short in every module
	@race='-race -gcflags=all=-dwarf=false' # a tenth of the time of these compilers; nothing else uses what they build
	export GORACE=atexit_sleep_ms=10 # the default is a second at the end of each package
	if [ "$$(go env CGO_ENABLED)" != 1 ] || ! command -v "$$(go env CC | cut -d ' ' -f 1)" >/dev/null; then
	  if [ "$${CI:-}" = true ]; then echo "the race detector needs a C compiler"; exit 1; fi
	  race= ; echo "== no C compiler: tests run without the race detector"
	fi
	$(summarize)
	tests() { # of these modules
	  local bad=0 m flags
	  for m in "$$@"; do
	    flags="-short -shuffle=on"
	    case " $(NO_RACE) " in *" $$m "*) ;; *) flags="$$race $$flags" ;; esac
	    echo "== $$m: go test $$flags"
	    (cd $$m && go test -json $(FAST_BUILDS) $$flags ./...) || bad=1
	  done
	  return $$bad
	}
	# Modules whose tests wait for real servers run beside those of the root module. SLOW_BUILDS are last, because compilers use both processors.
	{ tests $(filter-out . $(SLOW_BUILDS),$(MODULES)) $(SLOW_BUILDS) >"$$summary/others" &
	  others=$$! bad=0
	  tests . || bad=1
	  wait $$others || bad=1
	  cat "$$summary/others"
	  exit $$bad
	} | summarize

.PHONY: test-long
test-long: ## all tests, also slow ones, in every module, without the race detector
	@$(summarize)
	{ bad=0
	  for m in $(MODULES); do
	    echo "== $$m: go test -shuffle=on"
	    (cd $$m && go test -json -shuffle=on ./...) || bad=1
	  done
	  exit $$bad
	} | summarize

.PHONY: test-published
test-published: ## go vet and go test -short of the published modules
	@$(summarize)
	{ bad=0
	  for m in $(PUBLISHED); do
	    echo "== $$m: $$(go env GOVERSION): go vet and go test -short"
	    (cd $$m && go vet ./... && go test -json -short -shuffle=on ./...) || bad=1
	  done
	  exit $$bad
	} | summarize

.PHONY: test-versions
test-versions: $(VERSIONS:%=test-%) ## test-published with each Go of VERSIONS, which the go command downloads

test-go%:
	@GOTOOLCHAIN=go$* $(MAKE) --no-print-directory test-published

# The race detector allocates, so tests that count allocations and bytes skip with it.
.PHONY: test-allocs
test-allocs: ## tests of allocations and bytes, without the race detector
	@echo "== .: go test -run alloc"
	packages=$$(grep -rlE --include='*_test.go' '^func Test\w*[Aa]lloc' --exclude-dir=throttleredis . | xargs -n 1 dirname | sort -u)
	go test $(FAST_BUILDS) -shuffle=on -run '[Aa]lloc' $$packages

# Only Linux on amd64 runs 32-bit programs as they are.
.PHONY: test-386
test-386: ## the arithmetic with 32-bit ints
	@if [ "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" != linux/amd64 ]; then
	  echo "== GOARCH=386: not run: this machine cannot run it"
	  exit
	fi
	echo "== GOARCH=386: go test $(PURE)"
	GOARCH=386 CGO_ENABLED=0 go test -short -shuffle=on $(PURE)

# Mobile systems link programs with cgo and a toolchain of their own, but packages
# compile without. So main packages stay out; the list is made for this system, as
# for iOS even listing them fails.
.PHONY: test-systems
test-systems: ## go vet for Windows and macOS, builds for Android and iOS
	@export CGO_ENABLED=0
	for os in windows darwin; do
	  for m in $(filter-out $(SLOW_BUILDS),$(MODULES)); do
	    echo "== $$m: go vet for $$os"
	    (cd $$m && GOOS=$$os go vet ./...)
	  done
	done
	packages=$$(go list -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' ./...)
	for os in android ios; do
	  echo "== .: go build for $$os/arm64"
	  GOOS=$$os GOARCH=arm64 go build $$packages
	done

.PHONY: lint
lint: ## gofmt, words, go mod tidy, go vet, golangci-lint and govulncheck; a finding fails
	@echo "== gofmt"
	bad=$$(find . -name '*.go' -not -path '*/node_modules/*' -exec gofmt -l {} +)
	[ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }
	echo "== words"
	go test -count=1 ./lint
	for m in $(MODULES); do
	  echo "== $$m: go mod tidy"
	  (cd $$m && go mod tidy -diff)
	  echo "== $$m: go vet"
	  (cd $$m && go vet ./...)
	  echo "== $$m: golangci-lint"
	  (cd $$m && go run $(GOLANGCILINT) run ./...)
	done
	$(MAKE) --no-print-directory vuln

# The database is a second download, which not every machine can reach.
.PHONY: vuln
vuln: ## govulncheck, against the database at GOVULNDB (https://vuln.go.dev, or file:///a/copy)
	@if [ -z "$${GOVULNDB:-}" ]; then
	  echo "== govulncheck: not run: GOVULNDB is not set (https://vuln.go.dev, or file:///a/copy)"
	  exit
	fi
	for m in $(MODULES); do
	  echo "== $$m: govulncheck"
	  (cd $$m && go run $(GOVULNCHECK) -db "$$GOVULNDB" ./...)
	done

.PHONY: fuzz
fuzz: ## every fuzz function for FUZZTIME
	@for m in $(MODULES); do
	  cd $(CURDIR)/$$m
	  go list -f '{{.Dir}} {{.TestGoFiles}} {{.XTestGoFiles}}' ./... | tr -d '[]' | while read -r dir files; do
	    [ -n "$$files" ] || continue
	    cd "$$dir"
	    for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$files); do
	      echo "== $${dir#$(CURDIR)/}: $$name"
	      go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) .
	    done
	  done
	done

.PHONY: redis-million
redis-million: ## a million random claims in Redis and in memory, which must agree; about two minutes
	@cd throttleredis
	HEED_STEPS=1000000 go test -count=1 -run 'decideAsInMemory' .

.PHONY: cover
cover: ## how much of each module its tests run; cover.out beside its go.mod has the lines
	@for m in $(MODULES); do
	  cd $(CURDIR)/$$m
	  go test -coverpkg=./... -coverprofile=cover.out ./... >cover.log.out || { cat cover.log.out; exit 1; }
	  echo "$$m: $$(go tool cover -func=cover.out | tail -n 1)"
	done

.PHONY: bench
bench: ## measure beside the peers, by turns, into bench/BENCHMARKS.md
	@cd bench
	go run ./ratio -out BENCHMARKS.md

.PHONY: release-check
release-check: ## pack the published modules, and build and run a consumer of each outside the repository
	@echo "== release-check"
	cd bench
	go run ./releasecheck

.PHONY: set-version
set-version: ## let all modules require VERSION of the published modules
	@[ -n "$(VERSION)" ] || { echo "usage: make set-version VERSION=v0.2.0"; exit 1; }
	for m in $(MODULES); do
	  for p in $(PUBLISHED); do
	    path=$$(cd $$p && go list -m)
	    if grep -q "^[[:space:]]*$$path v" $$m/go.mod; then (cd $$m && go mod edit -require="$$path@$(VERSION)"); fi
	  done
	done
