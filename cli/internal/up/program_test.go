package up

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// asProgram makes the test program the one that runs the crew, asBecoming one that becomes it.
const (
	asProgram  = "UP_TEST_PROGRAM"
	asBecoming = "UP_TEST_BECOMING"
)

// becomes becomes the program with the options that the variable has. It says why if it can't.
func becomes(text string) {
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	os.Stdout.WriteString(errors.Join(err, Become(o)).Error())
}

// The program keeps the crew as its options say, passes a reload on, and stops it when it is told to. Its options
// aren't for the daemons, and what keeps the kernel from killing it is.
func TestProgram(t *testing.T) {
	bodies := map[string]string{}
	for _, name := range vital {
		bodies[name] = `trap 'echo again' HUP; trap 'exit 0' TERM; echo "up $* [$` + variable +
			`] $(cat /proc/self/oom_score_adj)"; while :; do sleep 0.01; done`
	}
	dir, _ := scripts(t, bodies)
	options, err := json.Marshal(Options{
		BinDir: dir, Args: []string{"--v=1"}, Without: []string{"lease"},
		BusSocket: filepath.Join(dir, "bus.sock"), RunDir: dir, Colours: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=1", variable+"="+string(options))
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	each := func(want string) {
		t.Helper()
		missing := slices.DeleteFunc(slices.Clone(vital), func(name string) bool { return name == "lease" })
		for len(missing) > 0 && lines.Scan() {
			name, said, _ := strings.Cut(lines.Text(), " ")
			if strings.Contains(said, want) {
				missing = slices.DeleteFunc(missing, func(m string) bool { return strings.HasSuffix(name, "m"+m) })
			}
		}
		if len(missing) > 0 {
			t.Errorf("%v haven't said %q", missing, want)
		}
	}
	each("up --v=1 [] " + scoreOfTheCrew(t))
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	each("again")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stderr); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("told to stop, it ends with %v", err)
	}
}

func TestProgramWithoutOptions(t *testing.T) {
	for _, options := range []string{"", "{", `{"args":"x"}`} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), asProgram+"=1", variable+"="+options)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "isn't what kubelot up sets") ||
			!strings.Contains(string(out), "run kubelot up") {
			t.Errorf("options %q: code %d, %v: %s", options, code, err, out)
		}
	}
}

// Become runs the program in the directory of the executable, as the same process and with the same command line.
func TestBecome(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "kubelot")
	self, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(own, self, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func() string {
		cmd := exec.CommandContext(t.Context(), own, "up", "--v=2")
		cmd.Env = append(os.Environ(), asBecoming+`={"binDir":"/bin","compact":true}`)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	path := filepath.Join(dir, program)
	if got := run(); got != "become "+path+": no such file or directory" {
		t.Errorf("without the program: %q", got)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$* $"+variable+"\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const want = `up --v=2 {"binDir":"/bin","args":null,"compact":true,"without":null,"busSocket":"","runDir":"",` +
		`"colours":false}` + "\n"
	if got := run(); got != want {
		t.Errorf("it became %q, want %q", got, want)
	}
}
