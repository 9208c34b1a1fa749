package run

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/test/bench/report"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/cri"
)

func TestCheckFindsMistakesFirst(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"no part":    func(o *Options) { o.Parts = []string{Latency, "latencies"} },
		"no subject": func(o *Options) { o.Subjects = []string{"crio"} },
		"rounds":     func(o *Options) { o.Rounds = 0 },
	} {
		o := Default()
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		spoil(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestQuickLeavesWhatWasAskedFor(t *testing.T) {
	o := Default()
	o.Pods, o.Rounds = 77, 5
	o.Quick(func(flag string) bool { return flag == "pods" })
	if o.Pods != 77 || o.Rounds == 5 || o.Churn >= Default().Churn || !o.Brief {
		t.Errorf("%+v", o)
	}
	all := Default()
	all.Quick(func(string) bool { return true })
	want := Default()
	want.Brief = true // the form itself
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

func TestTheBriefFormReachesTheAgents(t *testing.T) {
	b := &bench{Options: Default(), cluster: &cluster.Cluster{CRI: &cri.Runtime{}}}
	if b.options("n1").Brief {
		t.Error("the default is brief")
	}
	if b.Brief = true; !b.options("n1").Brief {
		t.Error("the quick form isn't brief")
	}
}

// What the default doesn't run is never measured; a part that is planned and has no name can't be chosen.
func TestThePlanHasAllParts(t *testing.T) {
	b := &bench{Options: Default()}
	var planned []string
	for _, p := range b.plan(&report.Round{}) {
		planned = append(planned, p.name)
	}
	if got := slices.Compact(slices.Clone(planned)); !slices.Equal(got, Default().Parts) {
		t.Errorf("planned %v, want the parts %v in this order", got, Default().Parts)
	}
	if n := len(planned); n != len(Default().Parts)+len(b.Bursts)+len(b.Probes)-1 {
		t.Errorf("%d parts: %v", n, planned)
	}
}

// --pods 30 is a burst of 30 that --burst names by default too.
func TestTheSameBurstIsMeasuredOnce(t *testing.T) {
	b := &bench{Options: Default()}
	usual := len(b.plan(&report.Round{}))
	b.Pods = b.Bursts[0]
	if n := len(b.plan(&report.Round{})); n != usual-1 {
		t.Errorf("%d parts, want %d", n, usual-1)
	}
}

func TestASubjectThatFailsIsSavedAsFarAsItCame(t *testing.T) {
	var saved []report.Report
	b := &bench{Options: Default(), round: 1}
	b.Log = io.Discard
	b.Save = func(r report.Report) error {
		saved = append(saved, r)
		return nil
	}
	round := report.Round{Round: 1, Subject: report.Kubelot, Figures: map[string]float64{"latency.create.p50": 1}}
	failure := errors.New("lost")
	if err := b.keep(round, failure); !errors.Is(err, failure) {
		t.Errorf("error %v, want the subject's", err)
	}
	if len(saved) != 1 || len(saved[0].Rounds) != 1 || saved[0].Rounds[0].Figures["latency.create.p50"] != 1 {
		t.Errorf("saved %+v", saved)
	}
	if err := b.keep(report.Round{Round: 1, Subject: report.Baseline}, nil); err != nil || len(saved[1].Rounds) != 1 {
		t.Errorf("a round without figures is kept: %+v, %v", saved[1], err)
	}
}

func TestNothingIsLeftOfDevices(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is none
		if err := removeCheckpoint(dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the next agent finds devices of the last one")
		}
	}
}
