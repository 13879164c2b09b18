module github.com/balekv/bale/extra/resilient

go 1.26.0
