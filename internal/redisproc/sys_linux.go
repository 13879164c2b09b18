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

// attributes make the kernel end the server with us, and keep Ctrl-C in a terminal from
// reaching it before we are done with it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// Users from firstUser on have no name on any usual system, and are not handed out to containers or
// by directories of users.
const (
	firstUser = 0x78000000
	users     = 1 << 26
)

// lower runs a server as a user without other files or processes, or else as nobody, if it would be
// root's. It gives that user the server's folder. It skips a user who cannot reach everything that
// the server needs. A container may have only nobody.
func (s *Server) lower(attributes *syscall.SysProcAttr) error {
	if os.Geteuid() != 0 {
		return nil
	}
	candidates := []uint32{firstUser + rand.Uint32N(users)}
	if nobody, err := user.Lookup("nobody"); err == nil {
		if uid, err := strconv.ParseUint(nobody.Uid, 10, 32); err == nil {
			candidates = append(candidates, uint32(uid))
		}
	}
	for _, id := range candidates {
		credential := &syscall.Credential{Uid: id, Gid: id}
		if s.own(id) == nil && s.reaches(credential) {
			attributes.Credential = credential
			return nil
		}
	}
	return s.own(0)
}

// own gives a user the server's folder.
func (s *Server) own(id uint32) error {
	return filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(id), int(id))
	})
}

// reaches reports whether a user can run the server and read its file.
func (s *Server) reaches(credential *syscall.Credential) bool {
	for _, command := range [][]string{{s.path, "--version"}, {"test", "-r", s.modest}} {
		try := exec.Command(command[0], command[1:]...)
		try.Dir, try.Env, try.SysProcAttr = s.dir, Environment(), &syscall.SysProcAttr{Credential: credential}
		if try.Run() != nil {
			return false
		}
	}
	return true
}
