package logindtest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
	"golang.org/x/sys/unix"
)

const (
	login1  = "org.freedesktop.login1"
	manager = "org.freedesktop.login1.Manager"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	systemd = "org.freedesktop.systemd1"
)

// Lock is a lock that somebody holds.
type Lock struct {
	What, Who, Why, Mode string
	fifo                 string
	reader               *os.File
}

// Logind is a small systemd-logind, with the part of systemd that signals it.
type Logind struct {
	t       testing.TB
	bus     *Bus
	confDir string
	fifos   string

	mu        sync.Mutex
	conn      *dbus.Conn
	props     *prop.Properties
	limit     time.Duration // unless a file says otherwise
	locks     []*Lock
	taken     int
	changed   chan struct{} // closed when a lock goes
	preparing bool
	deaf      bool
}

// StartLogind runs a logind on the bus until the test ends, which waits for locks for that long unless a file in
// confDir says otherwise.
func StartLogind(t testing.TB, b *Bus, limit time.Duration, confDir string) *Logind {
	t.Helper()
	l := &Logind{t: t, bus: b, limit: limit, confDir: confDir, fifos: t.TempDir(), changed: make(chan struct{})}
	t.Cleanup(l.Stop)
	l.Start()
	return l
}

// Start connects, also after Stop. The locks are still held.
func (l *Logind) Start() {
	l.t.Helper()
	sent := &sent{files: map[uint32]int{}}
	conn, err := dbus.Connect(l.bus.Address, dbus.WithSerialGenerator(sent), dbus.WithOutgoingInterceptor(sent.about))
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	l.conn = conn
	props, err := prop.Export(conn, object, prop.Map{manager: {
		"InhibitDelayMaxUSec":  {Value: uint64(l.configured() / time.Microsecond), Emit: prop.EmitFalse},
		"PreparingForShutdown": {Value: l.preparing, Emit: prop.EmitFalse},
	}})
	l.props = props
	for _, lock := range l.locks {
		l.watch(lock)
	}
	l.mu.Unlock()
	err = errors.Join(err, conn.Export(methods{l}, object, manager),
		conn.Export(units{l}, "/org/freedesktop/systemd1", systemd+".Manager"))
	for _, name := range []string{systemd, login1} {
		reply, nameErr := conn.RequestName(name, dbus.NameFlagDoNotQueue)
		if nameErr == nil && reply != dbus.RequestNameReplyPrimaryOwner {
			nameErr = fmt.Errorf("the name %s is taken", name)
		}
		err = errors.Join(err, nameErr)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// Stop ends it as a crash does. The pipes stay.
func (l *Logind) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // it ends as in a crash
		l.conn = nil
	}
	for _, lock := range l.locks {
		if lock.reader != nil {
			lock.reader.Close()
			lock.reader = nil
		}
	}
}

// Deafen has it ignore SIGHUP.
func (l *Logind) Deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// Locks are the locks that are held.
func (l *Logind) Locks() []Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Lock, 0, len(l.locks))
	for _, lock := range l.locks {
		list = append(list, *lock)
	}
	return list
}

// Taken is how many locks were taken so far.
func (l *Logind) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// PowerOff announces a shutdown, and returns how long it was delayed by locks, also where it was cancelled.
func (l *Logind) PowerOff() time.Duration {
	l.t.Helper()
	began := time.Now()
	l.announce(true)
	limit := time.NewTimer(l.Limit())
	defer limit.Stop()
	for {
		l.mu.Lock()
		delayed := slices.ContainsFunc(l.locks, func(k *Lock) bool { return k.What == "shutdown" && k.Mode == "delay" })
		changed, cancelled := l.changed, !l.preparing
		l.mu.Unlock()
		if !delayed || cancelled {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-limit.C:
			return time.Since(began)
		case <-l.t.Context().Done():
			return time.Since(began)
		}
	}
}

// Cancel announces that there is no shutdown after all.
func (l *Logind) Cancel() {
	l.t.Helper()
	l.announce(false)
}

// Limit is how long it waits for locks.
func (l *Logind) Limit() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, _ := l.props.GetMust(manager, "InhibitDelayMaxUSec").(uint64)
	return time.Duration(v) * time.Microsecond
}

