package run

import (
	"testing"
	"time"

	"kubelot.dev/test/conformance"
)

func TestAloneHasTheRestOfTheTime(t *testing.T) {
	o := Options{Scope: conformance.Scope{Suite: conformance.Cluster(), Quick: true}, Procs: 6, Timeout: 8 * time.Minute}
	if got := o.alone([]string{"a"}, 3*time.Minute); got.Timeout != 5*time.Minute || got.Procs != 1 ||
		got.Scope.Focus == "" {
		t.Errorf("alone: %+v, want 5m for one spec at a time", got)
	}
	if got := o.alone([]string{"a"}, 9*time.Minute); got.Timeout <= 0 {
		t.Errorf("time limit %s, which is none for ginkgo", got.Timeout)
	}
}
