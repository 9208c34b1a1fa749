package fdstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// asChild makes the test program play the daemon that is started again.
const asChild = "FDSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// child says what it has inherited and drops it.
func child() {
	if os.Getenv("LISTEN_PID") == "self" {
		os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	}
	s := FromEnvironment(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	for _, f := range append(s.Inherited("cri"), s.Inherited("shutdown-lock")...) {
		flags, err := unix.FcntlInt(f.file.Fd(), unix.F_GETFD, 0)
		fmt.Println("inherited", f.Name, "hung up:", f.HungUp(), "close on exec:", flags&unix.FD_CLOEXEC != 0, err)
		f.Drop()
	}
	if left := len(s.inherited); left > 0 {
		fmt.Println("still inherited:", left)
	}
	for _, name := range []string{"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"} {
		if value, set := os.LookupEnv(name); set {
			fmt.Println("still set:", name, value)
		}
	}
}

func run(t *testing.T, files []*os.File, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), append(env, asChild+"=1")...), files
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// supervisor is a notify socket and what came in on it.
type supervisor struct {
	t    *testing.T
	conn *net.UnixConn
}

func newSupervisor(t *testing.T) *supervisor {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &supervisor{t, conn}
}

// next is the next message, and the file that came with it.
func (s *supervisor) next() (string, *os.File) {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := s.conn.ReadMsgUnix(data, oob)
	if err != nil {
		s.t.Fatal(err)
	}
	if oobn == 0 {
		return string(data[:n]), nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		s.t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		s.t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "stored")
	s.t.Cleanup(func() { file.Close() })
	return string(data[:n]), file
}

// server accepts connections at a path.
func server(t *testing.T) (string, net.Listener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path, l
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAConnectionOutlivesItsProcess(t *testing.T) {
	sup := newSupervisor(t)
	path, l := server(t)
	s := FromEnvironment(slog.New(slog.NewTextHandler(t.Output(), nil)))
	dial := s.Dialer("cri")
	first, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	there, thereToo := accept(t, l), accept(t, l)
	message, kept := sup.next()
	name, ok := strings.CutPrefix(message, "FDSTORE=1\nFDNAME=cri-")
	if !ok || kept == nil {
		t.Fatalf("the supervisor got %q, file %v", message, kept)
	}
	other, keptToo := sup.next()
	if other == message {
		t.Errorf("two connections have one name: %q", message)
	}

	// In order: the supervisor is told, and the other end sees it once the supervisor has closed its own.
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if gone, _ := sup.next(); gone != strings.Replace(other, "FDSTORE", "FDSTOREREMOVE", 1) {
		t.Errorf("closed: the supervisor got %q after %q", gone, other)
	}
	keptToo.Close()
	if _, err := thereToo.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end of a closed connection reads %v", err)
	}

	// Killed: nobody is told, and the other end sees nothing.
	first.(*conn).Conn.Close()
	if err := there.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("the other end of a connection whose process was killed reads %v", err)
	}

	// The next process gets it, here behind one that is over.
	there.(*net.UnixConn).SetReadDeadline(time.Time{})
	over, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	accept(t, l).Close()
	overFile, err := over.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	over.Close()
	defer overFile.Close()
	for _, pid := range []string{"", "LISTEN_PID=self"} {
		out := run(t, []*os.File{kept, overFile}, "LISTEN_FDS=2", "LISTEN_FDNAMES=cri-"+name+":cri-1-2-3", pid)
		want := "inherited cri-1-2-3 hung up: true close on exec: true <nil>\ninherited cri-" + name +
			" hung up: false close on exec: true <nil>\n"
		if out != want {
			t.Errorf("the next process says\n%swant\n%s", out, want)
		}
		for _, n := range []string{"cri-1-2-3", "cri-" + name} {
			if gone, _ := sup.next(); gone != "FDSTOREREMOVE=1\nFDNAME="+n {
				t.Errorf("the supervisor got %q, want the removal of %s", gone, n)
			}
		}
	}
	kept.Close()
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end reads %v when the last duplicate is closed", err)
	}
}

