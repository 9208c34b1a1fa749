package live

import (
	"slices"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

func unix(second int64) time.Time { return time.Unix(second, 0) }

func TestRates(t *testing.T) {
	var many []int64
	for second := int64(1000); second < 1200; second++ {
		many = append(many, second, second, second)
	}
	for _, c := range []struct {
		name string
		at   []int64
		now  int64
		rate float64
		sum  int
	}{
		{"none", nil, 1000, 0, 0},
		{"the second that isn't over doesn't count", []int64{1000, 1000}, 1000, 0, 0},
		{"the one before does", []int64{1000, 1000}, 1001, 0.2, 2},
		{"what is older than the window counts in the series only", []int64{1000}, 1011, 0, 1},
		{"what is older than a minute is forgotten", []int64{1000}, 1061, 0, 0},
		{"a late message counts where it belongs", []int64{1005, 1003}, 1006, 0.2, 2},
		{"one that is too late doesn't", []int64{1100, 1040}, 1101, 0.1, 1},
		{"many", many, 1200, 3, 180},
	} {
		series, rate := SecondsOf(c.at, c.now)
		sum := 0
		for _, n := range series {
			sum += n
		}
		if rate != c.rate || sum != c.sum || len(series) != seriesLength {
			t.Errorf("%s: rate %v, %d in the series of %d; want %v and %d", c.name, rate, sum, len(series), c.rate, c.sum)
		}
	}
}

func TestProcesses(t *testing.T) {
	at := time.Unix(1000, 0)
	reading := func(after time.Duration, pid int, cpu time.Duration) Process {
		return Process{At: at.Add(after), PID: pid, CPU: cpu, MemoryBytes: 5 << 20, Restarts: -1}
	}
	m := New()
	steps := []struct {
		name string
		in   map[string]Process
		cpu  float64
	}{
		{"one reading gives no rate", map[string]Process{"gc": reading(0, 7, time.Second)}, -1},
		{"two do", map[string]Process{"gc": reading(2*time.Second, 7, 2*time.Second)}, 0.5},
		{"another process begins again", map[string]Process{"gc": reading(4*time.Second, 8, time.Second)}, -1},
		{"and has a rate of its own", map[string]Process{"gc": reading(6*time.Second, 8, time.Second)}, 0},
		{"a process that is gone has none", map[string]Process{}, -1},
	}
	for _, s := range steps {
		m.Take(Input{Processes: s.in})
		if got := m.daemonAt("gc", at).CPU; got != s.cpu {
			t.Errorf("%s: %v, want %v", s.name, got, s.cpu)
		}
	}
	counted := reading(8*time.Second, 9, 0)
	counted.Restarts, counted.Shares = 4, []string{"gc", "stats"}
	m.Take(Input{Processes: map[string]Process{"gc": counted}})
	if d := m.daemonAt("gc", at); d.Restarts != 4 || d.MemoryBytes != 5<<20 || len(d.Shares) != 2 || d.PID != 9 {
		t.Errorf("%+v", d)
	}
}

func TestSignals(t *testing.T) {
	r := Machine{
		MemoryBytes: 1000, AvailableBytes: 99, PIDs: 90, PIDLimit: 100,
		Disks: []Disk{{
			Role: "nodefs", Path: "/var", CapacityBytes: 200, AvailableBytes: 30, Inodes: 50, FreeInodes: 40,
		}},
		Thresholds: []Threshold{
			{"memory.available", "100", false},
			{"nodefs.available", "10%", false},
			{"nodefs.available", "20%", true},
			{"nodefs.inodesFree", "5%", false},
			{"imagefs.available", "15%", false},
		},
	}
	want := []Signal{
		{Name: "memory.available", Available: 99, Capacity: 1000, Threshold: "100", Limit: 100, Under: true, Bytes: true},
		{
			Name: "nodefs.available", Path: "/var", Available: 30, Capacity: 200, Threshold: "20%", Limit: 40, Under: true,
			Bytes: true,
		},
		{Name: "nodefs.inodesFree", Path: "/var", Available: 40, Capacity: 50, Threshold: "5%", Limit: 2},
		{Name: "pid.available", Available: 10, Capacity: 100},
	}
	if got := signals(r); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if got := want[1].Full(); got != 0.85 {
		t.Errorf("%v of it is in use", got)
	}
}

// A stage takes as long as at least one of its spans is under way.
func TestTook(t *testing.T) {
	at := func(second int64) time.Time {
		if second == 0 {
			return time.Time{}
		}
		return unix(second)
	}
	span := func(from, to int64) Span { return Span{Stage: StagePull, From: at(from), To: at(to)} }
	for _, c := range []struct {
		name  string
		spans []Span
		want  time.Duration
		none  bool
	}{
		{name: "none", none: true},
		{name: "one", spans: []Span{span(10, 13)}, want: 3 * time.Second},
		{name: "side by side", spans: []Span{span(10, 13), span(11, 12), span(12, 15)}, want: 5 * time.Second},
		{name: "one after the other", spans: []Span{span(10, 13), span(20, 21)}, want: 4 * time.Second},
		{name: "under way", spans: []Span{span(10, 0)}, want: 90 * time.Second},
		{name: "of another stage", spans: []Span{{Stage: StageProbe, From: at(1), To: at(2)}}, none: true},
	} {
		got, ok := Start{Spans: c.spans}.Took(StagePull, unix(100))
		if got != c.want || ok == c.none {
			t.Errorf("%s: %s %v, want %s", c.name, got, ok, c.want)
		}
	}
}

// Restarts are counted from the first process that was seen, whether in a message or in what is retained.
func TestDaemonRestarts(t *testing.T) {
	health := func(started int64) entry {
		e := entry{topic: topic.Health, key: "gc", value: topic.DaemonHealth{Started: unix(started)}}
		e.Time = unix(started + 1)
		return e
	}
	for _, c := range []struct {
		name     string
		retained int64
		started  []int64
		want     int
	}{
		{"none", 0, []int64{10, 10}, 0},
		{"two", 0, []int64{10, 20, 20, 30}, 2},
		{"the history of what is retained", 30, []int64{10, 20, 30}, 2},
		{"one after what is retained", 30, []int64{40}, 1},
		{"a message that is late", 0, []int64{20, 10, 20}, 0},
	} {
		d := daemonLog{}
		if c.retained > 0 {
			d.retained = unix(c.retained)
		}
		for _, started := range c.started {
			d.note(health(started))
		}
		if d.restarts != c.want {
			t.Errorf("%s: %d, want %d", c.name, d.restarts, c.want)
		}
	}
}

// A daemon that slept and was woken has not been restarted.
func TestAnAwakeningIsNoRestart(t *testing.T) {
	begin := time.Unix(1000, 0)
	d := daemonLog{}
	say := func(started time.Time, asleep bool) {
		e := entry{value: topic.DaemonHealth{State: topic.Healthy, PID: 1, Started: started, Asleep: asleep}}
		d.note(e)
	}
	say(begin, false)
	say(begin, true)
	say(begin.Add(time.Hour), false)
	if d.restarts != 0 {
		t.Errorf("%d restarts after an awakening", d.restarts)
	}
	say(begin.Add(2*time.Hour), false)
	if d.restarts != 1 {
		t.Errorf("%d restarts after one", d.restarts)
	}
	// That it sleeps may be known from what is retained alone.
	d = daemonLog{}
	d.read(topic.DaemonHealth{State: topic.Healthy, PID: 1, Started: begin, Asleep: true})
	say(begin.Add(time.Hour), false)
	if d.restarts != 0 {
		t.Errorf("%d restarts after an awakening from a sleep that is retained", d.restarts)
	}
}

// The bus reports no health of its own: whether it answers says how it stands.
func TestTheBusStandsAsItsLinkDoes(t *testing.T) {
	for _, c := range []struct {
		name    string
		link    Link
		state   topic.HealthState
		problem string
	}{
		{"answers", Link{Up: true, Since: unix(1)}, topic.Healthy, ""},
		{"away", Link{Since: unix(1), Problem: "it doesn't answer"}, topic.Unhealthy, "it doesn't answer"},
		{"not known yet", Link{}, "", ""},
	} {
		m := New()
		m.Take(Input{RetainedAt: unix(1), Link: &c.link})
		for _, d := range m.Picture(unix(2)).Daemons {
			if d.Name == "bus" && (d.State != c.state || d.Problem != c.problem) {
				t.Errorf("%s: %s, %q", c.name, d.State, d.Problem)
			}
		}
	}
}
