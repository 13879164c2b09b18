package dict

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/fieldpath"
	"github.com/balekv/bale/internal/holdout"
)

func secretProfile(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	email := fmt.Sprintf("someone%d@private.example", r.IntN(5)) // often the same, so that a trainer would want it
	return fmt.Appendf(nil, `{"id":%d,"email":%q,"name":"user","token":"tok_%d_secret","note":"write to %s","card":{"number":"4111 1111 1111 %04d","ccv":[1234567,"abcdefgh%d"]},"plan":"pro","city":"Springfield","settings":{"theme":"dark","token":"inner%d"}}`,
		i, email, r.IntN(3), email, r.IntN(3), r.IntN(2), r.IntN(2))
}

func TestExclude(t *testing.T) {
	t.Parallel()
	var values [][]byte
	for i := range 400 {
		values = append(values, secretProfile(i))
	}
	secrets := []string{"private.example", "someone", "tok_", "_secret", "4111", "1234567", "abcdefgh", "inner0", "inner1"}
	without, err := Train(context.Background(), values, quick(TrainOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	leaked := 0
	for _, s := range secrets {
		if bytes.Contains(without.Dictionary.Bytes(), []byte(s)) {
			leaked++
		}
	}
	if leaked < len(secrets)/2 {
		t.Fatalf("only %d of the values enter a dictionary even where they may: the test shows nothing", leaked)
	}
	got, err := Train(context.Background(), append(values, []byte("not JSON"), []byte("nor this"), []byte(`{"cut":`), []byte(`{"cut":`)), quick(TrainOptions{Exclude: []string{"email", "token", "card"}}))
	if err != nil {
		t.Fatal(err)
	}
	if got.Excluded != 2 {
		t.Errorf("%d samples were left out, want 2", got.Excluded)
	}
	for _, s := range secrets {
		if bytes.Contains(got.Dictionary.Bytes(), []byte(s)) {
			t.Errorf("%q is in the dictionary", s)
		}
	}
	// A path excludes one of the two tokens alone.
	got, err = Train(context.Background(), values, quick(TrainOptions{Exclude: []string{"settings.token"}}))
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Dictionary.Bytes(); bytes.Contains(d, []byte("inner")) || !bytes.Contains(d, []byte("_secret")) {
		t.Error("settings.token is not what was left out")
	}
	// In another field of other values the same content is found out.
	for i := range values {
		values[i] = append(bytes.TrimSuffix(values[i], []byte("}")), fmt.Sprintf(`,"friend":"someone%d@private.example"}`, i%5)...)
	}
	if _, err := Train(context.Background(), values, quick(TrainOptions{Exclude: []string{"email"}})); !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "excluded fields email") {
		t.Errorf("%v", err)
	}
}

// TestExcludeNames: the names inside an excluded object are left out with it.
func TestExcludeNames(t *testing.T) {
	var values [][]byte
	for i := range 400 {
		values = append(values, fmt.Appendf(nil, `{"id":%d,"kind":"share","by_email":{"ada@private.example":{"role":"owner"},"bob%d@private.example":{"role":"reader"}},"n":%d}`, i*7919, i%7, i*31))
	}
	o := quick(TrainOptions{MaxSize: 4 << 10, MinGain: -1})
	without, err := Train(context.Background(), values, o)
	if err != nil || !bytes.Contains(without.Dictionary.Bytes(), []byte("private.example")) {
		t.Fatalf("the addresses do not enter the dictionary even where they may: %v", err)
	}
	o.Exclude = []string{"by_email"}
	got, err := Train(context.Background(), values, o)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got.Dictionary.Bytes(), []byte("private.example")) {
		t.Error("an address is in the dictionary")
	}
}

