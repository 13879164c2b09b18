# The folders of the modules, as go.work lists them.
MODULES := $(patsubst ./%,%,$(shell sed -n 's/^\t\(\.[^ ]*\)$$/\1/p' go.work))

# How many hostile inputs the deterministic fuzz test tries.
FUZZ_N ?= 20000

# All their packages. Those whose tests wait the longest come first: others run beside them. Go takes each once.
PACKAGES := ./cmd/bale $(patsubst %,./%/...,$(filter adapter/% extra/near extra/observe,$(MODULES)) cmd $(MODULES))

# Where servers of other versions are put, and those that the tests run on: the one in PATH as it is, and these.
SERVERS_DIR ?= .servers
SERVERS ?= path redis-8.2.3 valkey-9.1.2

# The packages whose tests talk to a server.
SERVER_PACKAGES ?= $(shell grep -rlE --include='*_test.go' '"github.com/balekv/bale/(internal/redisproc|testkit/storetest)"' . | xargs -n 1 dirname | sort -u) ./internal/redisproc

# Tests that take long, for they run whole sessions, build programs, measure, or look at pages: make test leaves them out, make long
# runs them, wherever there is one of that name.
LONG_NAMES := DocumentedCommands|Durability|AdviceIsFollowed|UnlikeHashes|StudiesAreKnown|NextLinesCompile|Hostile|ForbiddenCommands|ReadingTakesLittleMemory|PasswordSources|NoSecretIsShown|FilesAreTheUsers|Signals|MigrateBesidePrograms|FleetRollsOver|LongNames|BenchHTMLInBrowser|AdviceHTMLInBrowser|BehindALink|Clients|CoordinatedOmission|Forms|HopelessRate|Observer|Sweep|PortTakenMeanwhile|TrainOnCorpora|TrainBeatsDefaults|NothingIsLeftBehind|Rates|Campaign|FleetMigrates|ThousandShards|FindsPatterns|OddKeySpaces|OneLoad|BadDictionaries|LimitAtRandom|SavingsWithoutCgo|ReportsFitTerminals|Schemas|CommandsAreThoseOfPrograms|ModelOfUnknownServer|BaleIsNoProgram|AdvisedDictionariesAreTrained|ExamplePrograms|Fill|LimitOfOddEndpoints|LimitFindsTheCapacity|LimitIsWorse|Operations|LimitsOfRivals|SlotProof|ReadSlots|PagesBySize|SlotsOfLongNames|StreamInBoundedMemory|AdviceHTMLIsOnePage|AdviceHTMLByKeyboard|HotKeys|HotKeysOfMasters|Redis|ReadsAreThoseOfOthers|Together|PackedTogether|PackedAlready|RefusedDictionary|BetterExcludes|BetterDictionary|IntervalsHoldTheTruth|Encoder|DecoderReadsLibrary|TrainersInGo|ShowLargeValues|Make|Sized|VerifyNoticesDamage|ManyStates|NoSecretInAnotherPlace|Drawn|FitsIn32Bits|GuideACL|NearMetrics|NearProtobuf|BudgetsOfRivals|ValuesOfRivals|ExcludedMemory|SearchEnds|BuildersEnd|TrainEndsWithLargeDictionaries|MemoryOfDictionaries|MemoryIsBounded|PrefixesStayBelowAWord|PrefixesStayBesideManyRareWords|PrefixesStayBesideOddKeys|Slow|Encode|TrainSizes|LargeFieldsAreTried|LargeFieldsAreNotRead|KeySpaceOfCluster|LargeSlots|ElementsOfLongKey|SampleOfHashes|PythonService|ClientPrograms|HugeAmongSmall|GivenReplica|Codecs|MixFindsWrongValues|LostWritesFailTheCell|UnstableEncodings|Dictionaries|TooMuchInHand|KeySpace|NestedModulesStayOut|Protocol|ExcludePieces|TrainDespiteOne|ManyBadFields|LivePageInTheEnd|EnginesRoundTrip|DamagedFiles|Connections|Examples
LONG := ^Test($(LONG_NAMES))$$|^TestScripts$$/^(advise|bench-embedded|bench-results|dict|http|migrate|study|train)$$
# Those of them that do things at once: the race detector has them, too.
LONG_AT_ONCE := CrashingWriters|InflatedReply|UsedMemoryAndCalls|ProofNeedsEveryKey|ProofNeedsSlotsAtRest|Settled|ReadMovingSlots|ProgressInWholeWords|FleetTrainsByItself|Stores|StoreInAutoPipeline|Hung|HungOfCluster|LeftWritesAreNotSentAgain|ServerGone|Profiles|ThroughTwemproxy|Mix|ClusterChanges|SharedGC|Share|Shared|LateAnswer|Install|InstallReplicas|NodesCluster|ReplicasOfCluster|ReplicasBehind|DictStoreAsksMasters|Differential|PoolDifferential|ClusterDescribed|SlotProofAfterFailOver|Crash|OwnWritesAgainstReaders|LimitBeforeDeadlines|Batches
ALL_LONG := ^Test($(LONG_AT_ONCE))$$|$(LONG)
LONG_PACKAGES = $(shell grep -rlE --include='*_test.go' --exclude-dir='.?*' '^func Test($(LONG_NAMES)|$(LONG_AT_ONCE)|Scripts)\b' . | xargs -n 1 dirname | sort -u)

