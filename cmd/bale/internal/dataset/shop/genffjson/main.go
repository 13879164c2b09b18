// Command genffjson writes the code of ffjson for the types of package shopff. It does what ffjson's own command does, but that compiles Go's whole
// standard library anew at every run.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	ffjsoninception "github.com/pquerna/ffjson/inception"
	"github.com/pquerna/ffjson/shared"

	"github.com/balekv/bale/cmd/bale/internal/dataset/shop/shopff"
)

func main() {
	if err := write("shopff/types.go", "shopff/ffjson.go"); err != nil {
		fmt.Fprintln(os.Stderr, "genffjson:", err)
		os.Exit(1)
	}
}

func write(types, out string) error {
	generator := ffjsoninception.NewInception(types, "shopff", out, false)
	for _, value := range shopff.Types() {
		generator.Add(shared.InceptionType{Obj: value})
	}
	generator.Execute() // which ends the program itself when it fails
	code, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	// So its documentation tells how to find what is left to encoding/json.
	if bytes.Contains(code, []byte("Falling back")) || bytes.Contains(code, []byte("Struct fall back")) {
		return errors.New("it has no code of its own for the type of a field")
	}
	return nil
}
