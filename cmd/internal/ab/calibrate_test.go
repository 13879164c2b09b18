package ab

import (
	"bytes"
	"compress/flate"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/internal/testvalues"
)

// codecsCommand as the first argument makes the test binary a benchmark of a few codecs.
const codecsCommand = "codecs"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case codecsCommand:
			codecs(os.Args[2:])
			return
		case drawnCommand:
			drawn(os.Args[2:])
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// record is what the codecs encode.
type record struct {
	ID    int               `json:"id"`
	Name  string            `json:"name"`
	Tags  []string          `json:"tags"`
	Attrs map[string]string `json:"attrs"`
}

// codecs prints benchmarks of three codecs, each line the fastest of many batches of ten
// operations. Its arguments: how many operations JSON does more than it says in each batch: 0, 1 or
// 10; the milliseconds of a line; the lines of a codec.
func codecs(args []string) {
	more, _ := strconv.Atoi(args[0])
	milliseconds, _ := strconv.ParseFloat(args[1], 64)
	lines, _ := strconv.Atoi(args[2])
	duration := time.Duration(milliseconds * float64(time.Millisecond))
	r := record{7, "Ada Lovelace", []string{"mathematics", "machines", "poetry"}, map[string]string{"city": "London", "born": "1815", "language": "English"}}
	text, err := json.Marshal(r)
	check(err)
	text = bytes.Repeat(text, 4)
	var buffer bytes.Buffer
	encoder := gob.NewEncoder(&buffer)
	compressor, err := flate.NewWriter(&buffer, flate.BestSpeed)
	check(err)
	for line := range lines {
		for _, codec := range []struct {
			name   string
			encode func()
		}{
			{"json", func() { _, err := json.Marshal(r); check(err) }},
			{"gob", func() { buffer.Reset(); check(encoder.Encode(r)) }},
			{"flate", func() {
				buffer.Reset()
				compressor.Reset(&buffer)
				_, err := compressor.Write(text)
				check(err)
				check(compressor.Close())
			}},
		} {
			const batch = 10
			if line == 0 {
				codec.encode()
			}
			n, fastest := 0, time.Duration(math.MaxInt64)
			for start := time.Now(); time.Since(start) < duration; n += batch {
				before := time.Now()
				for range batch {
					codec.encode()
				}
				if codec.name == "json" {
					for range more {
						codec.encode()
					}
				}
				fastest = min(fastest, time.Since(before))
			}
			fmt.Printf("BenchmarkEncode/codec=%s %d %.1f ns/op\n", codec.name, n, float64(fastest.Nanoseconds())/batch)
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// drawnCommand as the first argument makes the test binary print figures of a known truth.
const drawnCommand = "drawn"

// drawn prints simulated benchmarks of three cells: a drift that all cells share, 3% of noise, and
// one run of twelve in which another program had the machine. Its arguments: the slowdown of the
// first cell, and a file that counts the calls, for the drift and the seed.
func drawn(args []string) {
	slower, _ := strconv.ParseFloat(args[0], 64)
	text, err := os.ReadFile(args[1])
	check(err)
	calls, _ := strconv.Atoi(string(text))
	check(os.WriteFile(args[1], []byte(strconv.Itoa(calls+1)), 0o600))
	r := rand.New(rand.NewPCG(uint64(calls), 7))
	run := 1 + 0.3*math.Sin(float64(calls)/9)
	if r.IntN(12) == 0 {
		run *= 1.2 + r.Float64()
	}
	for i := range 3 {
		v := 1000 * run * math.Exp(0.03*r.NormFloat64())
		if i == 0 {
			v *= slower
		}
		fmt.Printf("BenchmarkDrawn/cell=%d 1 %f ns/op\n", i, v)
	}
}

// tally runs two commands many times, and counts in how many the cell is a regression, and the
// regressions of other cells.
func tally(t *testing.T, pairs int, o Options, cell string) (found, others int) {
	t.Helper()
	start := time.Now()
	again, unmeasurable := 0, 0
	for i := range pairs {
		o.Seed = uint64(i)
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Again != nil {
			again++
		}
		unmeasurable += r.Report.Unmeasurable
		for _, c := range r.Report.Comparisons {
			switch {
			case c.Verdict != compare.Regression:
			case c.Name == cell:
				found++
			default:
				others++
			}
			t.Logf("%d: %s %+.1f%%, %+.1f%% to %+.1f%%: %s %s", i, c.Name, 100*c.Change, 100*c.Interval.Low, 100*c.Interval.High, c.Verdict, c.Reason)
		}
	}
	t.Logf("of %d pairs, %d measured again; %s a regression in %d, others in %d; %d comparisons UNMEASURABLE; %v",
		pairs, again, cell, found, others, unmeasurable, time.Since(start).Round(time.Second))
	return found, others
}

// itself is a command that runs this test.
func itself(t *testing.T, args ...any) string {
	t.Helper()
	if testvalues.Race {
		t.Skip("hundreds of processes, each slow with the race detector")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(binary, " "+shellCharacters) {
		t.Skipf("the test's own path is for a shell: %s", binary)
	}
	return binary + " " + strings.TrimSpace(fmt.Sprintln(args...))
}

// TestDrawn is the calibration with figures of a known truth, whose noise was drawn: the same in
// every run of the test.
func TestDrawn(t *testing.T) {
	command := func(slower string) string {
		counter := filepath.Join(t.TempDir(), "calls")
		check(os.WriteFile(counter, []byte("0"), 0o600))
		return itself(t, drawnCommand, slower, counter)
	}
	// One counter for both: what they have in common goes on from run to run.
	same := command("1")
	slow := strings.Replace(same, drawnCommand+" 1 ", drawnCommand+" 1.1 ", 1)
	if found, others := tally(t, 4, Options{A: same, B: same, Blocks: 12}, "Drawn/cell=0"); found+others > 1 {
		t.Errorf("%d false alarms of 4", found+others)
	}
	if found, others := tally(t, 4, Options{A: same, B: slow, Blocks: 12}, "Drawn/cell=0"); found < 3 || others > 1 {
		t.Errorf("a tenth was found in %d of 4, and %d others", found, others)
	}
}

// TestCodecs measures real codecs, on any machine. The same codec against itself almost never gives
// an alarm. A family of 3 comparisons has alarms in at most 2.5% of its runs, and each must be
// found twice. So two alarms in 3 pairs are less frequent than once in 10^5. JSON that takes twice
// as long is far beyond any noise of a machine on which this test ends at all. Of 20 pairs of runs,
// 17 must show it.
func TestCodecs(t *testing.T) {
	const setting = "0.5 1"
	same, twice := itself(t, codecsCommand, 0, setting), itself(t, codecsCommand, 10, setting)
	if found, others := tally(t, 3, Options{A: same, B: same, Blocks: 10}, jsonCell); found+others > 1 {
		t.Errorf("%d false alarms of 3", found+others)
	}
	if found, others := tally(t, 3, Options{A: same, B: twice, Blocks: 10}, jsonCell); found < 2 || others > 1 {
		t.Errorf("twice the time was found in %d of 3, and %d others", found, others)
	}
}

const jsonCell = "Encode/codec=json"

// calibrateEnv is how many pairs TestCalibration takes.
const calibrateEnv = "BALE_CALIBRATE"

// TestCalibration is the calibration of docs/method.md. Of 50 runs of the same binary against
// itself, at most one gives an alarm. Of 50 runs against a binary whose JSON does every tenth
// operation twice, at least 45 find it. It takes some minutes, so it runs only with
// BALE_CALIBRATE=50.
func TestCalibration(t *testing.T) {
	text := os.Getenv(calibrateEnv)
	if text == "" {
		t.Skipf("%s=50 runs it", calibrateEnv)
	}
	pairs, err := strconv.Atoi(text)
	if err != nil || pairs < 1 {
		t.Fatalf("%s=%q, must be a number", calibrateEnv, text)
	}
	const setting = "2.5 3"
	mostAlarms, leastFound := max(1, pairs/50), pairs*45/50
	same, slow := itself(t, codecsCommand, 0, setting), itself(t, codecsCommand, 1, setting)
	if found, others := tally(t, pairs, Options{A: same, B: same}, jsonCell); found+others > mostAlarms {
		t.Errorf("%d false alarms of %d, at most %d are allowed", found+others, pairs, mostAlarms)
	}
	if found, others := tally(t, pairs, Options{A: same, B: slow}, jsonCell); found < leastFound || others > mostAlarms {
		t.Errorf("a tenth was found in %d of %d, want at least %d; and %d false alarms", found, pairs, leastFound, others)
	}
}