func TestRedact(t *testing.T) {
	for _, test := range []struct{ fields, in, want string }{
		{"a", `{"a":"secret1","b":2}`, `{"a":"","b":2}`},
		{"a", `{ "a" : 12345678 , "b" : "x" }`, `{ "a" :  , "b" : "x" }`},
		{"a", `{"a":{"x":"secret1","y":[true,"secret2",{"z":null}]},"b":"keep"}`, `{"a":{"":"","":[,"",{"":}]},"b":"keep"}`},
		{"a", `{"a":{"ada@example.com":{"role":"owner"}},"by":"ada@example.com","role":"owner"}`, `{"a":{"":{"":""}},"by":"","role":"owner"}`},
		{"a", `{"a":[{ "currency" : 1 }],"b":{"currency":"currency"}}`, `{"a":[{ "" :  }],"b":{"currency":"currency"}}`},
		{"a", `[{"a":"secret1"},{"b":{"a":""}},"a"]`, `[{"a":""},{"b":{"a":""}},"a"]`},
		{"b.a", `{"a":"kept","b":{"a":"secret1"},"c":{"b":{"a":"kept"}}}`, `{"a":"kept","b":{"a":""},"c":{"b":{"a":"kept"}}}`},
		{"a", `{"a":"sec\u0072et","t":"it is sec\u0072et"}`, `{"a":"","t":"it is "}`},
		{"a,b", `{"a":"x","b":"y","c":"z"}`, `{"a":"","b":"","c":"z"}`},
	} {
		got, skipped, err := newExcluder(strings.Split(test.fields, ",")).redact(context.Background(), [][]byte{[]byte(test.in)})
		if skipped != 0 || err != nil {
			t.Errorf("%s is taken for something else than JSON", test.in)
			continue
		}
		if diff := cmp.Diff(test.want, string(got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.in, diff)
		}
	}
	for _, in := range []string{"", "{", `{"a"}`, `[1,`, "text", `{"a":1}}`, `{"a":1]`, `"a"`, "4583289286293124", ` null `, `{"a":1} 2`,
		`{"a":1,"b":"` + strings.Repeat("x", maxRedacted) + `"}`} {
		if got, skipped, err := newExcluder([]string{"a"}).redact(context.Background(), [][]byte{[]byte(in)}); skipped != 1 || err != nil {
			t.Errorf("%.100q is redacted: %.100q", in, got)
		}
	}
}

