package dataset

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the sample data of the examples anew")

// TestSampleData keeps the values that the documents use what the generator makes.
func TestSampleData(t *testing.T) {
	const path = "../../../examples/profiles.ndjson"
	profiles, err := Make("profiles", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Join(profiles.Raw[:200], []byte("\n")), '\n')
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the generator makes: go test -update writes it", path)
	}
}
