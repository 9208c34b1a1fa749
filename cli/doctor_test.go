package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

func TestDiagnosis(t *testing.T) {
	good := health.Good(health.Machine, "user", "root")
	bad := func(kind health.Kind) health.Finding { return health.Bad(kind, "x", "p", "c", "a") }
	for name, c := range map[string]struct {
		findings []health.Finding
		code     int
		text     string
	}{
		"all is well":   {[]health.Finding{good}, 0, ""},
		"machine":       {[]health.Finding{bad(health.Bus), bad(health.Machine)}, 2, "2 checks failed: machine (1), bus (1)"},
		"runtime":       {[]health.Finding{good, bad(health.Daemon), bad(health.Runtime)}, 3, "runtime (1), daemon (1)"},
		"bus":           {[]health.Finding{good, bad(health.Bus)}, 4, "1 check failed: bus (1)"},
		"daemon":        {[]health.Finding{bad(health.Degraded), bad(health.Daemon)}, 5, "daemon (1), degraded (1)"},
		"only degraded": {[]health.Finding{bad(health.Degraded), good}, 6, "degraded (1)"},
	} {
		err := diagnosis(c.findings)
		if exitCode(err) != c.code || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: exit code %d, %v", name, exitCode(err), err)
		}
	}
}

// The help, the table in exit.go and the codes are the same.
func TestDoctorsExitCodesAreDocumented(t *testing.T) {
	table, err := os.ReadFile("exit.go")
	if err != nil {
		t.Fatal(err)
	}
	help := doctorCommand(nil).Long
	for kind, code := range doctorCodes {
		digit := string(rune('0' + code))
		if !strings.Contains(help, "\n  "+digit+"  "+string(kind)+": ") {
			t.Errorf("the help doesn't say that %s is %d", kind, code)
		}
		if line := "//\t" + digit + " "; !strings.Contains(string(table), line) ||
			!strings.Contains(string(table), "| "+string(kind)+": ") {
			t.Errorf("the table doesn't say that %s is %d", kind, code)
		}
	}
	if len(doctorCodes) != 5 {
		t.Errorf("%d codes", len(doctorCodes))
	}
}

// On a machine without a runtime and without a crew each finding has its cause, and the exit code is the lowest.
func TestDoctorWithoutCrew(t *testing.T) {
	args := []string{
		"kubelot", "doctor", "--run-dir=" + t.TempDir(), "--hostname-override=n",
		"--container-runtime-endpoint=unix://" + filepath.Join(t.TempDir(), "no.sock"),
	}
	code, stdout, stderr := call(t, append(args, "-o=json")...)
	var got doctorReport
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	kinds := map[health.Kind]string{}
	for _, f := range got.Findings {
		if f.OK != (f.Problem == "") || !f.OK && (f.Cause == "" || f.Advice == "") {
			t.Errorf("%+v", f)
		}
		if !f.OK {
			kinds[f.Kind] = f.Cause
		}
	}
	if kinds[health.Runtime] != "the container runtime isn't there" || kinds[health.Bus] != "the crew doesn't run" {
		t.Errorf("causes %q", kinds)
	}
	want := exitRuntime
	if kinds[health.Machine] != "" { // not root, for example
		want = exitMachine
	}
	if got.OK || got.Code != code || code != want {
		t.Errorf("exit code %d, and %d in the answer, want %d", code, got.Code, want)
	}
	if code, stdout, stderr = call(t, args...); code != want || !strings.Contains(stdout, "     cause: the crew") ||
		!strings.Contains(stderr, "failed: ") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

func TestDoctorsMistakes(t *testing.T) {
	for stderr, arg := range map[string]string{
		"want text or json": "-o=xml", "unknown flag": "--odd", "maxPods (set in the command line)": "--max-pods=-1",
		"/does/not/exist": "--config=/does/not/exist",
	} {
		code, _, said := call(t, "kubelot", "doctor", arg)
		if code != exitFailed || !strings.Contains(said, stderr) {
			t.Errorf("%s: exit code %d, %s", arg, code, said)
		}
	}
}

// Without flags the configuration is that of the node.
func TestDoctorsConfiguration(t *testing.T) {
	dir := t.TempDir()
	text := "KUBELOT_ARGS=\"--max-pods=6 --hostname-override=n\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubelet.env"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[int32][]string{6: nil, 7: {"--max-pods=7", "--hostname-override=n"}} {
		var o doctorOptions
		set := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
		o.config.Register(set)
		if err := set.Parse(append(args, "--run-dir="+dir)); err != nil {
			t.Fatal(err)
		}
		resolved, err := o.resolve(procDir)
		if err != nil || resolved.Kubelet.MaxPods != want || resolved.RunDir != dir {
			t.Errorf("%q: %+v, %v, want %d pods", args, resolved, err, want)
		}
	}
}

func TestUnready(t *testing.T) {
	for condition, known := range map[string]bool{
		"RuntimeReady": true, "NetworkReady": true, "ContainerdHasNoDeprecationWarnings": false,
	} {
		if cause, advice := unready(condition); (cause != "") != known || (advice != "") != known {
			t.Errorf("%s: %q, %q", condition, cause, advice)
		}
	}
}

// What bundles have of the daemons is what doctor says, without colours.
func TestReport(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	healths := map[string]topic.DaemonHealth{}
	for i, name := range []string{
		"lease", "pleg", "api", "gc", "podsync", "probe", "resource", "stats", "status", "volume",
	} {
		healths[name] = topic.DaemonHealth{
			State: topic.Healthy, Since: now.Add(-time.Hour), Beat: now, Version: "v1", PID: 6 + i,
		}
	}
	healths["lease"] = topic.DaemonHealth{State: topic.Degraded, Message: "Unauthorized", Beat: now}
	got := report(health.Crew(healths, nil, now)[2:4])
	want := `BAD  lease: degraded: Unauthorized
     cause: the API server doesn't accept the node's credentials: they have expired, or are of another cluster
     -> openssl x509 -noout -subject -dates -in /var/lib/kubelet/pki/kubelet-client-current.pem
ok   pleg: healthy for 1h0m0s, v1, pid 7
`
	if got != want {
		t.Errorf("report:\n%s\nwant:\n%s", got, want)
	}
}