// TestRedactNested: a value as deep as may be is redacted in memory that its size bounds, however
// long its paths are; a deeper one is left out.
func TestRedactNested(t *testing.T) {
	name := strings.Repeat("n", 1000)
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"`+name+`":`, depth) + `"secret1"` + strings.Repeat("}", depth))
	}
	fields := []string{"user.token", strings.Repeat(name+".", fieldpath.MaxDepth-1) + name}
	deep := nested(fieldpath.MaxDepth)
	got, skipped, err := newExcluder(fields).redact(context.Background(), [][]byte{deep, nested(fieldpath.MaxDepth + 1), []byte(strings.Repeat("[", 300_000))})
	if skipped != 2 || err != nil || len(got) != 1 || bytes.Contains(got[0], []byte("secret1")) || len(got[0]) != len(deep)-len("secret1") {
		t.Errorf("%d left out, %d redacted, %v", skipped, len(got), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	newExcluder(fields).redact(context.Background(), [][]byte{deep})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40*uint64(len(deep)) { // it was 500 times: each path was put together anew
		t.Errorf("%d bytes for a value of %d", n, len(deep))
	}
}

func TestRedactEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, _, err := newExcluder([]string{"a"}).redact(ctx, [][]byte{[]byte(`{"a":1}`)}); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCutterLong: a long value is cut out as a whole, and compared piece by piece.
func TestCutterLong(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{maxWord - 1, maxWord, maxWord + 1, 3*maxWord + 1, 100_000} {
		long := make([]byte, n)
		for i := range long {
			long[i] = 'a' + byte(r.IntN(26))
		}
		c := newCutter([]string{string(long), strings.Repeat("x", n)})
		for _, w := range c.words {
			if len(w) > maxWord || len(w) < minSecret {
				t.Errorf("a piece of %d bytes", len(w))
			}
		}
		got := string(c.cut([]byte("<" + string(long) + "|" + strings.Repeat("x", n) + "|" + string(long) + ">")))
		if middle, ok := strings.CutPrefix(got, "<|"); !ok || !strings.HasSuffix(middle, "|>") || len(middle) > len("|>")+minSecret-1 { // what is as short is no secret
			t.Errorf("%d bytes: %.80q is left", n, got)
		}
	}
}

// TestCutter: as the slow and simple way does it, for words that begin, end and contain each other.
func TestCutter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "aab"[r.IntN(3)]
		}
		return string(b)
	}
	cut := 0
	for range 2000 {
		var words []string
		for range r.IntN(12) {
			words = append(words, random(minSecret+r.IntN(8)))
		}
		text := random(r.IntN(200))
		var want []byte
		for i := 0; i < len(text); {
			longest := 0
			for _, w := range words {
				if strings.HasPrefix(text[i:], w) {
					longest = max(longest, len(w))
				}
			}
			if longest == 0 {
				want = append(want, text[i])
				longest = 1
			}
			i += longest
		}
		cut += len(text) - len(want)
		if got := newCutter(slices.Clone(words)).cut([]byte(text)); !bytes.Equal(got, want) {
			t.Fatalf("%q without %q: %q, want %q", text, words, got, want)
		}
	}
	if cut < 1000 {
		t.Errorf("only %d bytes were cut: the test shows nothing", cut)
	}
}

// TestExcludePieces: a long excluded value that stands in other fields of other values is in no
// dictionary, not even in pieces.
func TestExcludePieces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, length := range []int{piece, 36, 300} {
		tokens := make([]string, 20)
		for i := range tokens {
			tokens[i] = randomText(r, length)
		}
		var samples [][]byte
		for i := range 2000 {
			token := tokens[r.IntN(len(tokens))]
			if i%2 == 0 {
				samples = append(samples, fmt.Appendf(nil, `{"user":%d,"session":"%s","plan":"pro"}`, i, token))
			} else {
				samples = append(samples, fmt.Appendf(nil, `{"request":%d,"method":"GET","url":"https://api.example.com/v1/orders?session=%s","took":%d}`, i, token, r.IntN(1e9)))
			}
		}
		before := bytes.Join(samples, nil)
		for _, noRefit := range []bool{false, true} {
			got, err := Train(t.Context(), samples, quick(TrainOptions{Exclude: []string{"session"}, MinGain: -1, NoTimes: true, NoRefit: noRefit, MaxSize: 64 << 10}))
			if err != nil {
				t.Errorf("%d bytes: %v", length, err)
				continue
			}
			if got.Elsewhere != 1000 {
				t.Errorf("%d bytes: %d samples had them elsewhere, want 1000", length, got.Elsewhere)
			}
			longest := 0
			for _, token := range tokens {
				for i := range token {
					for i+longest < len(token) && bytes.Contains(got.Dictionary.Bytes(), []byte(token[i:i+longest+1])) {
						longest++
					}
				}
			}
			if longest >= minSecret {
				t.Errorf("%d bytes, NoRefit %v: the dictionary has %d of a token", length, noRefit, longest)
			}
		}
		if !bytes.Equal(bytes.Join(samples, nil), before) {
			t.Error("the samples were changed")
		}
	}
}

func randomText(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return string(b)
}

// TestPieces: parts of 32 bytes of an excluded value are found wherever they begin, and cut out.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	long := randomText(r, 200)
	e := newExcluder([]string{"a"})
	if _, _, err := e.redact(t.Context(), [][]byte{fmt.Appendf(nil, `{"a":["%s",%s]}`, long, strings.Repeat("1234567890", 4))}); err != nil {
		t.Fatal(err)
	}
	cut := func(text string) string {
		samples := [][]byte{[]byte(text)}
		n, err := e.cutPieces(t.Context(), samples)
		if err != nil || n != min(1, len(text)-len(samples[0])) {
			t.Fatalf("%d, %v", n, err)
		}
		return string(samples[0])
	}
	for from := range long {
		for to := from + 1; to <= len(long); to++ {
			part := "<" + long[from:to] + ">"
			got, n := cut(part), to-from
			switch {
			case n < piece && got != part:
				t.Fatalf("%d bytes from %d were cut", n, from)
			case n >= piece+pieceStep-1 && len(got) > len("<>")+2*(pieceStep-1), n == len(long) && got != "<>":
				t.Fatalf("of %d bytes from %d %q is left", n, from, got)
			}
			if d, err := frame.NewDictionary([]byte(part)); err == nil && (e.verify(t.Context(), d) != nil) != (got != part) {
				t.Fatalf("the verification does not see %d bytes from %d as the cut does", n, from)
			}
		}
	}
	if got := cut("[" + strings.Repeat("1234567890", 9) + "]"); got != "[]" {
		t.Errorf("%q", got)
	}
	for _, test := range []struct{ excluded, in, want string }{
		{`"` + long + `\/` + long + `"`, long + "/" + long, ""},                                                          // without escapes
		{`"say \"` + long + `\" to"`, `say \"` + long + `\" to`, ""},                                                     // with them
		{`"{\"country\":\"DE\",\"plan\":\"free\"}"`, `{"country":"DE","plan":"free"}`, `{"country":"DE","plan":"free"}`}, // syntax
		{`"` + long[:piece-1] + `"`, long[:piece-1], long[:piece-1]},
		{`{"` + long + `1":1}`, long + "1", ""}, // a name
	} {
		e = newExcluder([]string{"a"})
		if _, skipped, err := e.redact(t.Context(), [][]byte{[]byte(`{"a":` + test.excluded + `}`)}); skipped != 0 || err != nil {
			t.Fatal(err)
		}
		if got := cut(test.in); got != test.want {
			t.Errorf("of %q without %s %q is left", test.in, test.excluded, got)
		}
	}
}

