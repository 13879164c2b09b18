//go:build cgo

package engine

/*
// The library itself comes with valyala/gozstd, as it does for module czstd: until the program is
// linked its symbols are unresolved.
#cgo linux freebsd LDFLAGS: -Wl,-unresolved-symbols=ignore-all
#cgo windows LDFLAGS: -Wl,--unresolved-symbols=ignore-all
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
#cgo noescape bale_naiveCompress
#cgo nocallback bale_naiveCompress
#cgo noescape bale_naiveDecompress
#cgo nocallback bale_naiveDecompress

#include <stddef.h>
#include <stdint.h>

// Declarations of libzstd 1.5.7 (zstd.h), which gozstd v1.24.0 has in its archive.
typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;
unsigned ZSTD_isError(size_t);
const char* ZSTD_getErrorName(size_t);
size_t ZSTD_compressBound(size_t);
ZSTD_CCtx* ZSTD_createCCtx(void);
size_t ZSTD_freeCCtx(ZSTD_CCtx*);
size_t ZSTD_CCtx_setParameter(ZSTD_CCtx*, int, int);
size_t ZSTD_CCtx_loadDictionary(ZSTD_CCtx*, const void*, size_t);
size_t ZSTD_compress2(ZSTD_CCtx*, void*, size_t, const void*, size_t);
ZSTD_DCtx* ZSTD_createDCtx(void);
size_t ZSTD_freeDCtx(ZSTD_DCtx*);
size_t ZSTD_DCtx_setParameter(ZSTD_DCtx*, int, int);
size_t ZSTD_DCtx_loadDictionary(ZSTD_DCtx*, const void*, size_t);
size_t ZSTD_decompressDCtx(ZSTD_DCtx*, void*, size_t, const void*, size_t);

enum {
	bale_c_format = 10,            // ZSTD_c_format
	bale_c_compressionLevel = 100, // ZSTD_c_compressionLevel
	bale_c_dictIDFlag = 202,       // ZSTD_c_dictIDFlag
	bale_d_format = 1000,          // ZSTD_d_format
	bale_magicless = 1,            // ZSTD_f_zstd1_magicless
	bale_noMemory = -64            // ZSTD_error_memory_allocation
};

// Each call has a context of its own, which is freed before it returns; the dictionary is digested
// in it. An error is negative.

static int64_t bale_naiveCompress(int level, void* dst, size_t room, const void* src, size_t n, const void* dict, size_t dictSize) {
	ZSTD_CCtx* c = ZSTD_createCCtx();
	if (!c) return bale_noMemory;
	size_t r = ZSTD_CCtx_setParameter(c, bale_c_format, bale_magicless);
	if (!ZSTD_isError(r)) r = ZSTD_CCtx_setParameter(c, bale_c_compressionLevel, level);
	if (!ZSTD_isError(r)) r = ZSTD_CCtx_setParameter(c, bale_c_dictIDFlag, 0);
	if (!ZSTD_isError(r) && dictSize) r = ZSTD_CCtx_loadDictionary(c, dict, dictSize);
	if (!ZSTD_isError(r)) r = ZSTD_compress2(c, dst, room, src, n);
	ZSTD_freeCCtx(c);
	return (int64_t)r;
}

static int64_t bale_naiveDecompress(void* dst, size_t room, const void* src, size_t n, const void* dict, size_t dictSize) {
	ZSTD_DCtx* d = ZSTD_createDCtx();
	if (!d) return bale_noMemory;
	size_t r = ZSTD_DCtx_setParameter(d, bale_d_format, bale_magicless);
	if (!ZSTD_isError(r) && dictSize) r = ZSTD_DCtx_loadDictionary(d, dict, dictSize);
	if (!ZSTD_isError(r)) r = ZSTD_decompressDCtx(d, dst, room, src, n);
	ZSTD_freeDCtx(d);
	return (int64_t)r;
}

static const char* bale_naiveError(int64_t r) { return ZSTD_getErrorName((size_t)r); }
*/
import "C"

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"unsafe"

	"github.com/valyala/gozstd"
)

// libzstdLevel is the level of a zstd setting as libzstd counts, by the names that czstd.Engine
// takes.
func libzstdLevel(name string) int {
	switch name {
	case "fastest":
		return 1
	case "better":
		return 7
	case "best":
		return 19
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n
	}
	return 3
}

// naiveZstd calls libzstd as ZSTD_compress and ZSTD_decompress do: with a context for each value.
func (s Setting) naiveZstd(dict []byte) (compressFunc, decompressFunc) {
	if !s.Cgo {
		return naiveGoZstd(s.Setting, dict)
	}
	level, d, dictSize := C.int(libzstdLevel(s.Level)), unsafe.Pointer(unsafe.SliceData(dict)), C.size_t(len(dict))
	encode := func(dst, src []byte) ([]byte, error) {
		n := len(dst)
		dst = slices.Grow(dst, int(C.ZSTD_compressBound(C.size_t(len(src)))))
		room := dst[n:cap(dst)]
		r := C.bale_naiveCompress(level, pointer(room), C.size_t(len(room)), pointer(src), C.size_t(len(src)), d, dictSize)
		if r < 0 {
			return dst[:n], libzstdError(r)
		}
		return dst[:n+int(r)], nil
	}
	decode := func(dst, src []byte, size int) ([]byte, error) {
		n := len(dst)
		dst = slices.Grow(dst, size)
		r := C.bale_naiveDecompress(pointer(dst[n:n+size]), C.size_t(size), pointer(src), C.size_t(len(src)), d, dictSize)
		switch {
		case r < 0:
			return dst[:n], libzstdError(r)
		case int(r) != size:
			return dst[:n], fmt.Errorf("libzstd: payload holds %d bytes, %d expected", int(r), size)
		}
		return dst[:n+size], nil
	}
	return encode, decode
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// libzstdError is a negative result as an error.
func libzstdError(r C.int64_t) error {
	return fmt.Errorf("libzstd: %s", C.GoString(C.bale_naiveError(r)))
}

// streamZstd sets streams of libzstd up: gozstd's, which frees what is pooled with the garbage
// collector.
func (s Setting) streamZstd(c *streams, dict []byte) (err error) {
	if !s.Cgo {
		c.goZstd(s.Setting, dict)
		return nil
	}
	level := libzstdLevel(s.Level)
	var cd *gozstd.CDict
	var dd *gozstd.DDict
	if len(dict) > 0 {
		if cd, err = gozstd.NewCDictLevel(dict, level); err != nil {
			return err
		}
		if dd, err = gozstd.NewDDict(dict); err != nil {
			cd.Release()
			return err
		}
		c.release = func() {
			cd.Release()
			dd.Release()
		}
	}
	c.writers.New = func() any {
		w := gozstd.NewWriterParams(io.Discard, &gozstd.WriterParams{CompressionLevel: level, Dict: cd})
		return &encoder{writer: w, reset: func(to io.Writer) { w.Reset(to, cd, level) }}
	}
	c.readers.New = func() any {
		r := gozstd.NewReaderDict(nil, dd)
		return &decoder{reader: r, reset: func(from io.Reader) error { r.Reset(from, dd); return nil }}
	}
	return nil
}
