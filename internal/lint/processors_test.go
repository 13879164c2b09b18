package lint

import (
	"cmp"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// imports finds what a package imports among those before it.
type imports struct {
	of      listed
	checked map[string]*types.Package
}

// Import implements types.Importer.
func (i imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	p := i.checked[cmp.Or(i.of.ImportMap[path], path)]
	if p == nil {
		return nil, errors.New("not listed before what imports it")
	}
	return p, nil
}

// TestFitsIn32Bits: all packages and their tests compile where int has 32 bits. It only checks
// types, which takes a fraction of the time of a compiler.
func TestFitsIn32Bits(t *testing.T) {
	t.Setenv("GOARCH", "386")
	t.Setenv("CGO_ENABLED", "0")
	patterns := []string{"-deps", "-test", "./..."}
	for _, dir := range nested(t) {
		patterns = append(patterns, "./"+dir+"/...")
	}
	files, checked, own := token.NewFileSet(), map[string]*types.Package{}, 0
	for _, p := range (loader{}).list(t, patterns...) {
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // or the program of a test
			continue
		}
		config := types.Config{
			Importer: imports{p, checked}, Sizes: types.SizesFor("gc", "386"), IgnoreFuncBodies: true, FakeImportC: true,
			Error: func(error) {},
		}
		if p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		if strings.HasPrefix(p.ImportPath, module) {
			own++
			config.IgnoreFuncBodies = false
			config.Error = func(err error) { t.Errorf("%s: %v", p.ImportPath, err) }
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		path, _, _ := strings.Cut(p.ImportPath, " ") // which names the test that it is compiled for
		checked[p.ImportPath], _ = config.Check(path, files, parsed, nil)
	}
	if own < 100 {
		t.Errorf("%d packages of ours", own)
	}
}