// A lock is a pipe: it is held while the pipe is open, whoever has the other end.
func TestAPipeOutlivesItsProcess(t *testing.T) {
	sup := newSupervisor(t)
	s := FromEnvironment(slog.New(slog.NewTextHandler(t.Output(), nil)))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	released := func() bool {
		fds := []unix.PollFd{{Fd: int32(reader.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, 0); err != nil {
			t.Fatal(err)
		}
		return fds[0].Revents&unix.POLLHUP != 0
	}
	lock := s.Keep("shutdown-lock", writer)
	message, kept := sup.next()
	if !strings.HasPrefix(message, "FDSTORE=1\nFDPOLL=0\nFDNAME=shutdown-lock-") || kept == nil {
		t.Fatalf("the supervisor got %q, file %v", message, kept)
	}
	// The next run of a daemon in this process finds it, and no other daemon does.
	if again := s.Inherited("shutdown-lock"); len(again) != 1 || again[0] != lock || len(s.Inherited("lock")) != 0 {
		t.Errorf("kept are %v, for another purpose %v", again, s.Inherited("lock"))
	}
	writer.Close() // killed
	if released() || lock.Name == "" {
		t.Error("the lock went with its process")
	}
	out := run(t, []*os.File{kept}, "LISTEN_FDS=1", "LISTEN_FDNAMES="+lock.Name)
	if want := "inherited " + lock.Name + " hung up: false close on exec: true <nil>\n"; out != want {
		t.Errorf("the next process says %q, want %q", out, want)
	}
	if gone, _ := sup.next(); gone != "FDSTOREREMOVE=1\nFDNAME="+lock.Name {
		t.Errorf("the supervisor got %q", gone)
	}
	kept.Close()
	if !released() {
		t.Error("the lock is held though all have closed it")
	}
}

func TestAPipeWithoutASupervisor(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	for _, s := range []*Store{nil, FromEnvironment(slog.New(slog.DiscardHandler))} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		lock := s.Keep("lock", writer)
		if lock.HungUp() {
			t.Error("somebody reads it")
		}
		reader.Close()
		if !lock.HungUp() {
			t.Error("nobody reads it any more")
		}
		lock.Drop()
		if _, err := writer.Write(nil); !errors.Is(err, os.ErrClosed) || len(s.Inherited("lock")) != 0 {
			t.Errorf("dropped, a write says %v; kept are %v", err, s.Inherited("lock"))
		}
	}
}

func TestOddEnvironments(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, c := range map[string]struct {
		env  []string
		want string // in one line; empty for none
	}{
		"nothing":            {nil, ""},
		"of another process": {[]string{"LISTEN_FDS=1", "LISTEN_FDNAMES=cri-1-2-3", "LISTEN_PID=1"}, ""},
		"no number":          {[]string{"LISTEN_FDS=many", "LISTEN_FDNAMES=cri-1-2-3"}, "want a number"},
		"negative":           {[]string{"LISTEN_FDS=-1"}, "want a number"},
		"no names":           {[]string{"LISTEN_FDS=1"}, "its name isn't one"},
		"too few names":      {[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=cri-1-2-3"}, "1 names for 2 file descriptors"},
		"a name not given":   {[]string{"LISTEN_FDS=1", "LISTEN_FDNAMES=http"}, "its name isn't one"},
		"no socket":          {[]string{"LISTEN_FDS=1", "LISTEN_FDNAMES=a-1-2-3"}, "it is neither a socket nor a pipe"},
		"not open": {
			[]string{"LISTEN_FDS=99", "LISTEN_FDNAMES=" + strings.Repeat("a-1-2-3:", 98) + "a-1-2-3"}, "it isn't open",
		},
		"an absurdly big one": {[]string{"LISTEN_FDS=99999999999999999999"}, "want a number"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, []*os.File{file}, c.env...)
			if c.want == "" && out != "" || c.want != "" && (strings.Count(out, "\n") != 1 ||
				!strings.Contains(out, "level=WARN") || !strings.Contains(out, c.want)) {
				t.Errorf("got %q, want one warning with %q", out, c.want)
			}
		})
	}
}

func TestWithoutASupervisor(t *testing.T) {
	path, _ := server(t)
	var none *Store
	var log bytes.Buffer
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	deaf := FromEnvironment(slog.New(slog.NewTextHandler(&log, nil)))
	t.Setenv("NOTIFY_SOCKET", "")
	for _, s := range []*Store{none, FromEnvironment(slog.New(slog.DiscardHandler)), deaf} {
		c, err := s.Dialer("cri")(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if len(s.Inherited("cri")) != 0 {
			t.Error("something was inherited from nobody")
		}
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("a supervisor that can't be reached is told of as %q, want one warning", log.String())
	}
	if _, err := deaf.Dialer("cri")(t.Context(), filepath.Join(t.TempDir(), "nobody")); err == nil {
		t.Error("nobody listens, and a connection was made")
	}
}

// What is in the environment is anyone's. A name that this package gives is read back with the time that is in it.
func FuzzListenFDNames(f *testing.F) {
	s := &Store{}
	f.Add("2", s.Name("exec")+":"+s.Name("an-exec"))
	f.Add("1", "exec-9223372036854775808-1-1")
	f.Add("-1", "")
	f.Add("0", "")
	f.Add("99999999999999999999", ":::")
	f.Fuzz(func(t *testing.T, fds, names string) {
		list, err := parseNames(fds, names)
		if err != nil {
			return
		}
		if joined := strings.Join(list, ":"); joined != names || fds == "0" {
			t.Errorf("%q names of %q are %q", fds, names, list)
		}
		for _, name := range list {
			at, ok := stored(name)
			if again, ok2 := stored(fmt.Sprintf("%s-%d-1-1", name, at)); ok && (!ok2 || again != at) {
				t.Errorf("%q was stored at %d, and as a purpose at %d", name, at, again)
			}
		}
	})
}
