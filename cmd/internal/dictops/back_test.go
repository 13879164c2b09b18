package dictops

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// withCopy is a group of three dictionaries, the last of them current, and a folder with a copy.
func withCopy(t *testing.T) (r *registry.Registry, client *redis.Client, dir string, ids []frame.DictionaryID) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	t.Cleanup(func() { clitest.OK(t, r.Close()) })
	for i := range 3 {
		d, err := frame.NewDictionary(fmt.Appendf(nil, "words of dictionary %d", i))
		clitest.OK(t, err, r.Publish(ctx, "g", d, dict.Info{Auto: true}), r.Activate(ctx, "g", d.ID(), true))
		ids = append(ids, d.ID())
	}
	dir = t.TempDir()
	_, err = Export(ctx, r, Options{Group: "g", Dir: dir})
	clitest.OK(t, err)
	return r, client, dir, ids
}

// TestComesBack: a removed dictionary comes back as a retired one. Auto would activate or wait for
// a published one, and gc would never remove it.
func TestComesBack(t *testing.T) {
	for name, back := range map[string]func(*testing.T, *registry.Registry, Options) error{
		"by import": func(t *testing.T, r *registry.Registry, o Options) error {
			imported, err := Import(t.Context(), r, o)
			if imported.Activated != nil {
				t.Errorf("%+v", imported.Activated)
			}
			return err
		},
		"by import, of its file alone": func(t *testing.T, r *registry.Registry, o Options) error {
			clitest.OK(t, os.Remove(filepath.Join(o.Dir, dict.StateFile)))
			_, err := Import(t.Context(), r, o)
			return err
		},
		"by restore": func(t *testing.T, r *registry.Registry, o Options) error {
			_, err := Restore(t.Context(), r, o)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			r, _, dir, ids := withCopy(t)
			o := Options{Group: "g", ID: ids[0], Dir: dir, Force: true}
			_, err := Remove(ctx, r, o)
			clitest.OK(t, err, back(t, r, o))
			st, err := r.State(ctx, "g")
			clitest.OK(t, err)
			if e := st.Find(ids[0]); use(st, *e) != "retired" || st.Current != ids[2] || st.Previous != ids[1] {
				t.Errorf("%+v in %+v", e, st)
			}
			shown, err := Show(ctx, r, o)
			clitest.OK(t, err)
			var text strings.Builder
			shown.WriteText(page.NewSheet(&text, 200))
			if !strings.Contains(text.String(), "\nretired ") || strings.Contains(text.String(), "activated") {
				t.Errorf("%s", &text)
			}
		})
	}
}

// TestExportKeepsOtherGroups: a folder is of one group. Its group.json is replaced by that of the
// same group alone, and a file that is none is left.
func TestExportKeepsOtherGroups(t *testing.T) {
	ctx := t.Context()
	r, _, dir, ids := withCopy(t)
	d, err := frame.NewDictionary([]byte("words of another group"))
	clitest.OK(t, err, r.Publish(ctx, "other", d, dict.Info{}))
	path := filepath.Join(dir, dict.StateFile)
	for _, kept := range []string{"", "no state"} {
		if kept != "" {
			clitest.OK(t, os.WriteFile(path, []byte(kept), 0o600))
		}
		before, err := os.ReadFile(path)
		clitest.OK(t, err)
		if _, err := Export(ctx, r, Options{Group: "other", Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v", kept, err)
		}
		after, err := os.ReadFile(path)
		clitest.OK(t, err)
		files, err := filepath.Glob(filepath.Join(dir, "*"+dict.Extension))
		clitest.OK(t, err)
		if !bytes.Equal(before, after) || len(files) != len(ids) {
			t.Errorf("%q: %s, %q", kept, after, files)
		}
	}
	clitest.OK(t, os.Remove(path))
	for range 2 {
		_, err := Export(ctx, r, Options{Group: "other", Dir: dir})
		clitest.OK(t, err)
	}
}

// TestImportWithoutCurrent: a folder that lacks the exported current dictionary is an error. The
// result has what is activated.
func TestImportWithoutCurrent(t *testing.T) {
	for left := 1; left < 3; left++ {
		t.Run(fmt.Sprintf("%d of 3 files", left), func(t *testing.T) {
			ctx := t.Context()
			r, client, dir, ids := withCopy(t)
			for _, id := range ids[left:] {
				clitest.OK(t, os.Remove(filepath.Join(dir, id.String()+dict.Extension)))
			}
			clitest.OK(t, client.FlushAll(ctx).Err())
			imported, err := Import(ctx, r, Options{Group: "g", Dir: dir})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has no file of %v, the exported current dictionary", ids[2])) {
				t.Error(err)
			}
			st, err := r.State(ctx, "g")
			clitest.OK(t, err)
			var current frame.DictionaryID
			if left == 2 { // the previous one is there
				current = ids[1]
			}
			activated := cmp.Or(imported.Activated, &Activated{}).Current
			if st.Current != current || activated != current || len(st.Dictionaries) != left || len(imported.Dictionaries) != left {
				t.Errorf("%+v, activated %v", st, activated)
			}
		})
	}
}