# What computes, or reads much in one goroutine: with the race detector it takes ten times as long, and its packages have other tests
# for what they do at once.
COMPUTING := ^Test(Study|HostileDescriptions|Interferes|AlternatingValues|ProfilesWithoutFiles|TrainEndsWithLargeDictionaries|TablesOfLevel|SearchEnds|BuildersEnd|Dense|CrossValidation|TrainRefuses|TrainEndsAtOnce|AlternatingSamples|TrainGuards|HalfOfShortValues|TrainValidates|Cover|EncoderMemory|Memory|LargeSlots|ThereAndBack|LargeValues|LargeRevert|ExcludedFields|RereadsInPortions|StoreInBatches|LargeReplies|IdleMemory|MemoryOfDictionaries|Holds|HoldsLZ4|RoundTripLarge|Frozen|FolderIsBounded|ForgedSample|DictionariesAreBounded|EveryPackerReadsWhatEveryPackerWrote|MaxPackedLen|EveryPayloadFits)$$|^Test(Estimate|OneWrongValueFailsTheCell|Encode|ForgedTables|DamagedDictionary|LibraryFrames|DamagedFrames|OverTheEnd|EncoderRepeats|Train|TrainAgainstCurrent|TrainRefit|TrainSizes|WholesForged|ExcludedInOtherHalf|BuildersFrozen|Exclude|ExcludeNames|EnginesReadEachOther|TrainerIsDeterministic|ManyValues)$$|^Test(DictionaryPays|BytesAfterTheEnd|ForgedLength|LongRepeats|ZstdPayloadLeavesOutMagicAndID)$$|^TestRoundTrip$$/(best|better)|^Test(Hash|KeySpaceOfCluster|Sizes|Limits)$$

.PHONY: test long vet race fuzz bench figures lint servers servers-fetch campaign mutants release tidy

# The tests and the import rules (internal/lint), but for those that take long. Most wait for servers, so that more packages than
# processors are tested at once. The examples, the rivals and the campaign take a minute to compile, and make long has their tests.
# adapter/valkey takes half a minute, is made of adapter/rueidis, and make race has its tests (in nightly CI). The compiler collects
# garbage when it has 1.5 GiB, which takes a quarter less time. It inlines nothing in the commands, go-redis and rueidis, where it would
# spend most of its time on methods of go-redis (docs/figures.md); dataset has tests that count allocations, which then differ.
test:
	@command -v redis-server >/dev/null || echo "There is no redis-server in PATH (Debian: apt-get install redis-server): tests that need a real one are left out."
	@echo "Left out: tests that take long (make long)."
	@go test -vet=off -gcflags='github.com/balekv/bale/cmd/...=-l' -gcflags='github.com/balekv/bale/cmd/internal/dataset/...=' -gcflags='github.com/redis/...=-l' \
		-toolexec='env GOGC=off GOMEMLIMIT=1536MiB' -timeout=10m -p 4 -parallel 4 -skip='$(ALL_LONG)' $(GOTESTFLAGS) \
		$(filter-out ./examples/% ./testkit/rivals/% ./adapter/valkey/% ./testkit/campaign/%,$(PACKAGES))

# The tests that make test leaves out.
long:
	go test -vet=off -count=1 -timeout=60m -run='$(ALL_LONG)' $(GOTESTFLAGS) $(LONG_PACKAGES)

# With it the test that every exported name is in an example, which needs the same packages compiled.
vet:
	go vet $(PACKAGES)
	go test -vet=off -run='^TestExamples$$' ./internal/lint

# Servers of other versions, in SERVERS_DIR. Nothing is installed.
servers-fetch:
	@bash .ci/servers $(SERVERS_DIR)

# What talks to a server, on each of SERVERS, one after another: make servers SERVERS=valkey-9.1.2 SERVER_PACKAGES=./adapter/goredis
servers: $(if $(filter-out path,$(SERVERS)),servers-fetch)
	@set -e; for s in $(SERVERS); do \
		path="$$PATH"; [ "$$s" = path ] || path="$(abspath $(SERVERS_DIR))/$$s:$$PATH"; \
		echo "== $$(PATH="$$path" redis-server --version)"; \
		PATH="$$path" BALE_REQUIRE_REDIS=1 go test -vet=off -count=1 $(GOTESTFLAGS) $(SERVER_PACKAGES); \
	done

