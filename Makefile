# The modules of this repository, the core first.
MODULES := . czstd goredis rueidis redigo observe near codecs rivals cmd/bale examples

# How many hostile inputs the deterministic fuzz test tries.
FUZZ_N ?= 20000

# All their packages. The command's come first, for their tests wait the longest: those of others run beside them.
PACKAGES := ./cmd/bale/... $(patsubst %,./%/...,$(filter-out cmd/bale,$(MODULES)))

.PHONY: test vet race fuzz bench figures lint

# Every module's tests, vet, and the import rules (internal/lint).
test: vet
	go test $(GOTESTFLAGS) $(PACKAGES)

vet:
	go vet $(PACKAGES)

# The race detector lets a program wait at its end for what may yet come, a second by default; the tests run hundreds of programs.
race: export GORACE ?= atexit_sleep_ms=50
race: vet
	go test -race $(GOTESTFLAGS) $(PACKAGES)

# A million hostile inputs, and each fuzz target for a while.
fuzz:
	BALE_FUZZ_N=1000000 go test -run TestHostileInput -v .
	@set -e; for t in FuzzUnpack FuzzRoundTrip FuzzMutated; do go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s .; done
	go test -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s ./frame
	go test -run '^$$' -fuzz '^FuzzRedact$$' -fuzztime 60s ./dict
	go test -run '^$$' -fuzz '^FuzzRead$$' -fuzztime 60s ./stats
	go test -run '^$$' -fuzz '^FuzzManifest$$' -fuzztime 60s ./stream
	@set -e; for t in FuzzEngines FuzzPayload; do (cd czstd && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s .); done
	@set -e; for p in msgpack cbor protobuf fastjson; do (cd codecs && go test -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime 60s -fuzzminimizetime 10x ./$$p); done
	@set -e; for t in FuzzDetect FuzzSnappy FuzzReencode; do (cd cmd/bale && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s -fuzzminimizetime 1x ./internal/content); done
	cd cmd/bale && go test -run '^$$' -fuzz '^FuzzAdd$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/keygroup
	cd cmd/bale && go test -run '^$$' -fuzz '^FuzzHeader$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/rdb

# The benchmarks behind docs/figures.md.
bench:
	@set -e; for m in $(MODULES); do (cd $$m && go test -run '^$$' -bench . -benchmem ./...); done

lint:
	@set -e; for m in $(MODULES); do (cd $$m && golangci-lint run ./...); done
