package frame

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"
)

func TestDictionary(t *testing.T) {
	b := []byte("what all the values have in common")
	d, err := NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if want := binary.LittleEndian.Uint32(sum[:]); uint32(d.ID()) != want {
		t.Errorf("id %v, want %08x", d.ID(), want)
	}
	again, err := NewDictionary(bytes.Clone(b))
	if err != nil || again.ID() != d.ID() {
		t.Errorf("the same bytes are %v and %v, %v", d.ID(), again.ID(), err)
	}
	other, err := NewDictionary(append(bytes.Clone(b), '!'))
	if err != nil || other.ID() == d.ID() {
		t.Errorf("other bytes are %v too, %v", d.ID(), err)
	}
	b[0] = 'X'
	if d.Bytes()[0] != 'w' {
		t.Error("the dictionary changed with the bytes that it was made of")
	}
	if string(d.Tail(6)) != "common" || !bytes.Equal(d.Tail(1000), d.Bytes()) {
		t.Errorf("tail %q", d.Tail(6))
	}
	var none *Dictionary
	if none.ID() != 0 || none.Bytes() != nil || len(none.Tail(5)) != 0 {
		t.Error("no dictionary is not empty")
	}
	for _, n := range []int{0, MinDictionarySize - 1, MaxDictionarySize + 1} {
		if _, err := NewDictionary(make([]byte, n)); !errors.Is(err, ErrDictionarySize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestDictionaryID(t *testing.T) {
	for _, id := range []DictionaryID{0, 1, 0x0abcdef1, 0xffffffff} {
		got, err := ParseDictionaryID(id.String())
		if err != nil || got != id {
			t.Errorf("%v parses as %v, %v", id, got, err)
		}
	}
	for _, s := range []string{"", "1", "0ABCDEF1", "00000000", "123456789", "-0000001", "None"} {
		if id, err := ParseDictionaryID(s); err == nil {
			t.Errorf("%q parses as %v", s, id)
		}
	}
}
