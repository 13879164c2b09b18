package zstd

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/testvalues"
)

var update = flag.Bool("update", false, "write the frozen frames anew")

const frozenFrames = "testdata/frames.ndjson"

// frozen is a frame that stays readable forever. The encoder writes the same bytes on every
// platform; a better one may write others, and then has frames added here.
type frozen struct {
	Dictionary string `json:"dictionary"`
	Level      Level  `json:"level"`
	Value      []byte `json:"value"`
	Frame      []byte `json:"frame"`
}

// TestFrozen: the frames come back, by the zstd tool, too, and the encoder writes the same ones.
func TestFrozen(t *testing.T) {
	dictionaries := map[string]string{"none": "", "raw": "../../frame/testdata/raw.dict", "trained": "../../frame/testdata/trained.dict"}
	if *update {
		writeFrozen(t, dictionaries)
	}
	b, err := os.ReadFile(frozenFrames)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := exec.LookPath("zstd")
	if err != nil && os.Getenv("BALE_REQUIRE_ZSTD") == "1" {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(lines) < 60 {
		t.Fatalf("%d frames", len(lines))
	}
	for i, line := range lines {
		var f frozen
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatal(err)
		}
		d := dictionaryOf(t, dictionaries[f.Dictionary])
		if got, err := NewDecoder(d).Decode(nil, f.Frame, len(f.Value)); err != nil || !bytes.Equal(got, f.Value) {
			t.Errorf("frame %d: %d bytes, %v", i, len(got), err)
		}
		if got, err := NewEncoder(NewDigest(d, f.Level)).Encode(nil, f.Value); err != nil || !bytes.Equal(got, f.Frame) {
			t.Errorf("frame %d has %d bytes, was %d, %v", i, len(got), len(f.Frame), err)
		}
		if tool == "" {
			continue
		}
		path := filepath.Join(t.TempDir(), "frame.zst")
		if err := os.WriteFile(path, append([]byte{0x28, 0xB5, 0x2F, 0xFD}, f.Frame...), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"-dcq", path}
		if file := dictionaries[f.Dictionary]; file != "" {
			args = append(args, "-D", file)
		}
		if got, err := exec.CommandContext(t.Context(), tool, args...).Output(); err != nil || !bytes.Equal(got, f.Value) {
			t.Errorf("frame %d: zstd reads %d bytes of %d, %v", i, len(got), len(f.Value), err)
		}
	}
}

func dictionaryOf(t *testing.T, file string) *Dictionary {
	t.Helper()
	if file == "" {
		return nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func writeFrozen(t *testing.T, dictionaries map[string]string) {
	t.Helper()
	values := [][]byte{
		{}, []byte("x"), []byte(`{"id":7,"name":"Ada"}`), testvalues.Profile(1), testvalues.Profile(77), testvalues.LogBatch(1, 2),
		[]byte(strings.Repeat("ab", 200)), slices.Concat(testvalues.Profile(2), make([]byte, 300), testvalues.Profile(3)),
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(dictionaries)) {
		for level := Default; level <= Best; level++ {
			e := NewEncoder(NewDigest(dictionaryOf(t, dictionaries[name]), level))
			for _, v := range values {
				frame, err := e.Encode(nil, v)
				if err != nil {
					t.Fatal(err)
				}
				line, err := json.Marshal(frozen{name, level, v, frame})
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "%s\n", line)
			}
		}
	}
	if err := os.WriteFile(frozenFrames, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