func (l *Logind) announce(shuttingDown bool) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.preparing = shuttingDown
	l.wake()
	l.props.SetMust(manager, "PreparingForShutdown", shuttingDown)
	if err := l.conn.Emit(object, manager+".PrepareForShutdown", shuttingDown); err != nil {
		l.t.Error(err)
	}
}

// configured is what the files say; the last one counts.
func (l *Logind) configured() time.Duration {
	limit := l.limit
	files, _ := filepath.Glob(filepath.Join(l.confDir, "*.conf")) // the pattern is good
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			l.t.Error(err)
		}
		found := regexp.MustCompile(`(?m)^\[Login\]\nInhibitDelayMaxSec=(\d+)$`).FindSubmatch(data)
		if found != nil {
			seconds, err := strconv.Atoi(string(found[1]))
			if err != nil {
				l.t.Error(err)
			}
			limit = time.Duration(seconds) * time.Second
		}
	}
	return cmp.Or(limit, 5*time.Second)
}

// wake has PowerOff look again.
func (l *Logind) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// watch waits until nobody has the writing end open.
func (l *Logind) watch(lock *Lock) {
	reader, err := os.OpenFile(lock.fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		l.t.Error(err)
		return
	}
	lock.reader = reader
	go func() {
		_, err := reader.Read(make([]byte, 1))
		if !errors.Is(err, io.EOF) {
			return // it has stopped
		}
		reader.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.locks = slices.DeleteFunc(l.locks, func(k *Lock) bool { return k == lock })
		l.wake()
	}()
}

// methods are those of logind's manager.
type methods struct{ *Logind }

// Inhibit implements the call of that name.
func (m methods) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l := m.Logind
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.preparing {
		return 0, dbus.NewError(login1+".OperationInProgress",
			[]any{"The operation inhibition has been requested for is already running"})
	}
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{"the fake knows delays of shutdowns only"})
	}
	l.taken++
	lock := &Lock{What: what, Who: who, Why: why, Mode: mode, fifo: filepath.Join(l.fifos, strconv.Itoa(l.taken)+".ref")}
	if err := unix.Mkfifo(lock.fifo, 0o600); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	// The reader must see a writer before it reads.
	both, err := unix.Open(lock.fifo, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	writer, err := unix.Open(lock.fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.locks = append(l.locks, lock)
	l.watch(lock)
	if err := unix.Close(both); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	return dbus.UnixFD(writer), nil // which is closed once it is sent
}

// sent closes the files that messages carry once they are sent: the library sends duplicates, and says by retiring
// the message's number that it has.
type sent struct {
	mu    sync.Mutex
	last  uint32
	files map[uint32]int
}

// GetSerial implements dbus.SerialGenerator.
func (s *sent) GetSerial() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

// RetireSerial implements dbus.SerialGenerator.
func (s *sent) RetireSerial(serial uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd, carried := s.files[serial]; carried {
		delete(s.files, serial)
		_ = unix.Close(fd) // it is open
	}
}

// about notes what a message carries that is about to be sent.
func (s *sent) about(m *dbus.Message) {
	for _, v := range m.Body {
		if fd, ok := v.(dbus.UnixFD); ok {
			s.mu.Lock()
			s.files[m.Serial()] = int(fd)
			s.mu.Unlock()
		}
	}
}

// inhibitor is a lock in the answer of ListInhibitors.
type inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// ListInhibitors implements the call of that name.
func (m methods) ListInhibitors() (list []inhibitor, _ *dbus.Error) {
	for _, k := range m.Locks() {
		list = append(list, inhibitor{k.What, k.Who, k.Why, k.Mode, 0, 0})
	}
	return list, nil
}

// units are the methods of systemd's manager.
type units struct{ *Logind }

// KillUnit implements the call of that name for SIGHUP to logind.
func (u units) KillUnit(name, whom string, signal int32) *dbus.Error {
	l := u.Logind
	if name != "systemd-logind.service" || whom != "main" || signal != int32(unix.SIGHUP) {
		return dbus.NewError(systemd+".NoSuchUnit",
			[]any{fmt.Sprintf("the fake can't send %d to %s of %s", signal, whom, name)})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.deaf {
		l.props.SetMust(manager, "InhibitDelayMaxUSec", uint64(l.configured()/time.Microsecond))
	}
	return nil
}
