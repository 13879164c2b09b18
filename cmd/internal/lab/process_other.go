//go:build !linux

package lab

// residentSet reads the memory of this process.
type residentSet struct{ run *run }

func openResidentSet(r *run) *residentSet { return &residentSet{r} }

// read returns the resident set and the address space in bytes; zero where they are not to be had.
func (m *residentSet) read() (rss, vss int64) {
	info, err := m.run.process.MemoryInfo()
	if err != nil {
		return 0, 0
	}
	return int64(info.RSS), int64(info.VMS)
}

func (m *residentSet) close() {}
