package csi

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"kubelot.dev/services/volume/internal/driver"
)

var allSteps = []step{
	stepNone, stepWanted, stepStaging, stepStaged, stepUnstaging, stepPublishing, stepMounted, stepPublished,
	stepUnpublishing, stepUncertain,
}

func TestNext(t *testing.T) {
	staging, plain := &driver.Capabilities{Stage: true}, &driver.Capabilities{}
	for _, c := range []struct {
		name string
		f    facts
		want kind
	}{
		{"no driver", facts{wanted: true}, wait},
		{"no driver, but the pod has it", facts{wanted: true, pod: stepPublished}, done},
		{"no driver, and the pod goes", facts{pod: stepPublished}, wait},
		{"no driver, and nothing is there", facts{}, done},
		{"of the pod's own spec", facts{wanted: true, plugin: staging}, publish},
		{"not staged by this driver", facts{wanted: true, persistent: true, plugin: plain}, publish},
		{"not attached", facts{wanted: true, persistent: true, plugin: staging, unattached: "by x"}, want},
		{
			"not attached, recorded",
			facts{wanted: true, persistent: true, plugin: staging, unattached: "by x", pod: stepWanted},
			wait,
		},
		{
			"not attached, not staged",
			facts{wanted: true, persistent: true, plugin: plain, unattached: "x", pod: stepUncertain},
			wait,
		},
		{"first of its pods", facts{wanted: true, persistent: true, plugin: staging}, stage},
		{"staging again", facts{wanted: true, persistent: true, plugin: staging, volume: stepStaging}, stage},
		{"second pod", facts{wanted: true, persistent: true, plugin: staging, volume: stepStaged, others: 1}, publish},
		{"unstaging isn't answered", facts{wanted: true, persistent: true, plugin: staging, volume: stepUnstaging}, unstage},
		{
			"staged with another label",
			facts{wanted: true, persistent: true, plugin: staging, volume: stepStaged, relabel: true},
			unstage,
		},
		{
			"perhaps staged with another label",
			facts{wanted: true, persistent: true, plugin: staging, volume: stepUncertain, pod: stepWanted, relabel: true},
			unstage,
		},
		{
			"staged with another label, and in use by no record",
			facts{wanted: true, persistent: true, plugin: staging, volume: stepStaged, relabel: true, bound: "/x"},
			wait,
		},
		{
			"others have it with another label",
			facts{
				wanted: true, persistent: true, plugin: staging, volume: stepStaged, others: 1, holders: 1, elsewhere: "x",
				unattached: "y",
			},
			wait,
		},
		{
			"a kubelet's",
			facts{wanted: true, persistent: true, plugin: staging, volume: stepUncertain, pod: stepUncertain},
			stage,
		},
		{"detached below the pod", facts{wanted: true, plugin: staging, pod: stepPublished, unattached: "by x"}, done},
		{"again", facts{wanted: true, again: true, plugin: staging, pod: stepPublished}, publish},
		{"unpublishing isn't answered", facts{wanted: true, plugin: staging, pod: stepUnpublishing}, unpublish},
		{"files without a group", facts{wanted: true, plugin: staging, pod: stepMounted}, own},
		{"pod goes", facts{persistent: true, plugin: staging, pod: stepPublished, volume: stepStaged}, unpublish},
		{
			"pod goes that never had it",
			facts{persistent: true, pod: stepWanted, volume: stepStaged},
			drop,
		},
		{
			"alone, and another has it",
			facts{wanted: true, persistent: true, plugin: staging, alone: true, others: 1, holders: 1},
			wait,
		},
		{
			"alone, and another only wants it too",
			facts{wanted: true, persistent: true, plugin: staging, alone: true, others: 1, pod: stepWanted},
			stage,
		},
		{
			"alone, and it may be there already",
			facts{
				wanted: true, persistent: true, plugin: staging, alone: true, holders: 1, pod: stepPublishing,
				volume: stepStaged,
			},
			publish,
		},
		{"in use, by no record", facts{persistent: true, plugin: staging, volume: stepStaged, bound: "/x"}, wait},
		{"last pod is gone", facts{persistent: true, plugin: staging, volume: stepStaged}, unstage},
		{"others have it", facts{persistent: true, plugin: staging, volume: stepStaged, others: 1}, done},
		{"the driver stages no more", facts{persistent: true, plugin: plain, volume: stepStaged}, forget},
	} {
		if got := next(c.f); got.kind != c.want || (got.kind == wait) != (got.why != "") {
			t.Errorf("%s: %+v; want %s", c.name, got, c.want)
		}
	}
}

