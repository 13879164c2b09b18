// Package czstd is libzstd, through cgo, behind the interfaces of package compress. It is the
// yardstick of the pure-Go engine, and for values without a dictionary or above 16 KiB it is the
// faster one.
//
// [Engine] makes the compressor of a setting, for options that take an engine:
//
//	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Engine: czstd.Engine}})
//
// [Builders] are libzstd's trainers of dictionaries, for dict.Train.
//
// Package compress/zstd reads the output of this package, and the reverse: programs with and
// without cgo share their values. Without cgo this package is that pure-Go engine itself, and
// [Native] is false. With cgo it needs a C compiler, and an operating system that valyala/gozstd
// has libzstd for: Linux (amd64, arm64, with glibc or musl), macOS, FreeBSD or Windows. This
// package calls libzstd directly for two features that gozstd lacks. One is frames without magic
// number and dictionary id, the content of a bale frame. The other is the choice of trainer.
package czstd
