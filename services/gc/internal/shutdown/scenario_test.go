package shutdown

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"kubelot.dev/bus/topic"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata: each file is a shutdown that starts at 0s. "go test -rewrite" writes the results anew;
// read the difference before you keep it.
//
//	configure [whole=D] [critical=D]   lines "PRIORITY SECONDS"; lists the groups that follow
//	belong                             lines with priorities; shows the index of the group of each
//	pod NAME [priority=N] [grace=N]    a pod appears; it is begun and over as the next commands say
//	begun NAME | over NAME | gone NAME
//	forgotten                          podsync was started again
//	unknown | known                    the bus tells of no pods, or of all
//	step at=T                          what is done then: who is asked, and when to come again
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{known: true, at: Progress{Since: epoch}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	groups []topic.ShutdownGroup
	at     Progress
	pods   []Pod
	known  bool
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	args := map[string]string{"whole": "0s", "critical": "0s", "at": "0s"}
	name := ""
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			name = a.Key
			continue
		}
		args[a.Key] = a.Vals[0]
	}
	switch d.Cmd {
	case "configure":
		return s.configure(t, d.Input, args)
	case "belong":
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			p := number(t, strings.TrimSpace(line))
			fmt.Fprintf(&out, "%d: group %d\n", p, groupOf(s.groups, int32(p)))
		}
		return out.String()
	case "pod":
		p := Pod{Ref: topic.Ref{Namespace: "default", Name: name, UID: name}}
		if v, ok := args["priority"]; ok {
			p.Priority = int32(number(t, v))
		}
		if v, ok := args["grace"]; ok {
			grace := number(t, v)
			p.Grace = &grace
		}
		s.pods = append(s.pods, p)
	case "begun", "over":
		p := s.pod(t, name)
		p.Begun, p.Over = true, d.Cmd == "over"
	case "gone":
		p := s.pod(t, name)
		*p = s.pods[len(s.pods)-1]
		s.pods = s.pods[:len(s.pods)-1]
	case "forgotten":
		for i := range s.pods {
			s.pods[i].Asked = time.Time{}
		}
	case "unknown", "known":
		s.known = d.Cmd == "known"
	case "step":
		return s.step(epoch.Add(duration(t, args["at"])), t)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func (s *scenario) configure(t *testing.T, input string, args map[string]string) string {
	t.Helper()
	k := kubeletv1beta1.KubeletConfiguration{
		ShutdownGracePeriod:             metav1.Duration{Duration: duration(t, args["whole"])},
		ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: duration(t, args["critical"])},
	}
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		k.ShutdownGracePeriodByPodPriority = append(k.ShutdownGracePeriodByPodPriority,
			kubeletv1beta1.ShutdownGracePeriodByPodPriority{
				Priority: int32(number(t, words[0])), ShutdownGracePeriodSeconds: number(t, words[1]),
			})
	}
	s.groups = Groups(&k)
	if len(s.groups) == 0 {
		return "none"
	}
	var out strings.Builder
	for i, g := range s.groups {
		fmt.Fprintf(&out, "%d: priority %d, %d s\n", i, g.Priority, g.GracePeriodSeconds)
	}
	return out.String()
}

func (s *scenario) step(now time.Time, t *testing.T) string {
	t.Helper()
	s.at.Until = epoch.Add(Total(s.groups))
	next := advance(s.groups, s.at, s.pods, s.known, now)
	var out strings.Builder
	for _, e := range next.Ends {
		s.pod(t, e.Name).Asked = now
		fmt.Fprintf(&out, "ask %s, %d s\n", e.Name, e.Grace)
	}
	s.at = next.Progress
	if s.at.Group == len(s.groups) {
		fmt.Fprintf(&out, "all groups have ended at %s", s.at.Since.Sub(epoch))
	} else {
		fmt.Fprintf(&out, "group %d since %s", s.at.Group, s.at.Since.Sub(epoch))
	}
	if !next.Again.IsZero() {
		fmt.Fprintf(&out, ", again at %s", next.Again.Sub(epoch))
	}
	return out.String() + "\n"
}

func (s *scenario) pod(t *testing.T, name string) *Pod {
	t.Helper()
	for i := range s.pods {
		if s.pods[i].Name == name {
			return &s.pods[i]
		}
	}
	t.Fatalf("no pod %q", name)
	return nil
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
