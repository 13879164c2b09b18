//go:build cgo

package engine

import (
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/extra/czstd"
)

var libzstd compress.Engine = czstd.Engine

// Libzstd is the version of "/cgo".
var Libzstd = czstd.Version()
