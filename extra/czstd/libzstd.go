//go:build cgo

package czstd

/*
// The library itself comes with valyala/gozstd, whose archive is linked when the program is: until
// then its symbols are unresolved.
#cgo linux freebsd LDFLAGS: -Wl,-unresolved-symbols=ignore-all
#cgo windows LDFLAGS: -Wl,--unresolved-symbols=ignore-all
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
#cgo noescape bale_compress
#cgo nocallback bale_compress
#cgo noescape bale_decompress
#cgo nocallback bale_decompress

#include <stddef.h>
#include <stdint.h>

// Declarations of libzstd 1.5.7 (zstd.h and zdict.h, static linking), which gozstd v1.24.0 has in
// its archive. TestVersion fails if another comes with it.
typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;
typedef struct ZSTD_CDict_s ZSTD_CDict;
typedef struct ZSTD_DDict_s ZSTD_DDict;
typedef struct { int contentSizeFlag; int checksumFlag; int noDictIDFlag; } ZSTD_frameParameters;

const char* ZSTD_versionString(void);
unsigned ZSTD_isError(size_t);
const char* ZSTD_getErrorName(size_t);
ZSTD_CCtx* ZSTD_createCCtx(void);
size_t ZSTD_freeCCtx(ZSTD_CCtx*);
size_t ZSTD_CCtx_setParameter(ZSTD_CCtx*, int, int);
size_t ZSTD_compress2(ZSTD_CCtx*, void*, size_t, const void*, size_t);
size_t ZSTD_compress_usingCDict_advanced(ZSTD_CCtx*, void*, size_t, const void*, size_t, const ZSTD_CDict*, ZSTD_frameParameters);
ZSTD_DCtx* ZSTD_createDCtx(void);
size_t ZSTD_freeDCtx(ZSTD_DCtx*);
size_t ZSTD_DCtx_setParameter(ZSTD_DCtx*, int, int);
size_t ZSTD_decompressDCtx(ZSTD_DCtx*, void*, size_t, const void*, size_t);
size_t ZSTD_decompress_usingDDict(ZSTD_DCtx*, void*, size_t, const void*, size_t, const ZSTD_DDict*);
ZSTD_CDict* ZSTD_createCDict(const void*, size_t, int);
size_t ZSTD_freeCDict(ZSTD_CDict*);
ZSTD_DDict* ZSTD_createDDict(const void*, size_t);
size_t ZSTD_freeDDict(ZSTD_DDict*);
size_t ZSTD_sizeof_CDict(const ZSTD_CDict*);
size_t ZSTD_sizeof_DDict(const ZSTD_DDict*);

enum {
	bale_c_format = 10,            // ZSTD_c_format
	bale_c_compressionLevel = 100, // ZSTD_c_compressionLevel
	bale_d_format = 1000,          // ZSTD_d_format
	bale_magicless = 1,            // ZSTD_f_zstd1_magicless
	bale_noRoom = -70              // ZSTD_error_dstSize_tooSmall
};

static ZSTD_CCtx* bale_newCCtx(int level) {
	ZSTD_CCtx* c = ZSTD_createCCtx();
	if (c && (ZSTD_isError(ZSTD_CCtx_setParameter(c, bale_c_format, bale_magicless)) ||
			ZSTD_isError(ZSTD_CCtx_setParameter(c, bale_c_compressionLevel, level)))) {
		ZSTD_freeCCtx(c);
		c = NULL;
	}
	return c;
}

static ZSTD_DCtx* bale_newDCtx(void) {
	ZSTD_DCtx* d = ZSTD_createDCtx();
	if (d && ZSTD_isError(ZSTD_DCtx_setParameter(d, bale_d_format, bale_magicless))) {
		ZSTD_freeDCtx(d);
		d = NULL;
	}
	return d;
}

// A size comes back as it is; an error is negative.

// With a dictionary the frame has a magic number, which that call cannot leave out.
static int64_t bale_compress(ZSTD_CCtx* c, void* dst, size_t room, const void* src, size_t n, const ZSTD_CDict* dict) {
	const ZSTD_frameParameters f = { 1, 0, 1 };
	return dict ? (ptrdiff_t)ZSTD_compress_usingCDict_advanced(c, dst, room, src, n, dict, f)
	            : (ptrdiff_t)ZSTD_compress2(c, dst, room, src, n); // negative for an error, on 32 bits, too
}

static int64_t bale_decompress(ZSTD_DCtx* d, void* dst, size_t room, const void* src, size_t n, const ZSTD_DDict* dict) {
	return dict ? (ptrdiff_t)ZSTD_decompress_usingDDict(d, dst, room, src, n, dict)
	            : (ptrdiff_t)ZSTD_decompressDCtx(d, dst, room, src, n);
}

static const char* bale_error(int64_t r) { return ZSTD_getErrorName((size_t)r); }
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	_ "github.com/valyala/gozstd" // brings the library

	"github.com/balekv/bale/internal/claim"

	"github.com/balekv/bale/frame"
)

// errMemory says that libzstd could not allocate.
var errMemory = errors.New("libzstd got no memory")

// state is what a compressor has of libzstd.
type state struct {
	digested atomic.Pointer[digested] // nil once closed
	contexts sync.Pool                // of *cctx
}

// digested is a dictionary ready for use, zero for none. The garbage collector frees it, so that it
// outlives the calls that use it, at no cost for them. Like a cctx it must have 16 bytes or more.
type digested struct {
	compress   *C.ZSTD_CDict
	decompress *C.ZSTD_DDict
	size       int64 // bytes outside of Go's heap
}

// closed counts the bytes of closed dictionaries since the last collection that Close asked for.
// The garbage collector does not see that memory, and so might not run for long.
var closed atomic.Int64

// maxClosed is where Close asks for a collection: dictionaries of usual size have 0.3 to 2 MB.
const maxClosed = 64 << 20

// cctx and dctx are libzstd's memory for one call at a time. The garbage collector frees it. The
// padding matters: to Go their pointers are none, for it does not know what they point at, and
// objects below 16 bytes without pointers share blocks. One live neighbour would keep the block,
// and the cleanup would not run.
type (
	cctx struct {
		p *C.ZSTD_CCtx
		_ [16]byte
	}
	dctx struct {
		p *C.ZSTD_DCtx
		_ [16]byte
	}
)

// decoders are contexts for decompressing, which have no settings of their own.
var decoders = sync.Pool{New: func() any {
	d := &dctx{p: C.bale_newDCtx()}
	if d.p == nil {
		return (*dctx)(nil)
	}
	runtime.AddCleanup(d, func(p *C.ZSTD_DCtx) { C.ZSTD_freeDCtx(p) }, d.p)
	return d
}}

// open digests a dictionary, if there is one.
func (s *state) open(level int, from *frame.Dictionary) error {
	s.contexts.New = func() any {
		c := &cctx{p: C.bale_newCCtx(C.int(level))}
		if c.p == nil {
			return (*cctx)(nil)
		}
		runtime.AddCleanup(c, func(p *C.ZSTD_CCtx) { C.ZSTD_freeCCtx(p) }, c.p)
		return c
	}
	d, dictionary := &digested{}, from.Bytes()
	if len(dictionary) > 0 {
		p, n := unsafe.Pointer(unsafe.SliceData(dictionary)), C.size_t(len(dictionary))
		d.compress, d.decompress = C.ZSTD_createCDict(p, n, C.int(level)), C.ZSTD_createDDict(p, n)
		runtime.AddCleanup(d, func(d digested) {
			C.ZSTD_freeCDict(d.compress) // nil is fine
			C.ZSTD_freeDDict(d.decompress)
		}, *d)
		if d.compress == nil || d.decompress == nil {
			return errors.New("libzstd cannot read it")
		}
		d.size = int64(C.ZSTD_sizeof_CDict(d.compress) + C.ZSTD_sizeof_DDict(d.decompress))
	}
	s.digested.Store(d)
	return nil
}

// magicSize is that of the magic number which a call with a dictionary writes.
const magicSize = 4

// compressBound is ZSTD_COMPRESSBOUND of zstd.h.
func compressBound(n int) int {
	bound := n + n>>8
	if n < 128<<10 {
		bound += (128<<10 - n) >> 11
	}
	return bound
}

// Compress appends the frame of src, without its magic number and dictionary id, to dst. It
// allocates nothing when dst has room for len(src)+len(src)/256+64 more bytes.
func (c *compressor) Compress(dst, src []byte) ([]byte, error) {
	d := c.digested.Load()
	if d == nil {
		return dst, errClosed
	}
	ctx := c.contexts.Get().(*cctx)
	if ctx == nil {
		return dst, errMemory
	}
	n := len(dst)
	dst = slices.Grow(dst, compressBound(len(src)))
	room := dst[n:cap(dst)]
	r := C.bale_compress(ctx.p, address(room), C.size_t(len(room)), address(src), C.size_t(len(src)), d.compress)
	runtime.KeepAlive(d)
	c.contexts.Put(ctx)
	if r < 0 {
		return dst[:n], libError(r)
	}
	size := int(r)
	if d.compress != nil {
		size = copy(room, room[magicSize:size])
	}
	return dst[:n+size], nil
}

// Decompress appends the size bytes that the frame src holds to dst.
func (c *compressor) Decompress(dst, src []byte, size int) ([]byte, error) {
	d := c.digested.Load()
	if d == nil {
		return dst, errClosed
	}
	ctx := decoders.Get().(*dctx)
	if ctx == nil {
		return dst, errMemory
	}
	n := len(dst)
	room := size
	if cap(dst)-n < size {
		room = claim.First(size, len(src))
	}
	var r C.int64_t
	for {
		dst = slices.Grow(dst, room)
		buf := dst[n : n+room]
		r = C.bale_decompress(ctx.p, address(buf), C.size_t(room), address(src), C.size_t(len(src)), d.decompress)
		if r != C.bale_noRoom || room == size {
			break
		}
		room = claim.Next(size, room)
	}
	runtime.KeepAlive(d)
	decoders.Put(ctx)
	if r < 0 {
		return dst[:n], libError(r)
	}
	if int(r) != size {
		return dst[:n], fmt.Errorf("czstd: payload holds %d bytes, %d expected", int(r), size)
	}
	return dst[:n+size], nil
}

// Close releases the dictionary. You may call it while the compressor is in use, and more than
// once. Calls in progress finish; later calls return an error that is [os.ErrClosed]. The garbage
// collector frees the memory after the last of them.
func (c *compressor) Close() error {
	if d := c.digested.Swap(nil); d != nil && d.size > 0 {
		if sum := closed.Add(d.size); sum >= maxClosed && closed.CompareAndSwap(sum, 0) {
			runtime.GC()
		}
	}
	return nil
}

// libError is a negative result as an error.
func libError(result C.int64_t) error {
	return fmt.Errorf("czstd: %s", C.GoString(C.bale_error(result)))
}

// Native reports whether compressors of this package are libzstd, and not pure Go: true with cgo.
const Native = true

// Version is that of the libzstd in use, "1.5.7"; empty without cgo.
func Version() string { return C.GoString(C.ZSTD_versionString()) }

// address is where a slice's bytes are. They have no pointers, which C may not be given.
func address(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
