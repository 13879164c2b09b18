// Package czstd is the fast engine: libzstd, through cgo, behind the interfaces of package
// compress. With a dictionary it compresses a small value several times faster than pure Go, and
// smaller.
//
// [New] makes a compressor; [Engine] makes those of any setting, for options that take an engine:
//
//	packer, err := bale.NewPacker(bale.PackerOptions{Engine: czstd.Engine})
//
// [Builders] are libzstd's trainers of dictionaries, for dict.Train.
//
// What it writes package compress/zstd reads, and the reverse: programs with and without cgo share
// their values. Built without cgo it is that pure-Go engine itself, and [Native] is false. With cgo
// it needs a C compiler, and an operating system that valyala/gozstd brings libzstd for: Linux
// (amd64, arm64, with glibc or musl), macOS, FreeBSD or Windows. This package calls libzstd by
// itself, for two things that gozstd has no calls for: frames without magic number and dictionary
// id, which are what a bale frame holds, and the choice of trainer.
package czstd