// TestPiecesBounded: pieces take an eighth of the values' bytes in fingerprints, whatever is in
// them, and values that repeat take nothing again.
func TestPiecesBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	const n = 1 << 18
	for name, value := range map[string]string{"random": randomText(r, n), "one byte": strings.Repeat("a", n), "a period": strings.Repeat(randomText(r, 1000), n/1000)} {
		e := newExcluder([]string{"a"})
		sample := fmt.Appendf(nil, `{"a":%q}`, value)
		if _, _, err := e.redact(t.Context(), [][]byte{sample, sample, sample}); err != nil {
			t.Fatal(err)
		}
		if got := e.prints[piece].n; got > n/pieceStep+1 {
			t.Errorf("%s: %d fingerprints", name, got)
		}
		samples := [][]byte{[]byte(value + value)}
		if _, err := e.cutPieces(t.Context(), samples); err != nil || len(samples[0]) != 0 {
			t.Errorf("%s: %d bytes are left, %v", name, len(samples[0]), err)
		}
	}
}

// TestExcludeWholeSample: a sample of which nothing is left harms no builder.
func TestExcludeWholeSample(t *testing.T) {
	digits := strings.Repeat("1234567890", 5)
	var samples [][]byte
	for i := range 400 {
		if i%2 == 0 {
			samples = append(samples, fmt.Appendf(nil, `["%s"]`, digits), fmt.Appendf(nil, `{"id":%d,"a":"[%s]","plan":"pro","country":"DE"}`, i, digits))
		} else {
			samples = append(samples, fmt.Appendf(nil, "[%s]", digits))
		}
	}
	got, err := Train(t.Context(), samples, TrainOptions{Exclude: []string{"a"}, MinGain: -1, NoTimes: true, MaxSize: 4 << 10})
	if err != nil || bytes.Contains(got.Dictionary.Bytes(), []byte("123456")) {
		t.Errorf("%v", err)
	}
}

// FuzzRedact: whatever the sample, no value of the field is left where it was, and nothing panics.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":"secret12","b":[{"a":12345678}]}`))
	f.Add([]byte(`{"a":{"b":["secret12"]}}`))
	f.Add(secretProfile(1))
	f.Fuzz(func(t *testing.T, sample []byte) {
		e := newExcluder([]string{"a"})
		got, skipped, err := e.redact(context.Background(), [][]byte{sample})
		if err != nil {
			t.Fatal(err)
		}
		if skipped == 1 {
			return
		}
		again := newExcluder([]string{"a"})
		if left, ok := again.collect(got[0]); ok && len(left) > 0 {
			for _, s := range left {
				if s.to > s.from {
					t.Fatalf("%q of %q is left", got[0][s.from:s.to], got[0])
				}
			}
		}
	})
}

