package logind

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"kubelot.dev/daemon/fdstore"
	"kubelot.dev/services/gc/logindtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for a busy machine.
const patience = time.Minute

// realVariable has TestContract ask the machine's own logind. Its locks are taken and released, and its configuration
// is changed for a moment. The machine doesn't go down.
const realVariable = "KUBELOT_TEST_REAL_LOGIND"

func TestContract(t *testing.T) {
	if os.Getenv(realVariable) != "" {
		logindtest.Contract(t, "unix:path=/run/dbus/system_bus_socket", ConfDir, nil)
		return
	}
	bus, dir := logindtest.StartBus(t), t.TempDir()
	fake := logindtest.StartLogind(t, bus, time.Minute, dir)
	logindtest.Contract(t, bus.Address, dir, func() func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			fake.PowerOff()
		}()
		return func() {
			fake.Cancel()
			t.Cleanup(func() { <-done })
		}
	})
}

// bed is a lock with a logind of its own.
type bed struct {
	t      *testing.T
	bus    *logindtest.Bus
	logind *logindtest.Logind
	dir    string
	lock   *Lock

	mu        sync.Mutex
	announced []bool
	problem   error
	log       bytes.Buffer
}

func newBed(t *testing.T, limit time.Duration) *bed {
	b := &bed{t: t, bus: logindtest.StartBus(t), dir: filepath.Join(t.TempDir(), "logind.conf.d")}
	b.logind = logindtest.StartLogind(t, b.bus, limit, b.dir)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.bus.Address)
	return b
}

// Write is for the log.
func (b *bed) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

// start runs a lock that is wanted; stop ends it.
func (b *bed) start(store *fdstore.Store) (stop func()) {
	b.lock = New(Options{
		Period: 30 * time.Second, Reserve: 5 * time.Second, ConfDir: b.dir, Store: store,
		Log: slog.New(slog.NewTextHandler(b, nil)),
	})
	b.lock.Want(true)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.lock.Run(ctx, func(is bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.announced = append(b.announced, is)
		}, func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.problem = err
		})
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Fatalf("waited %s for %s; locks %+v, announced %v, problem %v, log\n%s", patience, what, b.logind.Locks(),
		b.announced, b.problem, b.log.String())
}

// held waits until so many locks are held.
func (b *bed) held(n int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%d locks", n), func() bool { return len(b.logind.Locks()) == n })
}

// said waits until this was announced last.
func (b *bed) said(want bool) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("the announcement %v", want), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.announced) > 0 && b.announced[len(b.announced)-1] == want
	})
}

func (b *bed) failed(text string) {
	b.t.Helper()
	b.eventually("the problem "+text, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.problem != nil && strings.Contains(b.problem.Error(), text)
	})
}

func TestAShutdownWaitsForTheLock(t *testing.T) {
	b := newBed(t, time.Hour)
	b.start(nil)
	b.held(1)
	if l := b.logind.Locks()[0]; l.What != "shutdown" || l.Who != "kubelet" || l.Mode != "delay" ||
		l.Why != "Kubelet needs time to handle node shutdown" {
		t.Errorf("lock %+v", l)
	}
	b.said(false)
	off := make(chan time.Duration, 1)
	go func() { off <- b.logind.PowerOff() }()
	b.said(true)
	select {
	case <-off:
		t.Fatal("the machine went off before the lock was released")
	case <-time.After(50 * time.Millisecond):
	}
	b.lock.Want(false)
	select {
	case <-off:
	case <-time.After(patience):
		t.Fatal("the machine waits though the lock was released")
	}
	// It was cancelled: the next shutdown is delayed, too.
	b.logind.Cancel()
	b.said(false)
	b.lock.Want(true)
	b.held(1)
	if b.lock.Limit() != time.Hour {
		t.Errorf("limit %s", b.lock.Limit())
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("a limit that suffices was changed: %v", err)
	}
}

func TestALimitThatIsTooShortIsRaised(t *testing.T) {
	b := newBed(t, 5*time.Second)
	b.start(nil)
	b.held(1)
	data, err := os.ReadFile(filepath.Join(b.dir, "99-kubelet.conf"))
	if err != nil || string(data) != "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=35\n" {
		t.Errorf("%q, %v", data, err)
	}
	if b.logind.Limit() != 35*time.Second || b.lock.Limit() != 35*time.Second {
		t.Errorf("logind waits %s, the lock knows of %s", b.logind.Limit(), b.lock.Limit())
	}
}

