package compress

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/balekv/bale/frame"
)

var (
	// ErrUnknownAlgorithm means that no compressor here reads the algorithm.
	ErrUnknownAlgorithm = errors.New("unknown algorithm")

	// ErrUnknownDictionary means that no compressor here has the dictionary.
	ErrUnknownDictionary = errors.New("unknown dictionary")
)

// Set is a fixed set of compressors: one writes, all read. It is the simplest source of compressors
// for a bale.Packer. The zero Set writes zstd at its default level and reads every algorithm of
// this module. Set its fields before the first use. It is safe for concurrent use.
type Set struct {
	// Write writes. Defaults to zstd at the Engine's default level. The caller closes it.
	Write Compressor

	// Read reads, beside Write: one for each pair of algorithm and dictionary that stored values
	// may have. The Set reads every algorithm of this module without a dictionary anyway. The
	// caller closes them.
	Read []Compressor

	// Engine makes the other compressors. Defaults to pure Go; module czstd has another.
	Engine Engine

	once     sync.Once
	err      error // of the fields
	written  key
	readers  map[key]Compressor
	defaults map[frame.Algorithm]func() (Compressor, error) // makes each at its first use

	mu     sync.Mutex
	made   []Compressor
	closed bool
}

// key identifies the compressor of a payload.
type key struct {
	algorithm  frame.Algorithm
	dictionary frame.DictionaryID
}

func (s *Set) init() {
	s.readers, s.defaults = map[key]Compressor{}, map[frame.Algorithm]func() (Compressor, error){}
	for _, a := range algorithms {
		s.defaults[a] = sync.OnceValues(func() (Compressor, error) { return s.make(a) })
	}
	if s.Write == nil {
		if s.Write, s.err = s.defaults[frame.Zstd](); s.err != nil {
			s.Write = nil
			return
		}
	}
	for _, c := range append([]Compressor{s.Write}, s.Read...) {
		if c == nil {
			s.Write, s.err = nil, fmt.Errorf("%w: a compressor in Read is nil", ErrSetting)
			return
		}
		if k := (key{c.Algorithm(), c.DictionaryID()}); s.readers[k] == nil { // the writer goes first
			s.readers[k] = c
		}
	}
	s.written = key{s.Write.Algorithm(), s.Write.DictionaryID()}
}

func (s *Set) make(a frame.Algorithm) (Compressor, error) {
	c, err := s.Engine.New(Setting{Algorithm: a}, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return c, c.Close()
	}
	s.made = append(s.made, c)
	return c, nil
}

// Writer implements bale.Compressors. It is nil if the Set's fields are invalid, and Reader returns
// the reason.
func (s *Set) Writer() Compressor {
	s.once.Do(s.init)
	return s.Write
}

// Reader implements bale.Compressors.
func (s *Set) Reader(_ context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error) {
	s.once.Do(s.init)
	if s.err != nil {
		return nil, s.err
	}
	k := key{a, id}
	if k == s.written { // most values have the writer's settings
		return s.Write, nil
	}
	if c := s.readers[k]; c != nil {
		return c, nil
	}
	switch known := s.defaults[a]; {
	case known == nil:
		return nil, fmt.Errorf("%w: add its compressor to Read of compress.Set, or upgrade bale", ErrUnknownAlgorithm)
	case id != 0:
		return nil, fmt.Errorf("%w: add a compressor that has it to Read of compress.Set", ErrUnknownDictionary)
	default:
		return known()
	}
}

// Packed implements bale.Compressors. It does nothing.
func (s *Set) Packed([]byte, int) {}

// Unpacked implements bale.Compressors. It does nothing.
func (s *Set) Unpacked([]byte) {}

// Close releases the compressors that the Set made. You may call it while the Set is in use. Calls
// in progress finish; later calls may return an error that is [os.ErrClosed].
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var err error
	for _, c := range s.made {
		err = errors.Join(err, c.Close())
	}
	s.made = nil
	return err
}
