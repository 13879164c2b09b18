// Package lint holds the rules that the code keeps, as functions that a test runs over it: who
// imports whom, no global state, a small public face. [Check] reads a module's source and returns
// what breaks them.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Rules are the rules of a module.
type Rules struct {
	Module   string   // its import path
	External []string // the modules outside the standard library that code other than tests may import
	Skip     []string // folders that are modules of their own

	RootFiles   int // how many source files the root package may have
	RootExports int // how many exported names at the top level of the root package

	// Standard are the packages (folders) that import the standard library alone.
	Standard []string

	// Above are the packages (folders) that may import the root, and that nothing imports.
	Above []string
}

// Check returns a line for each place that breaks a rule.
func Check(fsys fs.FS, r Rules) ([]string, error) {
	c := checker{Rules: r, documented: map[string]bool{}}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := path.Base(name); slices.Contains(r.Skip, name) || base == "testdata" || strings.HasPrefix(base, ".") && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return c.file(name, src)
	})
	if err != nil {
		return nil, err
	}
	for dir, is := range c.documented {
		if !is {
			c.broken("%s: no package comment", dir)
		}
	}
	if c.rootFiles > r.RootFiles {
		c.broken("the root package has %d files, more than %d", c.rootFiles, r.RootFiles)
	}
	if len(c.rootExports) > r.RootExports {
		c.broken("the root package exports %d names, more than %d: %v", len(c.rootExports), r.RootExports, c.rootExports)
	}
	slices.Sort(c.found)
	return c.found, nil
}

type checker struct {
	Rules
	found       []string
	documented  map[string]bool
	rootFiles   int
	rootExports []string
}

func (c *checker) broken(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *checker) file(name string, src []byte) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	c.documented[dir] = c.documented[dir] || f.Doc != nil
	if dir == "." {
		c.rootFiles++
		c.rootExports = append(c.rootExports, exports(f)...)
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		c.imports(name, dir, imported)
	}
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			c.broken("%s: func init", name)
		}
	}
	return nil
}

// imports judges one import.
func (c *checker) imports(name, dir, imported string) {
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case imported == "C":
		c.broken("%s: cgo", name)
	case imported == c.Module && dir != "." && !slices.Contains(c.Above, dir):
		c.broken("%s: imports the root, which is above it", name)
	case imported == c.Module || strings.HasPrefix(imported, c.Module+"/"):
		if slices.Contains(c.Standard, dir) {
			c.broken("%s: imports %s, and may import the standard library alone", name, imported)
		}
		for _, above := range c.Above {
			if imported == c.Module+"/"+above {
				c.broken("%s: imports %s, which is above it", name, imported)
			}
		}
		for _, skip := range c.Skip {
			if module := c.Module + "/" + skip; imported == module || strings.HasPrefix(imported, module+"/") {
				c.broken("%s: imports %s, a module above it", name, imported)
			}
		}
	case !strings.Contains(first, "."):
		// The standard library.
	case slices.Contains(c.Standard, dir):
		c.broken("%s: imports %s, and may import the standard library alone", name, imported)
	case !slices.ContainsFunc(c.External, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }):
		c.broken("%s: imports %s, which the module does not depend on", name, imported)
	}
}

// exports are the exported names that a file declares at its top level, methods and fields left
// out.
func exports(f *ast.File) []string {
	var names []string
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}
