package memory

import (
	"fmt"
	"log/slog"
	"os"
	"unsafe"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// executable unmaps the executable's code and constants. Pages that are needed again come back from the page cache by
// themselves. Most pages don't come back, because only the start needed them (package init, flags, decoding the
// configuration). With the whole crew in one executable these are 37 of 50 MiB (docs/adr/0008).
type executable struct {
	log      *slog.Logger
	mappings []*procfs.ProcMap
	// pager is a userfaultfd that the mappings are registered with, or -1.
	pager int
}

// openExecutable finds the mappings of the executable. They are as long as the process.
func openExecutable(log *slog.Logger) *executable {
	e := &executable{log: log, pager: -1}
	var err error
	if e.mappings, err = constantMappings(); err != nil {
		log.Debug("pages of the executable stay mapped", "error", err)
	}
	return e
}

func constantMappings() ([]*procfs.ProcMap, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	self, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	all, err := self.ProcMaps()
	if err != nil {
		return nil, fmt.Errorf("read this process's mappings: %w", err)
	}
	var constant []*procfs.ProcMap
	for _, m := range all {
		if m.Pathname == path && !m.Perms.Write {
			constant = append(constant, m)
		}
	}
	return constant, nil
}

// forget unmaps all pages.
func (e *executable) forget() {
	if e.pager < 0 {
		e.mapSinglePages()
	}
	for _, m := range e.mappings {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			e.log.Debug("pages of the executable stay mapped", "bytes", m.EndAddr-m.StartAddr, "error", errno)
		}
	}
}

func (e *executable) close() {
	if e.pager >= 0 {
		_ = unix.Close(e.pager) // nothing is written to it
	}
}

// From linux/userfaultfd.h.
const (
	uffdAPI            = 0xaa
	uffdUserModeOnly   = 1
	uffdFeatureWPAsync = 1 << 15
	uffdModeWP         = 1 << 1
	uffdioAPI          = 0xc018aa3f
	uffdioRegister     = 0xc020aa00
)

// mapSinglePages makes a page that is needed again come back alone. By default Linux also maps the 15 pages around it
// if they are in the page cache. A daemon touches its code here and there, so at rest it would have five times the
// pages that it uses. Linux has no call to change that, but it maps single pages in memory that is registered for write
// protection by userfaultfd (mm/memory.c, should_fault_around). Nothing is protected, so no page waits. If the kernel
// is older than 6.7, or the unit forbids the call, nothing changes.
func (e *executable) mapSinglePages() {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return
	}
	e.pager = int(fd)
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI, features: uffdFeatureWPAsync}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		e.log.Debug("pages of the executable are mapped in groups", "error", errno)
		return
	}
	for _, m := range e.mappings {
		register := struct{ start, length, mode, ioctls uint64 }{
			uint64(m.StartAddr),
			uint64(m.EndAddr - m.StartAddr), uffdModeWP, 0,
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioRegister, uintptr(unsafe.Pointer(&register))); errno != 0 {
			e.log.Debug("pages of the executable are mapped in groups", "bytes", register.length, "error", errno)
		}
	}
}
