//go:build cgo

package czstd

/*
#include <stddef.h>

typedef struct { int compressionLevel; unsigned notificationLevel; unsigned dictID; } ZDICT_params_t;
typedef struct {
	unsigned k, d, steps, nbThreads;
	double splitPoint;
	unsigned shrinkDict, shrinkDictMaxRegression;
	ZDICT_params_t zParams;
} ZDICT_cover_params_t;
typedef struct {
	unsigned k, d, f, steps, nbThreads;
	double splitPoint;
	unsigned accel, shrinkDict, shrinkDictMaxRegression;
	ZDICT_params_t zParams;
} ZDICT_fastCover_params_t;

size_t ZDICT_trainFromBuffer(void*, size_t, const void*, const size_t*, unsigned);
size_t ZDICT_trainFromBuffer_cover(void*, size_t, const void*, const size_t*, unsigned, ZDICT_cover_params_t);
size_t ZDICT_trainFromBuffer_fastCover(void*, size_t, const void*, const size_t*, unsigned, ZDICT_fastCover_params_t);
unsigned ZDICT_isError(size_t);
const char* ZDICT_getErrorName(size_t);

static size_t bale_cover(void* dst, size_t size, const void* samples, const size_t* sizes, unsigned n, unsigned k, unsigned d) {
	ZDICT_cover_params_t p = { .k = k, .d = d };
	return ZDICT_trainFromBuffer_cover(dst, size, samples, sizes, n, p);
}

static size_t bale_fastCover(void* dst, size_t size, const void* samples, const size_t* sizes, unsigned n, unsigned k, unsigned d) {
	ZDICT_fastCover_params_t p = { .k = k, .d = d, .f = 20, .accel = 1 };
	return ZDICT_trainFromBuffer_fastCover(dst, size, samples, sizes, n, p);
}
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/balekv/bale/dict"
)

// Builders are libzstd's builders of dictionaries, for dict.TrainOptions. One is its default
// trainer (ZDICT_trainFromBuffer, as in the zstd tool). The others are fastcover and cover with
// segments of many sizes. libzstd's own search stops at segments of 2000 bytes; documents that
// repeat each other need larger ones. Builders check the context before they call libzstd. The call
// itself takes up to some seconds and cannot be interrupted.
func Builders() []dict.Builder {
	all := []dict.Builder{{Name: "libzstd default", Build: builder(defaultTrainer), Baseline: true}}
	for _, k := range []int{64, 128, 256, 512, 1024, 2048, 4096, 8192} {
		for _, d := range []int{6, 8} {
			all = append(all, dict.Builder{Name: "libzstd fastcover", Params: fmt.Sprintf("k=%d d=%d", k, d), Build: builder(fastCoverTrainer(k, d))})
		}
	}
	for _, k := range []int{128, 512, 2048, 4096} {
		all = append(all, dict.Builder{Name: "libzstd cover", Params: fmt.Sprintf("k=%d d=8", k), Slow: true, Build: alone(coverTrainer(k, 8))})
	}
	return all
}

func builder(t trainer) func(context.Context, [][]byte, int) ([]byte, error) {
	return func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
		return train(ctx, samples, size, t)
	}
}

// alone is a builder of which one runs at a time.
func alone(t trainer) func(context.Context, [][]byte, int) ([]byte, error) {
	return func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
		select {
		case covering <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-covering }()
		return train(ctx, samples, size, t)
	}
}

// trainer is one of libzstd's functions that make a dictionary.
type trainer func(dst unsafe.Pointer, size C.size_t, samples unsafe.Pointer, sizes *C.size_t, n C.uint) C.size_t

// train makes a dictionary of at most size bytes. It cannot be interrupted once libzstd has begun.
func train(ctx context.Context, samples [][]byte, size int, t trainer) ([]byte, error) {
	var flat []byte
	var sizes []C.size_t
	for _, s := range samples {
		if len(s) > 0 {
			flat = append(flat, s...)
			sizes = append(sizes, C.size_t(len(s)))
		}
	}
	if len(sizes) == 0 {
		return nil, errors.New("no samples")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dst := make([]byte, size)
	r := t(unsafe.Pointer(&dst[0]), C.size_t(size), unsafe.Pointer(&flat[0]), &sizes[0], C.uint(len(sizes)))
	if C.ZDICT_isError(r) != 0 {
		return nil, fmt.Errorf("libzstd: %s", C.GoString(C.ZDICT_getErrorName(r)))
	}
	return dst[:r], nil
}

func defaultTrainer(dst unsafe.Pointer, size C.size_t, samples unsafe.Pointer, sizes *C.size_t, n C.uint) C.size_t {
	return C.ZDICT_trainFromBuffer(dst, size, samples, sizes, n)
}

// covering is a lock for making a cover. If the C library has no qsort_r, libzstd sorts through a
// global variable (g_coverCtx in cover.c). gozstd's archives for some systems are built like this.
var covering = make(chan struct{}, 1)

func coverTrainer(k, d int) trainer {
	return func(dst unsafe.Pointer, size C.size_t, samples unsafe.Pointer, sizes *C.size_t, n C.uint) C.size_t {
		return C.bale_cover(dst, size, samples, sizes, n, C.uint(k), C.uint(d))
	}
}

func fastCoverTrainer(k, d int) trainer {
	return func(dst unsafe.Pointer, size C.size_t, samples unsafe.Pointer, sizes *C.size_t, n C.uint) C.size_t {
		return C.bale_fastCover(dst, size, samples, sizes, n, C.uint(k), C.uint(d))
	}
}
