package origin

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Child()
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, library string, b Behaviour) *Server {
	t.Helper()
	s, err := Start(t.Context(), library, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// get makes a request on a connection of its own, and returns the status. The path is below the
// server's.
func get(t *testing.T, s *Server, path string) (status int, body []byte) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Get("http://" + s.Addr() + s.root + path)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, body
}

func TestAnswers(t *testing.T) {
	for _, library := range Libraries {
		s := start(t, library, Behaviour{})
		for i, size := range []int{MinSize, 17, 1000, 1 << 20} {
			status, body := get(t, s, below(size, uint64(i)))
			if err := Check(body, size, uint64(i)); status != http.StatusOK || err != nil {
				t.Errorf("%s: %d bytes: status %d, %v", library, size, status, err)
			}
			if Check(body, size, uint64(i+1)) == nil || Check(body[1:], size, uint64(i)) == nil {
				t.Errorf("%s: %d bytes: another answer passes", library, size)
			}
		}
		for _, path := range []string{"/", "/15/0000000000000000", "/16777217/0000000000000000", "/20/0", "/x/0000000000000000"} {
			if status, _ := get(t, s, path); status != http.StatusNotFound {
				t.Errorf("%s: %s: status %d", library, path, status)
			}
		}
		stats, err := s.Stats()
		if err != nil || stats.Requests != 4 || stats.Connections != 9 || stats.CPU <= 0 {
			t.Errorf("%s: %+v, %v", library, stats, err)
		}
	}
}

// TestFaults: each fault does what it says, and ends.
func TestFaults(t *testing.T) {
	s := start(t, Net, Behaviour{Failing: 1})
	if status, _ := get(t, s, below(16, 1)); status != http.StatusServiceUnavailable {
		t.Errorf("failing: status %d", status)
	}
	if err := s.Set(Behaviour{Slow: 1, SlowTime: 50 * time.Millisecond, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	if began := time.Now(); true {
		if get(t, s, below(16, 1)); time.Since(began) < 50*time.Millisecond {
			t.Error("slow: it is not")
		}
	}
	if err := s.Set(Behaviour{Dead: true}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range uint64(10) {
		all.Go(func() { get(t, s, below(16, i)) })
	}
	for stats, err := s.Stats(); stats.Requests < 12; stats, err = s.Stats() {
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if err := s.Set(Behaviour{Workers: 2, Delay: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	all.Wait() // the dead server has answered none before
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("10 requests by 2 workers of 10 ms took %v", took)
	}
}

// TestEndsWithItsInput: the server ends when the program that started it is gone.
func TestEndsWithItsInput(t *testing.T) {
	s, err := Start(t.Context(), Net, Behaviour{Dead: true})
	if err != nil {
		t.Fatal(err)
	}
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := s.Stats(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%v", err)
	}
}

func TestServeRefuses(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, Command, "apache").CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.Contains(string(out), "there are net, fasthttp") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStrangers: users of the machine who do not know the root of the paths get nothing, least of
// all answers of 16 MiB that nobody reads.
func TestStrangers(t *testing.T) {
	for _, library := range Libraries {
		s := start(t, library, Behaviour{})
		for _, root := range []string{"", "/", s.root[:len(s.root)-1], s.root + "x", "/" + strings.Repeat("A", len(s.root)-1)} {
			resp, err := http.Get("http://" + s.Addr() + root + below(MinSize, 1))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %q: status %d", library, root, resp.StatusCode)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		if stats, err := s.Stats(); err != nil || stats.Requests != 0 {
			t.Errorf("%s: %+v, %v", library, stats, err)
		}
	}
}