# The packages whose code does things at once, but for those that compute and share no more than pools: one test of advise is for what
# it does at once.
RACE_PACKAGES = $(filter-out ./extra/formats/% $(patsubst %,./cmd/internal/%,advise content dataset/% engine printable rank) ./extra/czstd,$(shell grep -rlE --include='*.go' --exclude='*_test.go' --exclude-dir='.?*' '^[[:space:]]+go [a-zA-Z]|[.]Go.func|"sync(/atomic)?"' . | xargs -n 1 dirname | sort -u))

RACE_ADVISE = ./cmd/internal/advise

# What the race detector leaves out.
RACE_SKIP = $(COMPUTING)|$(LONG)

# The race detector lets a program wait at its end for what may yet come, a second by default; the tests run hundreds of programs.
race: export GORACE ?= atexit_sleep_ms=50
race:
	go test -race -vet=off -timeout=60m -skip='$(RACE_SKIP)' $(GOTESTFLAGS) $(RACE_PACKAGES)
	$(if $(RACE_ADVISE),go test -race -vet=off $(GOTESTFLAGS) -run='^TestServersAtOnce$$' $(RACE_ADVISE))

# A million hostile inputs, and each fuzz target for a while.
fuzz:
	BALE_FUZZ_N=1000000 go test -run TestHostileInput -v . ./extra/czstd
	@set -e; for t in FuzzUnpack FuzzRoundTrip FuzzMutated; do go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s .; done
	go test -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s ./frame
	go test -run '^$$' -fuzz '^FuzzMatch$$' -fuzztime 60s ./internal/glob
	go test -run '^$$' -fuzz '^FuzzRedact$$' -fuzztime 60s ./dict
	go test -run '^$$' -fuzz '^FuzzDictionary$$' -fuzztime 60s -fuzzminimizetime 1x ./compress
	cd extra/resilient && go test -run '^$$' -fuzz '^FuzzArguments$$' -fuzztime 60s ./httpc
	go test -run '^$$' -fuzz '^FuzzRead$$' -fuzztime 60s ./stats/eventfile
	go test -run '^$$' -fuzz '^FuzzManifest$$' -fuzztime 60s ./stream
	go test -run '^$$' -fuzz '^FuzzJournal$$' -fuzztime 60s ./stream
	@set -e; for t in FuzzDecode FuzzEncode; do go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s -fuzzminimizetime 1x ./internal/zstd; done
	@set -e; for t in FuzzEngines FuzzPayload FuzzDecoder; do (cd extra/czstd && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s -fuzzminimizetime 1x .); done
	@set -e; for p in msgpack cbor protobuf fastjson; do (cd extra/formats && go test -run '^$$' -fuzz '^FuzzDecode$$' -fuzztime 60s -fuzzminimizetime 10x ./$$p); done
	@set -e; for t in FuzzDetect FuzzSnappy FuzzReencode; do (cd cmd && go test -run '^$$' -fuzz "^$$t\$$" -fuzztime 60s -fuzzminimizetime 1x ./internal/content); done
	cd cmd && go test -run '^$$' -fuzz '^FuzzAdd$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/keygroup
	cd cmd && go test -run '^$$' -fuzz '^FuzzURL$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/keyspace
	cd cmd && go test -run '^$$' -fuzz '^FuzzHeader$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/rdb
	cd cmd && go test -run '^$$' -fuzz '^FuzzRead$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/compare
	cd cmd && go test -run '^$$' -fuzz '^FuzzParseForm$$' -fuzztime 60s -fuzzminimizetime 1x ./internal/engine

# A fleet of programs, tools and faults beside a model, for as long as you like: make campaign FOR=10m ARGS='--seed 42 --servers cluster'.
FOR ?= 2m
campaign:
	go run ./testkit/campaign --for $(FOR) $(ARGS)

# Puts known defects back into a copy of the repository, and shows that the campaign or a test finds each.
mutants:
	BALE_MUTANTS=1 go test -run TestMutants -v -timeout 2h ./testkit/campaign

# The benchmarks behind docs/figures.md.
bench:
	@set -e; for m in $(MODULES); do (cd $$m && go test -run '^$$' -bench . -benchmem ./...); done

# Every module gets the version, in one commit with a tag for each. It pushes nothing: make release VERSION=v0.1.0
release: vet test long
	.ci/release $(VERSION)

# go.mod and go.sum of every module, as go mod tidy writes them.
tidy:
	.ci/release tidy

lint:
	@set -e; for m in $(MODULES); do (cd $$m && golangci-lint run ./...); done
