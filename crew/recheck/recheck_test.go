package recheck

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc"
	"kubelot.dev/services/podsync"
	"kubelot.dev/services/status"
)

// recordings are all that are kept as tests (docs/replay.md).
func recordings(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/recordings/*.jsonl")
	if err != nil || len(paths) < 4 {
		t.Fatalf("%d recordings, %v", len(paths), err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".jsonl")] = data
	}
	return all
}

func checked(t *testing.T, data []byte, cores Cores) Report {
	t.Helper()
	report, err := judge(bytes.NewReader(data), cores)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// This version decides as was recorded. Where a recording differs on purpose, because a decision was wrong and is
// mended, it is made again (docs/replay.md).
func TestRecordings(t *testing.T) {
	for name, data := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			report := checked(t, data, ownCores())
			same := 0
			for _, core := range report.Cores {
				same += core.Same
			}
			if len(report.Differences) > 0 || same == 0 {
				t.Errorf("%d decisions are the same:\n%s", same, report.text())
			}
		})
	}
}

// A recording may end at any message: what it then lacks is no difference.
func TestRecordingsThatEndAnywhere(t *testing.T) {
	for name, data := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			lines := bytes.SplitAfter(data, []byte("\n"))
			for n := 1; n < len(lines); n++ {
				if report := checked(t, bytes.Join(lines[:n], nil), ownCores()); len(report.Differences) > 0 {
					t.Errorf("the first %d lines:\n%s", n, report.text())
				}
			}
		})
	}
}

// changed are cores that decide otherwise in one respect.
var changed = []struct {
	name, core, recording string
	change                func(*Cores)
}{
	{"the crash back-off is longer", "plan", "crashloop", func(c *Cores) {
		c.Plan = replan(func(_ *podsync.PlanWish, o *topic.PodObservation, _ *podsync.PlanFacts) {
			o.Containers = slices.Clone(o.Containers)
			for i := range o.Containers {
				o.Containers[i].RestartCount++
			}
		})
	}},
	{"the crash back-off is shorter", "plan", "crashloop", func(c *Cores) {
		c.Plan = replan(func(_ *podsync.PlanWish, _ *topic.PodObservation, f *podsync.PlanFacts) {
			f.MaxBackoff = time.Second
		})
	}},
	{"failed containers aren't started again", "plan", "crashloop", func(c *Cores) {
		c.Plan = replan(func(w *podsync.PlanWish, _ *topic.PodObservation, _ *podsync.PlanFacts) {
			w.Pod = w.Pod.DeepCopy()
			w.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		})
	}},
	{"liveness probes are ignored", "plan", "probes", func(c *Cores) {
		c.Plan = replan(func(_ *podsync.PlanWish, _ *topic.PodObservation, f *podsync.PlanFacts) {
			for name, of := range f.Containers {
				of.Probes = nil
				f.Containers[name] = of
			}
		})
	}},
	{"pods that must stop run on", "plan", "deletion", func(c *Cores) {
		c.Plan = replan(func(w *podsync.PlanWish, _ *topic.PodObservation, _ *podsync.PlanFacts) { w.Stop = false })
	}},
	{"a pod that has ended is kept up", "plan", "completion", func(c *Cores) {
		own := c.Plan
		c.Plan = func(w podsync.PlanWish, o topic.PodObservation, f podsync.PlanFacts, now time.Time) podsync.Plan {
			p := own(w, o, f, now)
			p.Complete = false
			return p
		}
	}},
	{"a container that waits for its next run has no last state", "status", "crashloop", func(c *Cores) {
		own := c.Status
		c.Status = func(in podsync.StatusInput) corev1.PodStatus {
			s := own(in)
			for i := range s.ContainerStatuses {
				s.ContainerStatuses[i].LastTerminationState = corev1.ContainerState{}
			}
			return s
		}
	}},
	{"readiness probes are ignored", "merge", "probes", func(c *Cores) {
		own := c.Merge
		c.Merge = func(patch topic.PodStatus, u topic.Pod, _ status.Probes, base corev1.PodStatus, now time.Time,
		) corev1.PodStatus {
			return own(patch, u, nil, base, now)
		}
	}},
	{"the reason of an eviction is forgotten", "merge", "eviction", func(c *Cores) {
		own := c.Merge
		c.Merge = func(patch topic.PodStatus, u topic.Pod, probes status.Probes, base corev1.PodStatus, now time.Time,
		) corev1.PodStatus {
			s := own(patch, u, probes, base, now)
			s.Reason = ""
			return s
		}
	}},
	{"a container's end is no change", "diff", "crashloop", func(c *Cores) {
		own := c.Diff
		c.Diff = func(old, now topic.PodObservation) []string {
			var kept []string
			for _, change := range own(old, now) {
				if !strings.Contains(change, "exited") {
					kept = append(kept, change)
				}
			}
			return kept
		}
	}},
	{"two dead containers are kept", "pick", "crashloop", func(c *Cores) {
		own := c.Pick
		c.Pick = func(in gc.DeadInput) []topic.Decision {
			in.Policy.MaxPerContainer++
			return own(in)
		}
	}},
	{"a pod is left out", "sources", "deletion", func(c *Cores) {
		own := c.Wanted
		c.Wanted = func(of map[topic.Source][]*corev1.Pod) []string { return own(of)[1:] }
	}},
	{"thresholds are met later", "evict", "eviction", func(c *Cores) {
		own := c.Threshold
		c.Threshold = func(s gc.EvictionSettings, name string, available, capacity int64) (bool, error) {
			return own(s, name, available*2, capacity)
		}
	}},
	{"the pod is spared", "evict", "eviction", func(c *Cores) {
		c.Spared = func(topic.Pod) bool { return true }
	}},
}

// replan is this version's plan of other inputs.
func replan(change func(*podsync.PlanWish, *topic.PodObservation, *podsync.PlanFacts)) func(podsync.PlanWish,
	topic.PodObservation, podsync.PlanFacts, time.Time) podsync.Plan {
	return func(w podsync.PlanWish, o topic.PodObservation, f podsync.PlanFacts, now time.Time) podsync.Plan {
		change(&w, &o, &f)
		return podsync.MakePlan(w, o, f, now)
	}
}

// The check finds a core that was changed.
func TestChangedCoresAreFound(t *testing.T) {
	all := recordings(t)
	for _, c := range changed {
		t.Run(c.name, func(t *testing.T) {
			cores := ownCores()
			c.change(&cores)
			report := checked(t, all[c.recording], cores)
			found := 0
			for _, d := range report.Differences {
				// For what a container waits is the plan's to say, and a part of the status.
				if d.Core != c.core && (c.core != "plan" || d.Core != "status") || d.Object == "" || d.Recorded == "" ||
					d.Now == "" || d.At.IsZero() {
					t.Errorf("the difference is %+v", d)
				}
				if d.Core == c.core {
					found++
				}
			}
			if found == 0 {
				t.Errorf("it isn't found:\n%s", report.text())
			}
		})
	}
}

func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "good.jsonl")
	good := begun(t).says(2, "podsync.step.u", ended("start container", "app", 2, 0.3)).out.String()
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"text":         {[]string{file}, 0, "This version decides as was recorded.", ""},
		"json":         {[]string{"--output=json", file}, 0, `"differences": []`, ""},
		"nothing":      {nil, 1, "", "want one recording"},
		"output":       {[]string{"-o", "xml", file}, 1, "", "-o text or json"},
		"flag":         {[]string{"--speed", file}, 1, "", "unknown flag"},
		"no file":      {[]string{bad + "x"}, 1, "", "no such file"},
		"no recording": {[]string{bad}, 1, "", bad + ": the file is no recording"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Run(c.args, &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, &stdout, &stderr)
			}
		})
	}
}

// A recording that differs ends the command with a code of its own.
func TestCommandFindsDifferences(t *testing.T) {
	data := recordings(t)["probes"]
	// Somebody says that the pod was ready all the time.
	altered := bytes.ReplaceAll(data, []byte(`"status":"False","type":"Ready"`), []byte(`"status":"True","type":"Ready"`))
	if bytes.Equal(altered, data) {
		t.Fatal("the recording has no condition that is False")
	}
	path := filepath.Join(t.TempDir(), "altered.jsonl")
	if err := os.WriteFile(path, altered, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := Run([]string{"-o=json", path}, &stdout, &stderr); code != exitDiffers {
		t.Fatalf("exit code %d\nstdout %s\nstderr %s", code, &stdout, &stderr)
	}
	var report Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || len(report.Differences) == 0 ||
		!strings.Contains(report.Differences[0].Now, "conditions[Ready].status=False") {
		t.Errorf("%v, %+v", err, report.Differences)
	}
}