// From every state, whatever some calls say, each volume comes to be as it is wished once the driver answers.
func TestEveryStateHasAWay(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		for _, persistent := range []bool{true, false} {
			for _, can := range []*driver.Capabilities{{}, {Stage: true}} {
				for _, volume := range allSteps {
					for _, pod := range allSteps {
						if !persistent && volume != stepNone {
							continue
						}
						f := facts{
							driver: "d", wanted: wanted, persistent: persistent, volume: volume, pod: pod, plugin: can, finish: true,
						}
						for _, first := range []outcome{succeeded, failed, uncertain} {
							if problem := walk(f, first); problem != "" {
								t.Errorf("%+v with %s first: %s", f, first, problem)
							}
						}
						if problem := walkWithout(unstage, f); wanted && problem != "" {
							t.Errorf("%+v and no unstaging ever succeeds: %s", f, problem)
						}
					}
				}
			}
		}
	}
}

// walk follows the decisions; the first call has that outcome, and all others succeed.
func walk(f facts, o outcome) string {
	return walkThrough(f, func(n int, _ kind) outcome {
		if n == 0 {
			return o
		}
		return succeeded
	})
}

// walkWithout follows the decisions; the driver refuses one kind of call, and all others succeed.
func walkWithout(refused kind, f facts) string {
	return walkThrough(f, func(_ int, k kind) outcome {
		if k == refused {
			return failed
		}
		return succeeded
	})
}

func walkThrough(f facts, answer func(n int, k kind) outcome) string {
	for i := range 2 * maxSteps {
		a := next(f)
		switch a.kind {
		case done:
			return judge(f)
		case wait:
			return "it waits: " + a.why
		case stage:
			if f.volume == stepUnstaging {
				return "it is staged while its unstaging isn't answered"
			}
		case publish:
			if f.persistent && f.plugin.Stage && f.volume != stepStaged {
				return "it is published and not staged"
			}
		case unstage:
			if !f.wanted && f.pod != stepNone {
				return "it is unstaged and the pod has it"
			}
		}
		f = f.then(a.kind, answer(i, a.kind))
		if i == 2*maxSteps-1 {
			return fmt.Sprintf("no end: %+v", f)
		}
	}
	return ""
}

// then is what holds after the action.
func (f facts) then(k kind, o outcome) facts {
	switch k {
	case stage, unstage:
		f.volume = after(k, f, f.volume, o)
	case forget:
		f.volume = stepNone
	case drop:
		f.pod = stepNone
	case own:
		f.pod = stepPublished
	default:
		f.pod = after(k, f, f.pod, o)
		if f.pod == stepWanted && !f.persistent {
			f.pod = stepNone
		}
	}
	return f
}

func judge(f facts) string {
	switch {
	case f.wanted && f.pod != stepPublished:
		return "the pod doesn't have it: " + string(f.pod)
	case !f.wanted && (f.pod != stepNone || f.volume != stepNone):
		return fmt.Sprintf("something is left: %s, %s", f.volume, f.pod)
	}
	return ""
}

func TestOutcomes(t *testing.T) {
	for code := range codes.Code(17) {
		want := failed
		switch code {
		case codes.OK:
			want = succeeded
		case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
			want = uncertain
		}
		if got := outcomeOf(status.Error(code, "x")); got != want {
			t.Errorf("%s is %s; want %s", code, got, want)
		}
	}
	if got := outcomeOf(errors.New("no gRPC")); got != uncertain {
		t.Errorf("an error of another kind is %s", got)
	}
}