func TestALimitThatCantBeRaised(t *testing.T) {
	b := newBed(t, 5*time.Second)
	b.logind.Deafen()
	stop := b.start(nil)
	b.failed("it doesn't heed InhibitDelayMaxSec in " + b.dir)
	if n := len(b.logind.Locks()); n != 0 {
		t.Errorf("%d locks are held that are too short", n)
	}
	stop()
	if err := os.WriteFile(b.dir+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.dir += "2"
	b.start(nil)
	b.failed("set InhibitDelayMaxSec=35 in logind.conf yourself")
}

func TestLogindAndTheBusComeAndGo(t *testing.T) {
	b := newBed(t, time.Hour)
	b.logind.Stop()
	b.bus.Stop()
	b.start(nil)
	b.failed("connect to the system bus")
	b.bus.Start(t)
	b.failed("InhibitDelayMaxUSec")
	b.logind.Start()
	b.held(1)
	taken := b.logind.Taken()

	// logind is started again: the lock is a pipe, and is held on.
	b.logind.Stop()
	b.logind.Start()
	off := make(chan time.Duration, 1)
	go func() { off <- b.logind.PowerOff() }()
	b.said(true)
	if n := len(b.logind.Locks()); n != 1 {
		t.Errorf("%d locks are held over a restart of logind", n)
	}
	// So is the bus, and the end of the shutdown is told meanwhile.
	b.logind.Stop()
	b.bus.Stop()
	b.failed("the system bus")
	b.bus.Start(t)
	b.logind.Start()
	b.eventually("no problem", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.problem == nil })
	b.said(true)
	b.lock.Want(false)
	b.held(0)
	<-off
	if b.logind.Taken() > taken+1 {
		t.Errorf("%d locks were taken", b.logind.Taken())
	}
}

// supervised is a store with a supervisor.
func supervised(t *testing.T) *fdstore.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go supervise(conn, done)
	t.Cleanup(func() { conn.Close(); <-done })
	t.Setenv("NOTIFY_SOCKET", path)
	return fdstore.FromEnvironment(slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// supervise keeps what it is given until it is to be removed.
func supervise(conn *net.UnixConn, done chan<- struct{}) {
	defer close(done)
	kept := map[string][]int{}
	for {
		data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		n, oobn, _, _, err := conn.ReadMsgUnix(data, oob)
		if err != nil {
			break
		}
		message := string(data[:n])
		_, name, _ := strings.Cut(message, "FDNAME=")
		if strings.HasPrefix(message, "FDSTOREREMOVE=1") {
			for _, fd := range kept[name] {
				_ = unix.Close(fd)
			}
			delete(kept, name)
			continue
		}
		if parts, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(parts) == 1 {
			fds, _ := unix.ParseUnixRights(&parts[0])
			kept[name] = append(kept[name], fds...)
		}
	}
	for _, fds := range kept {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// A process that is killed leaves its lock to the supervisor. Here the next run finds it in the same process.
func TestTheNextRunHoldsTheLockOn(t *testing.T) {
	b := newBed(t, time.Hour)
	store := supervised(t)
	stop := b.start(store)
	b.held(1)
	stop()
	if len(b.logind.Locks()) != 1 {
		t.Fatal("the lock went with its run")
	}
	// Idle: it takes a lock of its own, and gives the old one up.
	stop = b.start(store)
	b.eventually("another lock", func() bool { return b.logind.Taken() == 2 && len(b.logind.Locks()) == 1 })
	stop()
	// While a shutdown is announced, no lock is given: the old one is held on, until it isn't wanted.
	off := make(chan time.Duration, 1)
	go func() { off <- b.logind.PowerOff() }()
	b.start(store)
	b.said(true)
	b.eventually("no problem", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.problem == nil })
	if len(b.logind.Locks()) != 1 || b.logind.Taken() != 2 {
		t.Errorf("locks %+v, %d taken", b.logind.Locks(), b.logind.Taken())
	}
	b.lock.Want(false)
	<-off
	if n := len(store.Inherited(purpose)); n != 0 {
		t.Errorf("%d locks are kept still", n)
	}
}
