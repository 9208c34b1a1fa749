package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// asDaemon makes the test program play a daemon.
const asDaemon = "UP_TEST_DAEMON"

func TestMain(m *testing.M) {
	stopGrace = time.Minute
	if server := os.Getenv(asDaemon); server != "" {
		play(server)
		return
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(Main())
	}
	if options := os.Getenv(asBecoming); options != "" {
		becomes(options)
		return
	}
	goleak.VerifyTestMain(m)
}

// play says what it got and what others see of it. In its first life it stores connections and is killed; in its
// second it is killed at once; in the third it removes what it got.
func play(server string) {
	fmt.Println("got", os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES"),
		os.Getenv("LISTEN_PID")+os.Getenv("WATCHDOG_USEC"))
	tell("READY=1\nSTATUS=fine", -1)
	life := os.Getenv("UP_TEST_LIFE") // a file that is there from the second life on
	if _, err := os.Stat(life); err != nil {
		_ = os.WriteFile(life, nil, 0o600)
		for i := range 2 {
			fd := connect(server)
			tell(fmt.Sprintf("FDSTORE=1\nFDNAME=cri-%d", i), fd)
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if _, err := os.Stat(life + "2"); err != nil {
		_ = os.WriteFile(life+"2", nil, 0o600)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if os.Getenv("LISTEN_FDS") == "2" {
		_, err := os.NewFile(4, "inherited").WriteString("third life")
		fmt.Println("wrote", err)
		tell("FDSTOREREMOVE=1\nFDNAME=cri-0", -1)
	}
	select {}
}

// connect makes a connection that package net doesn't close when it is collected.
func connect(server string) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: server})
	}
	if err != nil {
		fmt.Println("connect:", err)
	}
	return fd
}

func tell(message string, fd int) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err == nil {
		var rights []byte
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		err = unix.Sendmsg(s, []byte(message), rights, &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}, 0)
		unix.Close(s)
	}
	if err != nil {
		fmt.Println("tell:", err)
	}
}

func TestAKilledChildsConnectionsGoToTheNext(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "server")
	server, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv("NOTIFY_SOCKET", "/not/for/children")
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv(asDaemon, path)
	t.Setenv("UP_TEST_LIFE", filepath.Join(dir, "life"))

	out := &safeBuffer{seen: make(chan struct{}, 1)}
	c := &child{name: "podsync", path: os.Args[0], runDir: filepath.Join(dir, "run"), console: &console{out: out}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.keep(ctx)
		close(done)
	}()
	var conns []net.Conn
	for range 2 {
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	wait, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := out.await(wait, "got  "); err != nil {
		t.Error(err)
	}
	if err := out.await(wait, "wrote <nil>"); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "got 2 cri-0:cri-1 \n"); n != 2 || strings.Contains(out.String(), "tell:") {
		t.Errorf("want two lives that got both connections:\n%s", out)
	}
	data := make([]byte, 100)
	if n, err := conns[1].Read(data); string(data[:n]) != "third life" {
		t.Errorf("the server reads %q, %v", data[:n], err)
	}
	if info, err := os.Stat(c.notify.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the notify socket: %v %v", info, err)
	}
	cancel()
	<-done
	for _, conn := range conns {
		if _, err := conn.Read(data); !errors.Is(err, io.EOF) {
			t.Errorf("the server reads %v when the crew has ended", err)
		}
	}
	if _, err := os.Stat(c.notify.path); !os.IsNotExist(err) {
		t.Errorf("the notify socket is left: %v", err)
	}
}

