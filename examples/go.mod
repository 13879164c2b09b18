module github.com/balekv/bale/examples

go 1.26.0

require (
	github.com/balekv/bale v0.0.0
	github.com/balekv/bale/goredis v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

replace (
	github.com/balekv/bale => ../
	github.com/balekv/bale/goredis => ../goredis
)
