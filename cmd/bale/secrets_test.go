package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
)

// connecting returns commands that connect to a Redis, each as short as it can be. URL stands for
// the server's URL.
func connecting(t *testing.T) []string {
	dictionary, id := plainDictionary(t, 1)
	folder := filepath.Dir(dictionary)
	commands := []string{
		"verify --redis URL", "migrate --redis URL --match user:* --dry-run", "advise --redis URL", "train --redis URL --out users.dict", "inspect --redis URL --key user:1",
		"dict list --redis URL", "dict gc --redis URL", "dict servers --redis URL", "dict grace --redis URL", "verify --redis URL --registry URL",
		"unpack --redis URL user:1", "cat user:1 --redis URL", "proxy --redis URL --match user:* --listen 127.0.0.1:0",
		"dict publish " + dictionary + " --group g --redis URL", "dict export --group g --redis URL --out " + t.TempDir(), "dict import " + folder + " --group g --redis URL",
	}
	for _, of := range []string{"show ID", "activate ID --group g --force", "activate previous --group g", "remove ID --group g --force", "restore ID"} {
		commands = append(commands, "dict "+strings.Replace(of, "ID", id.String(), 1)+" --redis URL")
	}
	return commands
}

func TestPasswordSources(t *testing.T) {
	clitest.PasswordSources(t, app, connecting(t), true)
	run := func(command, name, value string) (int, string) {
		t.Setenv(name, value)
		var out bytes.Buffer
		return app.Run(t.Context(), strings.Fields(command), strings.NewReader(""), &out, &out), out.String()
	}
	// Values of a file are no business of the server that the environment names.
	if code, out := run("train --data password", cli.URLEnv, "redis://127.0.0.1:1"); strings.Contains(out, "127.0.0.1") {
		t.Errorf("train --data: exit %d, %s", code, out)
	}
	if code, out := run("inspect password", cli.URLEnv, "redis://127.0.0.1:1"); strings.Contains(out, "127.0.0.1") || strings.Contains(out, "wrong usage") {
		t.Errorf("inspect of a file: exit %d, %s", code, out)
	}
}

func TestNoSecretIsShown(t *testing.T) {
	clitest.NoSecretIsShown(t, app, append(connecting(t), "verify URL", "cat user:1 --registry URL --redis URL", "proxy --match user:* --redis redis://127.0.0.1:1 --registry URL"))
}

// TestNoSecretInAnotherPlace: a URL that is given to the wrong option, or in place of a file, shows
// no password either.
func TestNoSecretInAnotherPlace(t *testing.T) {
	for _, command := range []string{
		"URL", "verify URL", "verify --max-rate=URL", "verify --max-bandwidth URL", "dict grace URL", "dict grace --grace=URL", "dict activate URL --group g", "dict list --json=URL",
		"inspect URL", "stats URL", "stats --json=/none/URL x", "pack --compress=URL", "unpack --dict URL", "unpack --max-size=URL", "advise --data URL", "advise --rdb URL", "advise --cpu-budget=URL",
		"train --out d --data URL", "train --out URL --data x", "dict import URL --group g", "migrate --redis redis://127.0.0.1:1 --match x --compress URL", "proxy --redis redis://127.0.0.1:1 --match x --listen URL", "proxy --match x --redis URL&master_name=m", "dict list --redis-password-file=URL",
	} {
		for _, url := range []string{"redis://user:5ecret@host", "redis://host?db=1&password=5ecret", "redis://user:5ecret@host?password=a@5ecret"} {
			clitest.Refused(t, app, strings.Fields(strings.ReplaceAll(command, "URL", url)), "5ecret")
		}
	}
}

// TestFilesAreTheUsers: what may hold values can be read by its user alone.
func TestFilesAreTheUsers(t *testing.T) {
	t.Chdir(t.TempDir())
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	for _, command := range []string{
		"train --data - --out users.dict --json train.json --max-size 4KiB",
		"advise --data - --json advice.json --html advice.html",
	} {
		var out bytes.Buffer
		if code := app.Run(t.Context(), strings.Fields(command), strings.NewReader(clitest.FewValues()), &out, &out); code != cli.ExitDone {
			t.Fatalf("%s: exit %d, %s", command, code, &out)
		}
	}
	clitest.FilesAreTheUsers(t, 4)
}
