module github.com/balekv/bale/extra/czstd

go 1.26.0

require (
	github.com/balekv/bale v0.0.0
	github.com/klauspost/compress v1.20.3
	github.com/valyala/gozstd v1.24.0
)

require github.com/pierrec/lz4/v4 v4.1.33 // indirect