// BenchmarkRedact: the time for a byte must not rise with the number of values.
func BenchmarkRedact(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var members []string
			for i := range n {
				members = append(members, fmt.Sprintf("user-%08d-abcdefgh", i*7919))
			}
			sample, err := json.Marshal(map[string]any{"members": members, "text": strings.Repeat("user-00000000-something else ", n)})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(sample)))
			for b.Loop() {
				if _, _, err := newExcluder([]string{"members"}).redact(context.Background(), [][]byte{sample}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestExclusionCosts: a training says what exclusion costs, and the registry keeps it.
func TestExclusionCosts(t *testing.T) {
	var samples [][]byte
	for i := range 600 {
		samples = append(samples, fmt.Appendf(nil, `{"id":%d,"note":"this text stands in all values, and is what makes them alike %d"}`, i*7919, i%7))
	}
	got, err := Train(t.Context(), samples, quick(TrainOptions{Exclude: []string{"note"}, MinGain: -1, NoTimes: true}))
	if err != nil && !errors.Is(err, ErrNoDictionary) {
		t.Fatal(err)
	}
	info := got.Info()
	if info.Exclude != "note" || info.RatioWhole < 1.5*info.Ratio || info.Ratio == 0 {
		t.Errorf("%+v", info)
	}
	if got.Dictionary != nil && bytes.Contains(got.Dictionary.Bytes(), []byte("this text stands")) {
		t.Error("the dictionary has what is excluded")
	}
	fields := []string{"", "a,b", "first name", "50%", "user.token", "é"}
	info.Exclude = excluded(fields)
	if (&Entry{}).Excluded() != nil || (*Entry)(nil).Excluded() != nil {
		t.Error("excluded without a name")
	}
	if e := (&Entry{Info: info}); !slices.Equal(e.Excluded(), fields[1:]) || strings.Contains(info.Exclude, ",") {
		t.Errorf("%q of %q", e.Excluded(), info.Exclude)
	}
}

// TestExcludedInOtherHalf: an excluded value that only a held-out sample has as such, and the
// others in another field, is in no dictionary.
func TestExcludedInOtherHalf(t *testing.T) {
	const secret = "ada.lovelace@example.com"
	var samples [][]byte
	for i := range 600 {
		email := fmt.Sprintf("%08x@example.com", i*7919)
		if !holdout.Training(i) && i < 3 {
			email = secret
		}
		samples = append(samples, fmt.Appendf(nil, `{"id":%d,"email":%q,"note":"in case of questions write to %s, who knows","plan":"free"}`, i, email, secret))
	}
	for _, measured := range []bool{false, true} {
		training, err := Train(t.Context(), samples, quick(TrainOptions{Exclude: []string{"email"}, NoRefit: measured}))
		if !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "stand in other fields") || training != nil && training.Dictionary != nil {
			t.Errorf("NoRefit %v: %v", measured, err)
		}
	}
}

// TestExcludedMemory: contents take at most twice the samples' bytes, however short they are. The
// same contents again take no more.
func TestExcludedMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	for name, content := range map[string]func(i int) string{
		"6 bytes":  func(i int) string { return fmt.Sprintf("%06x", i) },
		"numbers":  func(i int) string { return strconv.Itoa(1e6 + i) },
		"24 bytes": func(i int) string { return fmt.Sprintf("%016x-%07x", r.Uint64(), i) },
		"25 bytes": func(i int) string { return randomText(r, piece) },
		"300":      func(i int) string { return randomText(r, 300) },
		"escapes":  func(i int) string { return fmt.Sprintf("<%06x>", i) },
		"JSON":     func(i int) string { return fmt.Sprintf(`{"country":"DE","user":"%d"}`, i) },
	} {
		var samples [][]byte
		size := 0
		for i := 0; size < 4<<20; {
			var a []any
			for range 1000 {
				if a = append(a, content(i)); name == "numbers" {
					a[len(a)-1] = json.Number(content(i))
				}
				i++
			}
			s, err := json.Marshal(map[string]any{"a": a})
			must(t, err)
			samples, size = append(samples, s), size+len(s)
		}
		d, err := frame.NewDictionary([]byte("nothing that is excluded is here"))
		must(t, err)
		e := newExcluder([]string{"a"})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 3 {
			if _, skipped, err := e.redact(t.Context(), samples); skipped > 0 || err != nil {
				t.Fatal(skipped, err)
			}
			must(t, e.verify(t.Context(), d))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := int(after.HeapAlloc - before.HeapAlloc); n > 2*size {
			t.Errorf("%s: %.1f bytes for each byte of the samples", name, float64(n)/float64(size))
		}
		runtime.KeepAlive(e)
		runtime.KeepAlive(samples)
	}
}

// TestVerify compares with a slow and simple check. It refuses a dictionary with a whole content of
// minSecret bytes or more, raw or unescaped, or with one of the pieces.
func TestVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	refused, n := 0, 20_000
	for range n {
		random := func(n int) string { // of few words, so that dictionaries hold contents
			var b strings.Builder
			for b.Len() < n {
				b.WriteString([]string{"ab", "a", `","`, "/", `":"`, "country"}[r.IntN(6)])
			}
			return b.String()[:n]
		}
		d, err := frame.NewDictionary([]byte(random(20 + r.IntN(80))))
		must(t, err)
		text := string(d.Bytes())
		e, want := newExcluder([]string{"a"}), false
		for range 1 + r.IntN(3) {
			content := random(r.IntN(60))
			if r.IntN(4) == 0 {
				from := r.IntN(len(text))
				content = text[from:min(len(text), from+r.IntN(40))]
			}
			raw := strings.NewReplacer(`"`, `\"`, "/", []string{"/", `\/`}[r.IntN(2)]).Replace(content)
			if _, skipped, err := e.redact(t.Context(), [][]byte{[]byte(`{"a":"` + raw + `"}`)}); skipped > 0 || err != nil {
				t.Fatalf("%q: %d, %v", raw, skipped, err)
			}
			for _, whole := range []string{content, raw} {
				want = want || len(whole) >= minSecret && strings.Contains(text, whole)
			}
			for _, part := range append(strings.Split(content, `"`), raw) {
				for from := 0; from+piece <= len(part); from++ {
					want = want || (from%pieceStep == 0 || from+piece == len(part)) && strings.Contains(text, part[from:from+piece])
				}
			}
		}
		if err := e.verify(t.Context(), d); (err != nil) != want {
			t.Fatalf("%q: %v", text, err)
		}
		if want {
			refused++
		}
	}
	if refused < n/10 || refused > n*9/10 {
		t.Errorf("%d of %d dictionaries were refused: the test shows nothing", refused, n)
	}
}

// BenchmarkExclude: the time that an exclusion adds to a training, for contents of several kinds.
func BenchmarkExclude(b *testing.B) {
	for name, format := range map[string]string{"ids": "%06x", "emails": "user%d@example.com", "tokens": "%032x%032[1]x", "JSON": `{"country":"DE","plan":"free","user":"%d"}`} {
		b.Run(name, func(b *testing.B) {
			var samples [][]byte
			for i := range 2000 {
				var a []string
				for j := range 100 {
					a = append(a, fmt.Sprintf(format, i*100+j))
				}
				s, err := json.Marshal(map[string]any{"a": a, "text": strings.Repeat("something else ", 70)})
				if err != nil {
					b.Fatal(err)
				}
				samples = append(samples, s)
			}
			d, err := frame.NewDictionary(bytes.Repeat([]byte("nothing that is excluded "), 4000))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(bytes.Join(samples, nil))))
			b.ReportAllocs()
			for b.Loop() {
				e := newExcluder([]string{"a"})
				redacted, _, err := e.redact(context.Background(), samples)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := e.cutPieces(context.Background(), redacted); err != nil {
					b.Fatal(err)
				}
				if err := e.verify(context.Background(), d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