func TestStoreKeepsAFewAndDropsWhatIsOver(t *testing.T) {
	s := &store{}
	defer s.close()
	pair := func() (ours *os.File, peer int) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fds[0]), ""), fds[1]
	}
	names := func() string {
		_, env := s.handOver()
		return strings.Join(env, " ")
	}
	a, peerOfA := pair()
	b, peerOfB := pair()
	defer unix.Close(peerOfB)
	for _, c := range []struct {
		message string
		file    *os.File
		fails   bool
	}{
		{"FDSTORE=1\nFDNAME=a", a, false},
		{"FDSTORE=1", b, false},
		{"WATCHDOG=1", nil, false},
		{"FDSTOREREMOVE=1\nFDNAME=c", nil, false},
	} {
		var files []*os.File
		if c.file != nil {
			files = []*os.File{c.file}
		}
		if err := s.take(c.message, files); err != nil {
			t.Errorf("%q: %v", c.message, err)
		}
	}
	if got := names(); got != "LISTEN_FDS=2 LISTEN_FDNAMES=a:stored" {
		t.Errorf("handed over: %s", got)
	}
	unix.Close(peerOfA)
	if got := names(); got != "LISTEN_FDS=1 LISTEN_FDNAMES=stored" {
		t.Errorf("handed over when the peer of a has hung up: %s", got)
	}
	for _, name := range []string{"", "a:b", "a b", "ä", strings.Repeat("x", 256)} {
		f, peer := pair()
		if err := s.take("FDSTORE=1\nFDNAME="+name, []*os.File{f}); err == nil {
			t.Errorf("the name %q is taken", name)
		}
		unix.Close(peer)
	}
	var err error
	for range maxStored {
		f, peer := pair()
		defer unix.Close(peer)
		if err != nil {
			t.Fatalf("too early: %v", err)
		}
		err = s.take("FDSTORE=1\nFDNAME=many", []*os.File{f})
	}
	if err == nil || len(s.kept) != maxStored {
		t.Errorf("%d are kept, the one too many gave %v", len(s.kept), err)
	}
	if err := s.take("FDSTOREREMOVE=1\nFDNAME=many", nil); err != nil || names() != "LISTEN_FDS=1 LISTEN_FDNAMES=stored" {
		t.Errorf("after the removal of many: %s, %v", names(), err)
	}
}

// A run directory in which no socket can be made must not keep the crew from running.
func TestWithoutANotifySocket(t *testing.T) {
	out := &safeBuffer{seen: make(chan struct{}, 1)}
	c := &child{name: "x", runDir: filepath.Join(t.TempDir(), strings.Repeat("long", 50)), console: &console{out: out}}
	c.listen()
	env, files := c.notify.inheritance()
	c.notify.serve()()
	c.notify.close()
	if c.notify != nil || files != nil || len(env) == 0 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("files %v, output %q", files, out)
	}
}

// A child may say anything. What is kept stays within its bound, and the names go to the next process as they came.
func FuzzNotifyMessages(f *testing.F) {
	f.Add("FDSTORE=1\nFDNAME=exec-1-2-3", "FDSTOREREMOVE=1\nFDNAME=exec-1-2-3")
	f.Add("FDSTORE=1", "READY=1\nSTATUS=FDSTORE=1")
	f.Add("FDSTORE=1\nFDNAME=a:b", "FDSTORE=1\nFDNAME=")
	f.Add("FDNAME=x\nFDSTORE=1\n\n=\nFDSTORE=1=1", "\x00")
	f.Fuzz(func(t *testing.T, first, second string) {
		var s store
		defer s.close()
		for range maxStored {
			for _, message := range []string{first, second} {
				file, err := os.Open(os.DevNull)
				if err != nil {
					t.Fatal(err)
				}
				_ = s.take(message, []*os.File{file}) // what it complains of is for a log
			}
		}
		if len(s.kept) > maxStored {
			t.Fatalf("%d files are kept", len(s.kept))
		}
		files, env := s.handOver()
		if len(files) == 0 {
			return
		}
		names := strings.Split(strings.TrimPrefix(env[1], "LISTEN_FDNAMES="), ":")
		if env[0] != fmt.Sprintf("LISTEN_FDS=%d", len(files)) || len(names) != len(files) {
			t.Errorf("%d files are handed over with %q", len(files), env)
		}
		for i, k := range s.kept {
			if k.name != names[i] {
				t.Errorf("the name %q is handed over as %q", k.name, names[i])
			}
		}
	})
}
