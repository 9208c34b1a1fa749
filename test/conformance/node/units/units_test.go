package units

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		line string
		want command
		err  string // part of it
	}{
		{
			line: "/usr/bin/systemd-run -p Delegate=true -p StandardError=append:/x/kubelet.log " +
				"--unit=kubelet-20261124T022752.service --slice=runtime.slice --remain-after-exit " +
				"/bin/kubelet -p --v 4 100%% $$HOME",
			want: command{
				verb: run, unit: "kubelet-20261124T022752", args: []string{"/bin/kubelet", "-p", "--v", "4", "100%", "$HOME"},
			},
		},
		{line: "systemd-run --version", want: command{verb: version}},
		{line: "systemd-run --unit=kubelet-1", err: "needs --unit=NAME and a program"},
		{line: "systemd-run /bin/kubelet", err: "needs --unit=NAME and a program"},
		{line: "systemctl list-units *kubelet*", want: command{verb: list, unit: "*kubelet*"}},
		{
			line: "systemctl list-units *kubelet* --state=running",
			want: command{verb: list, unit: "*kubelet*", running: true},
		},
		{line: "systemctl kill kubelet-1", want: command{verb: kill, unit: "kubelet-1"}},
		{line: "systemctl restart kubelet-1.service", want: command{verb: restart, unit: "kubelet-1"}},
		{line: "systemctl mask locksmithd", err: "mask isn't known"},
		{line: "systemctl kill", err: "one unit"},
		{line: "systemctl kill -s KILL kubelet-1", err: "-s isn't known"},
		{line: "journalctl", err: "neither"},
	} {
		got, err := parse(strings.Fields(c.line))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.line, err, c.err)
		}
		if err == nil && (got.verb != c.want.verb || got.unit != c.want.unit || got.running != c.want.running ||
			!slices.Equal(got.args, c.want.args)) {
			t.Errorf("%s: %+v, want %+v", c.line, got, c.want)
		}
	}
	if _, err := parse(nil); err == nil {
		t.Error("no words are a command")
	}
}

// bench launches processes that do nothing, and remembers what was done.
type bench struct {
	done    []string
	process *fake
	failing error
}

type fake struct {
	bench   *bench
	running bool
}

func (b *bench) launch(args []string) (Process, error) {
	b.done = append(b.done, "launch "+strings.Join(args, " "))
	if b.failing != nil {
		return nil, b.failing
	}
	b.process = &fake{bench: b, running: true}
	return b.process, nil
}

func (f *fake) Running() bool { return f.running }

func (f *fake) Stop() error {
	f.bench.done = append(f.bench.done, "stop")
	f.running = false
	return nil
}

func TestManager(t *testing.T) {
	b := &bench{}
	m := New(b.launch)
	var log []string
	do := func(line string) {
		t.Helper()
		b.done = nil
		output, err := m.do(strings.Fields(line))
		if err != nil {
			output = "error: " + err.Error()
		}
		first, _, _ := strings.Cut(output, "\n")
		log = append(log, line+" => "+strings.Join(b.done, ", ")+" => "+first)
	}
	do("systemctl list-units *kubelet*")
	do("systemctl restart kubelet-1")
	do("systemd-run --unit=kubelet-1.service /bin/kubelet --v 4")
	do("systemd-run --unit=kubelet-2.service /bin/kubelet")
	do("systemctl list-units *kubelet* --state=running")
	do("systemctl reset-failed kubelet-1")
	do("systemctl start kubelet-1")
	do("systemctl restart kubelet-1")
	do("systemctl kill kubelet-1")
	do("systemctl list-units *kubelet* --state=running")
	do("systemctl list-units *kubelet*")
	do("systemctl stop kubelet-1")
	do("systemctl restart kubelet-1")
	b.process.running = false // it crashed
	do("systemctl list-units *kubelet* --state=running")
	do("systemctl start kubelet-1")
	do("systemctl kill kubelet-2")
	b.failing = errors.New("no such program")
	do("systemctl restart kubelet-1")
	do("systemctl list-units other")
	want := []string{
		"systemctl list-units *kubelet* =>  => 0 loaded units listed.",
		"systemctl restart kubelet-1 =>  => error: unit kubelet-1.service not found",
		"systemd-run --unit=kubelet-1.service /bin/kubelet --v 4 => launch /bin/kubelet --v 4 => ",
		"systemd-run --unit=kubelet-2.service /bin/kubelet =>  => error: unit kubelet-1.service runs already",
		"systemctl list-units *kubelet* --state=running =>  => kubelet-1.service loaded active running kubelet",
		"systemctl reset-failed kubelet-1 =>  => ",
		"systemctl start kubelet-1 =>  => ",
		"systemctl restart kubelet-1 => stop, launch /bin/kubelet --v 4 => ",
		"systemctl kill kubelet-1 => stop => ",
		"systemctl list-units *kubelet* --state=running =>  => 0 loaded units listed.",
		"systemctl list-units *kubelet* =>  => kubelet-1.service loaded inactive dead kubelet",
		"systemctl stop kubelet-1 =>  => ",
		"systemctl restart kubelet-1 => launch /bin/kubelet --v 4 => ",
		"systemctl list-units *kubelet* --state=running =>  => 0 loaded units listed.",
		"systemctl start kubelet-1 => launch /bin/kubelet --v 4 => ",
		"systemctl kill kubelet-2 =>  => error: unit kubelet-2.service not found",
		"systemctl restart kubelet-1 => stop, launch /bin/kubelet --v 4 => error: no such program",
		"systemctl list-units other =>  => 0 loaded units listed.",
	}
	for i := range max(len(log), len(want)) {
		if got, expected := at(log, i), at(want, i); got != expected {
			t.Errorf("step %d:\n got %s\nwant %s", i+1, got, expected)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

func TestAskOverTheSocket(t *testing.T) {
	b := &bench{}
	socket := filepath.Join(t.TempDir(), "s")
	stop, err := New(b.launch).Serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(socket, []string{"systemd-run", "--unit=kubelet-1", "kubelet"}); err != nil {
		t.Fatal(err)
	}
	output, err := ask(socket, []string{"systemctl", "list-units", "*kubelet*", "--state=running"})
	if err != nil || !strings.HasPrefix(output, "kubelet-1.service loaded active running") {
		t.Errorf("list-units: %q, error %v", output, err)
	}
	if _, err := ask(socket, []string{"systemctl", "restart", "other"}); err == nil ||
		!strings.Contains(err.Error(), "not found") {
		t.Errorf("restart of an unknown unit: error %v", err)
	}
	stop()
	if _, err := ask(socket, []string{"systemctl", "kill", "kubelet-1"}); err == nil {
		t.Error("a manager that was stopped answers")
	}
	if _, err := ask("", nil); err == nil || !strings.Contains(err.Error(), socketVariable) {
		t.Errorf("without a socket: error %v", err)
	}
}

func TestShimIsByName(t *testing.T) {
	if _, is := Shim([]string{"/x/conformance", "systemctl"}); is {
		t.Error("conformance is taken for a shim")
	}
	t.Setenv(socketVariable, filepath.Join(t.TempDir(), "none"))
	if code, is := Shim([]string{"/x/systemctl", "kill", "kubelet-1"}); !is || code == 0 {
		t.Errorf("systemctl without a manager: shim %v, exit code %d", is, code)
	}
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shims")
	for range 2 { // the second finds those of the first
		env, err := Install(dir, "/s")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(env[0], "PATH="+dir+":") || env[1] != socketVariable+"=/s" {
			t.Errorf("environment %q", env)
		}
	}
	for _, name := range shims {
		if _, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
