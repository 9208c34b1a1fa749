package csi

import (
	"testing"
	"time"
)

func TestUnusedVolumesThatHaveGoneAreForgotten(t *testing.T) {
	now := time.Now()
	u := unused{
		"gone":    {failures: 1, notBefore: now.Add(-time.Second)},
		"at work": {busy: true},
		"failed":  {failures: 1, notBefore: now.Add(time.Minute)},
	}
	if due := u.look([]string{"failed"}, now); len(due) > 0 {
		t.Errorf("due are %v, want none", due)
	}
	if u["gone"] != nil || u["at work"] == nil || u["failed"] == nil {
		t.Errorf("remembered are %v, want what is at work and what is there", u)
	}
	if pause := u.pause(now); pause != time.Minute {
		t.Errorf("the next look is in %s, want 1m", pause)
	}
}
