package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// standard are packages with interfaces that methods implement.
var standard = []string{"encoding", "encoding/json", "fmt", "io", "net/http", "github.com/prometheus/client_golang/prometheus"}

// TestExamples: every exported name of the packages that users import is in an example that runs.
// That is an Example function with an output, or one of the programs in the folder examples. One
// name stands for its const or var block, and any value of a type for the type. Methods that
// implement an interface of the standard library or of bale need no example.
func TestExamples(t *testing.T) {
	l := loader{fset: token.NewFileSet(), exports: map[string]string{}}
	l.importer = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(l.exports[path])
	})
	folders := []string{"."}
	for _, dir := range nested(t) {
		if first, _, _ := strings.Cut(dir, "/"); first == "adapter" || first == "extra" {
			folders = append(folders, dir)
		}
	}
	var public, programs []listed
	for _, dir := range folders {
		for _, p := range l.list(t, "./"+dir+"/...") {
			if !strings.Contains(p.ImportPath, "/internal/") {
				public = append(public, p)
			}
		}
	}
	run, err := os.ReadFile("../../examples/examples_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.list(t, "./examples/...") {
		if bytes.Contains(run, []byte("./"+filepath.Base(p.Dir)+`"`)) {
			programs = append(programs, p)
		}
	}
	if len(public) < 20 || len(programs) < 6 {
		t.Fatalf("%d packages, %d programs", len(public), len(programs))
	}
	l.compile(t, slices.Concat(public, programs))

	used := map[types.Object]bool{}
	for _, p := range public {
		var names []string
		for _, name := range p.XTestGoFiles {
			if strings.HasPrefix(name, "example") {
				names = append(names, name)
			}
		}
		l.uses(t, used, p, names)
	}
	for _, p := range programs {
		l.uses(t, used, p, p.GoFiles)
	}
	interfaces := l.interfaces(t, slices.Concat(standard, paths(public)))
	for _, p := range public {
		for _, missing := range l.missing(t, p, used, interfaces) {
			t.Errorf("%s: no example has %s", strings.TrimPrefix(p.ImportPath, module+"/"), missing)
		}
	}
}

// listed is a package, as go list knows it.
type listed struct {
	Dir, ImportPath, Name, Export                          string
	GoFiles, CgoFiles, Imports, XTestImports, XTestGoFiles []string
	ImportMap                                              map[string]string
	Module                                                 struct{ GoVersion string }
}

func paths(packages []listed) (paths []string) {
	for _, p := range packages {
		paths = append(paths, p.ImportPath)
	}
	return paths
}

// loader reads packages that the compiler has checked.
type loader struct {
	fset     *token.FileSet
	importer types.Importer
	exports  map[string]string // the compiler's export data, by import path
}

func (l loader) list(t *testing.T, args ...string) (packages []listed) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,Name,Export,GoFiles,CgoFiles,Imports,XTestImports,XTestGoFiles,ImportMap,Module"}, args...)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// compile makes the export data of packages, and of all that they and their tests import.
func (l loader) compile(t *testing.T, packages []listed) {
	args := append([]string{"-deps", "-export"}, standard...)
	for _, p := range packages {
		args = append(args, slices.Concat(p.Imports, p.XTestImports)...)
		if p.Name != "main" {
			args = append(args, p.ImportPath)
		}
	}
	slices.Sort(args[2:])
	args = slices.DeleteFunc(slices.Compact(args), func(arg string) bool { return arg == "C" || arg == "unsafe" })
	for _, p := range l.list(t, args...) {
		l.exports[p.ImportPath] = p.Export
	}
}

