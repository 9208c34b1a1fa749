package health

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	healthy   = corev1.ResourceHealthStatusHealthy
	unhealthy = corev1.ResourceHealthStatusUnhealthy
	unknown   = corev1.ResourceHealthStatusUnknown
)

func is(t *testing.T, b Book, device string, want corev1.ResourceHealthStatus, message string) {
	t.Helper()
	if got, text := b.Of("d", "p", device); got != want || text != message {
		t.Errorf("device %s is %s %q, want %s %q", device, got, text, want, message)
	}
}

func TestReports(t *testing.T) {
	b := Book{}
	one := Report{Key{"p", "1"}, healthy, "", 0}
	two := Report{Key{"p", "2"}, unhealthy, "too hot", 100}
	is(t, b, "1", unknown, "")
	for i, step := range []struct {
		after   time.Duration
		list    []Report
		changed bool
	}{
		{0, []Report{one, two}, true},
		{0, []Report{one, two}, false},
		{20 * time.Second, []Report{two}, false},
		{25 * time.Second, []Report{{two.Key, unhealthy, "burns", 100}}, true},
		{26 * time.Second, []Report{{two.Key, unhealthy, "burns", 10}}, true},
		{26 * time.Second, nil, false},
	} {
		if got := b.Update("d", step.list, begin.Add(step.after)); got != step.changed {
			t.Errorf("step %d: changed %v, want %v", i, got, step.changed)
		}
	}
	is(t, b, "1", healthy, "")
	is(t, b, "2", unhealthy, "burns")
	if at := b.Next().Sub(begin); at <= 30*time.Second || at > 31*time.Second {
		t.Errorf("the first ends at %s", at)
	}
	if drivers := b.Expire(begin.Add(30 * time.Second)); len(drivers) != 0 {
		t.Errorf("at its limit it is forgotten: %v", drivers)
	}
	if drivers := b.Expire(b.Next()); len(drivers) != 1 || drivers[0] != "d" {
		t.Errorf("after its limit %v", drivers)
	}
	is(t, b, "1", unknown, "")
	is(t, b, "2", unhealthy, "burns")
	b.Expire(begin.Add(time.Minute))
	is(t, b, "2", unknown, "")
	if len(b) != 0 || !b.Next().IsZero() {
		t.Errorf("left are %v", b)
	}
}

func TestHostileReports(t *testing.T) {
	b := Book{}
	var list []Report
	for i := range 3 * most {
		list = append(list, Report{Key{"p", strconv.Itoa(i)}, healthy, "", math.MaxInt64})
	}
	b.Update("d", list, begin)
	if len(b["d"]) != most {
		t.Errorf("%d devices are kept", len(b["d"]))
	}
	if next := b.Next(); next.Before(begin) {
		t.Errorf("a limit overflows: %s", next)
	}
	b.Update("d", []Report{{Key{"p", "0"}, healthy, "a\nb\x1b" + strings.Repeat("é", 2000), math.MinInt64}}, begin)
	_, text := b.Of("d", "p", "0")
	if len(text) > corev1.ResourceHealthMessageMaxLength || !utf8.ValidString(text) ||
		!strings.HasPrefix(text, "a b é") || !strings.HasSuffix(text, "é...") {
		t.Errorf("%d bytes: %.20q", len(text), text)
	}
	if got := b["d"][Key{"p", "0"}].Limit; got != DefaultLimit {
		t.Errorf("a limit below zero is %s", got)
	}
}
