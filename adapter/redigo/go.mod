module github.com/balekv/bale/adapter/redigo

go 1.26.0

require (
	github.com/balekv/bale v0.0.0
	github.com/balekv/bale/testkit v0.0.0
	github.com/gomodule/redigo v1.9.3
	go.uber.org/goleak v1.3.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
)
