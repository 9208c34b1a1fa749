package sleep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/daemon/fdstore"
)

const (
	// dirVariable makes the test's executable a daemon with its sockets in that directory.
	dirVariable = "SLEEP_TEST_DIR"
	metricsText = "toys 3\n"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		fmt.Println("failed:", toy(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// toy is a daemon that sleeps as soon as it may, and answers each client of its door with its process.
func toy(dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var metrics *net.UnixListener
	s := New(dir, "toy", fdstore.FromEnvironment(log), Chassis{
		Leave: func(string) ([]byte, *net.UnixListener, error) { return []byte(metricsText), metrics, nil },
		Return: func() {
			fmt.Println("returned")
		},
	}, log)
	s.lately = 0
	path := filepath.Join(dir, "door")
	door := s.Door("toys", path)
	fmt.Println("awake, inherited:", door.inherited != nil)
	socket := filepath.Join(dir, "metrics")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	metrics = l.(*net.UnixListener)
	clients, err := door.Open(func() (*net.UnixListener, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		return l.(*net.UnixListener), nil
	})
	if err != nil {
		return err
	}
	go serve(clients)
	if err := s.Set(context.Background()); err != nil {
		return err
	}
	for {
		time.Sleep(50 * time.Millisecond)
		if err := s.Sleep("it is a test"); !errors.Is(err, ErrLater) {
			return err
		}
		fmt.Println("busy")
	}
}

func serve(clients net.Listener) {
	for {
		c, err := clients.Accept()
		if err != nil {
			fmt.Println("accept:", err)
			return
		}
		go func() {
			fmt.Fprintln(c, os.Getpid())
			_, _ = io.Copy(io.Discard, c) // until the client leaves
			_ = c.Close()
		}()
	}
}

// process is a toy.
type process struct {
	*exec.Cmd
	t     *testing.T
	dir   string
	lines chan string
	heard chan string // by its supervisor
}

func start(t *testing.T) *process {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, Program), "kubelot.dev/daemon/cmd/kubelot-doze")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "kubelot-toy")
	content, err := os.ReadFile(self)
	if err := errors.Join(err, os.WriteFile(program, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(program, "--a", "flag"), t: t, dir: dir, lines: make(chan string, 100)}
	supervisor, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	p.heard = make(chan string, 1000)
	go func() {
		var message [1000]byte
		for {
			n, err := supervisor.Read(message[:])
			if err != nil {
				return
			}
			p.heard <- string(message[:n])
		}
	}()
	p.Env = append(os.Environ(), dirVariable+"="+dir, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"),
		"WATCHDOG_USEC=400000")
	out, err := p.StdoutPipe()
	p.Stderr = t.Output()
	if err := errors.Join(err, p.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
		supervisor.Close()
	})
	return p
}

// says waits for what the toy prints next. That it is busy it may say at any time.
func (p *process) says(want string) {
	p.t.Helper()
	for late := time.After(time.Minute); ; {
		select {
		case line := <-p.lines:
			if line == want {
				return
			}
			if line != "busy" {
				p.t.Fatalf("it says %q, want %q", line, want)
			}
		case <-late:
			p.t.Fatalf("it hasn't said %q", want)
		}
	}
}

// asleep waits until the process runs the program that waits.
func (p *process) asleep() {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.Process.Pid))
		if err == nil && filepath.Base(exe) == Program {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("it doesn't sleep: it runs %s (%v)", exe, err)
		}
	}
}

func (p *process) connect() net.Conn {
	p.t.Helper()
	c, err := net.Dial("unix", filepath.Join(p.dir, "door"))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// answered checks that a client hears from this very process.
func (p *process) answered(c net.Conn) {
	p.t.Helper()
	line, err := bufio.NewReader(c).ReadString('\n')
	if want := fmt.Sprintln(p.Process.Pid); err != nil || line != want {
		p.t.Fatalf("the client hears %q, %v, want %q", line, err, want)
	}
}

func (p *process) ask(method, path string) (status int, body string, err error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.dir, "metrics"))
		},
	}}
	request, err := http.NewRequest(method, "http://toy"+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	return r.StatusCode, string(all), err
}

