module github.com/balekv/bale/extra/resilient

go 1.26.0

require (
	github.com/balekv/bale v0.0.0
	github.com/balekv/bale/adapter/goredis v0.0.0
	github.com/balekv/bale/testkit v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
