module github.com/balekv/bale/extra/near

go 1.26.0

require (
	github.com/balekv/bale v0.0.0
	github.com/balekv/bale/adapter/rueidis v0.0.0
	github.com/google/go-cmp v0.7.0
	github.com/maypok86/otter/v2 v2.4.0
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