// A daemon sleeps, and is woken by all that may wake it. It is the same process all the time, and no client is lost.
func TestSleepAndWake(t *testing.T) {
	p := start(t)
	p.says("awake, inherited: false")
	p.asleep()

	// Its metrics can be read, its supervisor hears from it, and it sleeps on.
	for range 3 {
		status, body, err := p.ask(http.MethodGet, "/metrics")
		if status != http.StatusOK || body != metricsText || err != nil {
			t.Fatalf("metrics: %d, %q, %v", status, body, err)
		}
	}
	select {
	case message := <-p.heard:
		if message != "WATCHDOG=1" {
			t.Errorf("the supervisor hears %q", message)
		}
	case <-time.After(time.Minute):
		t.Error("the supervisor hears nothing")
	}
	p.asleep()

	// Clients that come while it sleeps are answered, all of them. As long as one is there it doesn't sleep.
	first, second := p.connect(), p.connect()
	p.says("awake, inherited: true")
	p.answered(first)
	p.answered(second)
	p.says("busy")
	first.Close()
	p.says("busy")
	second.Close()
	p.slept()

	// Another daemon wakes it.
	if asleep, err := Wake(p.dir, "toy"); !asleep || err != nil {
		t.Fatalf("woken: %v, %v", asleep, err)
	}
	p.says("awake, inherited: true")
	p.asleep()
	if err := WakeAll(p.dir); err != nil {
		t.Fatal(err)
	}
	p.says("awake, inherited: true")
	p.asleep()

	// Requests that only the daemon can answer, of which a POST wakes it.
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
		p.asleep()
		if status, _, err := p.ask(method, "/config/reload"); status != http.StatusServiceUnavailable || err != nil {
			t.Fatalf("the answer is %d, %v", status, err)
		}
	}
	p.says("awake, inherited: true")
	p.asleep()

	// A reload.
	p.signal(syscall.SIGHUP)
	p.says("awake, inherited: true")
	p.asleep()

	// Its socket is removed, so that nobody can come in.
	if err := os.Remove(filepath.Join(p.dir, "door")); err != nil {
		t.Fatal(err)
	}
	p.says("awake, inherited: false")
	p.asleep()
	c := p.connect()
	p.says("awake, inherited: true")
	p.answered(c)
	c.Close()
	p.slept()

	p.signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	for _, name := range []string{"door", "metrics", "wake/toy.sock"} {
		if _, err := os.Lstat(filepath.Join(p.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if asleep, err := Wake(p.dir, "toy"); asleep || err != nil {
		t.Errorf("a daemon that is gone is woken: %v, %v", asleep, err)
	}
}

// slept waits until it sleeps, whatever it says before.
func (p *process) slept() {
	p.t.Helper()
	p.asleep()
	for len(p.lines) > 0 {
		if line := <-p.lines; line != "busy" {
			p.t.Fatalf("it says %q", line)
		}
	}
}

// signal signals the process once it is well. Before it may not have taken up its signals, and would end.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	for len(p.heard) > 0 {
		<-p.heard
	}
	<-p.heard
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// A process whose program that waits is gone stays what it is.
func TestNoProgram(t *testing.T) {
	p := start(t)
	p.says("awake, inherited: false")
	p.asleep()
	if err := os.Remove(filepath.Join(filepath.Dir(p.Path), Program)); err != nil {
		t.Fatal(err)
	}
	defer p.connect().Close()
	p.says("awake, inherited: true")
	for line := range p.lines {
		if strings.HasPrefix(line, "failed: ") {
			// The toy ends then, since it can do nothing but sleep.
			return
		}
	}
	t.Error("it has not said why it can't sleep")
}
