package redisproc

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Attributes make the kernel end the server with us, and keep Ctrl-C in a terminal from
// reaching it before we are done with it.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// Users from firstUser on have no name on any usual system, and are not handed out to containers or
// by directories of users.
const (
	firstUser = 0x78000000
	users     = 1 << 26
)

// Lower makes the attributes of a command those of a user without other files or processes, or else
// of nobody, if it would be root's. It gives that user the folder. It skips a user who cannot run
// one of the needs, which are commands. With named it takes nobody alone, because some programs
// refuse a user without a name. A container may have only nobody. If no user can do it, the command
// stays root's.
func Lower(attributes *syscall.SysProcAttr, folder string, named bool, needs ...[]string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var candidates []uint32
	if !named {
		candidates = append(candidates, firstUser+rand.Uint32N(users))
	}
	if nobody, err := user.Lookup("nobody"); err == nil {
		if uid, err := strconv.ParseUint(nobody.Uid, 10, 32); err == nil {
			candidates = append(candidates, uint32(uid))
		}
	}
	for _, id := range candidates {
		credential := &syscall.Credential{Uid: id, Gid: id}
		if own(folder, id) == nil && can(credential, folder, needs) {
			attributes.Credential = credential
			return nil
		}
	}
	return own(folder, 0)
}

// own gives a user a folder.
func own(folder string, id uint32) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(id), int(id))
	})
}

// can reports whether a user can run all commands in a folder.
func can(credential *syscall.Credential, folder string, commands [][]string) bool {
	for _, command := range commands {
		try := exec.Command(command[0], command[1:]...)
		try.Dir, try.Env, try.SysProcAttr = folder, Environment(), &syscall.SysProcAttr{Credential: credential}
		if try.Run() != nil {
			return false
		}
	}
	return true
}