func (l loader) parse(t *testing.T, dir string, names []string) (files []*ast.File) {
	t.Helper()
	for _, name := range names {
		file, err := parser.ParseFile(l.fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// uses adds what the examples of a package have, with what else of their files they use. In a
// program that is what main uses.
func (l loader) uses(t *testing.T, used map[types.Object]bool, p listed, names []string) {
	t.Helper()
	files := l.parse(t, p.Dir, names)
	info := types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	// Examples stand on their own, so that a reader of go doc can follow them.
	if _, err := (&types.Config{Importer: l.importer}).Check(p.ImportPath+"_test", l.fset, files, &info); err != nil {
		t.Errorf("the examples of %s use other files of its tests: %v", p.ImportPath, err)
		return
	}
	decls := map[types.Object]ast.Node{}
	var walk func(ast.Node)
	use := func(obj types.Object) {
		if obj == nil || used[obj] {
			return
		}
		used[obj] = true
		if decl := decls[obj]; decl != nil {
			walk(decl)
		}
	}
	var useType func(types.Type)
	useType = func(typ types.Type) {
		switch typ := typ.(type) {
		case *types.Alias:
			use(typ.Obj())
			useType(typ.Rhs())
		case *types.Named:
			use(typ.Origin().Obj())
		case *types.Pointer:
			useType(typ.Elem())
		case *types.Slice:
			useType(typ.Elem())
		case *types.Tuple:
			for v := range typ.Variables() {
				useType(v.Type())
			}
		}
	}
	walk = func(node ast.Node) {
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				switch obj := info.Uses[n].(type) {
				case *types.Func:
					use(obj.Origin())
				case *types.Var:
					use(obj.Origin())
				default:
					use(obj)
				}
			}
			if expr, ok := n.(ast.Expr); ok {
				useType(info.Types[expr].Type)
			}
			return true
		})
	}
	var roots []ast.Node
	for _, file := range files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				decls[info.Defs[decl.Name]] = decl
				// A method is used with its type, by interfaces for example.
				if decl.Recv != nil || decl.Name.Name == "main" {
					roots = append(roots, decl)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						decls[info.Defs[spec.Name]] = spec
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							decls[info.Defs[name]] = spec
						}
					}
				}
			}
		}
	}
	for _, example := range doc.Examples(files...) {
		if example.Output != "" || example.EmptyOutput {
			roots = append(roots, example.Code)
		}
	}
	for _, root := range roots {
		walk(root)
	}
}

// interfaces are those that packages export.
func (l loader) interfaces(t *testing.T, paths []string) (all []*types.TypeName) {
	t.Helper()
	for _, path := range paths {
		p, err := l.importer.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			if obj, ok := p.Scope().Lookup(name).(*types.TypeName); ok && obj.Exported() && types.IsInterface(obj.Type()) {
				all = append(all, obj)
			}
		}
	}
	return all
}

// missing are the names of a package that no example has.
func (l loader) missing(t *testing.T, p listed, used map[types.Object]bool, interfaces []*types.TypeName) (missing []string) {
	t.Helper()
	pkg, err := l.importer.Import(p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	files := l.parse(t, p.Dir, slices.Concat(p.GoFiles, p.CgoFiles))
	d, err := doc.NewFromFiles(l.fset, files, p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	top := func(names ...string) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !token.IsExported(name) })
		if len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return used[pkg.Scope().Lookup(name)] }) {
			missing = append(missing, strings.Join(names, ", "))
		}
	}
	values := func(values []*doc.Value) {
		for _, v := range values {
			top(v.Names...)
		}
	}
	funcs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			top(f.Name)
		}
	}
	values(d.Consts)
	values(d.Vars)
	funcs(d.Funcs)
	for _, typ := range d.Types {
		top(typ.Name)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		obj := pkg.Scope().Lookup(typ.Name)
		if _, ok := obj.(*types.TypeName); !ok || !obj.Exported() || types.IsInterface(obj.Type()) || obj.(*types.TypeName).IsAlias() {
			continue
		}
		for m := range types.NewMethodSet(types.NewPointer(obj.Type())).Methods() {
			method := m.Obj().(*types.Func)
			if method.Exported() && !used[method.Origin()] && !implements(obj.Type(), method.Name(), interfaces) {
				missing = append(missing, fmt.Sprintf("%s.%s", typ.Name, method.Name()))
			}
		}
	}
	slices.SortFunc(missing, func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return missing
}

// implements reports whether a method is there for an interface. Of a generic one only the names of
// the methods are compared.
func implements(typ types.Type, method string, interfaces []*types.TypeName) bool {
	if slices.Contains([]string{"Error", "Unwrap", "Is", "PTTL"}, method) { // the last one: see bale.Store
		return true
	}
	ptr := types.NewPointer(typ)
	has := func(typ types.Type, method string) bool {
		obj, _, _ := types.LookupFieldOrMethod(typ, false, nil, method)
		return obj != nil
	}
	return slices.ContainsFunc(interfaces, func(obj *types.TypeName) bool {
		i := obj.Type().Underlying().(*types.Interface)
		if !has(i, method) {
			return false
		}
		if named, ok := obj.Type().(*types.Named); !ok || named.TypeParams().Len() == 0 {
			return types.Implements(ptr, i)
		}
		for m := range i.Methods() {
			if !has(ptr, m.Name()) {
				return false
			}
		}
		return true
	})
}
