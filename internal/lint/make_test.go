package lint

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestLongTestsExist: a test that make test leaves out by its name is there. Under another name it
// would be back in make test, and one that is gone would be missed by nobody.
func TestLongTestsExist(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "grep", "-h", "^func Test", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, list := range regexp.MustCompile(`(?m)^(?:LONG_NAMES|LONG_AT_ONCE) := (.*)$`).FindAllSubmatch(text, -1) {
		for name := range strings.SplitSeq(string(list[1]), "|") {
			if names++; !strings.Contains(string(tests), "\nfunc Test"+name+"(") {
				t.Errorf("there is no Test%s", name)
			}
		}
	}
	if names < 30 {
		t.Errorf("%d names in the Makefile", names)
	}
}
