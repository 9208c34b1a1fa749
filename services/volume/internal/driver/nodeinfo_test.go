package driver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/bus/topic"
)

// said is what was published, as the topic.
type said struct {
	mu   sync.Mutex
	info map[string]topic.CSINodeInfo
}

func (s *said) Set(key string, info topic.CSINodeInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info[key] = info
	return nil
}

func (s *said) Delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.info, key)
	return nil
}

// questions are how often each driver was asked.
type questions struct {
	mu    sync.Mutex
	asked map[string]int
	// fails are drivers that don't answer.
	fails map[string]bool
}

func (q *questions) ask(_ context.Context, _ *Client, name string) (topic.CSINodeInfo, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked[name]++
	if q.fails[name] {
		return topic.CSINodeInfo{}, errors.New("no")
	}
	return topic.CSINodeInfo{Name: name, NodeID: "i", MaxVolumes: int64(q.asked[name])}, nil
}

func (q *questions) take(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.asked[name]
	q.asked[name] = 0
	return n
}

// deaf hears of the health and forgets it.
type deaf struct{}

func (deaf) Set(topic.HealthState, string) {}

// reporting reports what the drivers a and b say, until the test ends.
func reporting(t *testing.T, body func(d *Drivers, q *questions)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, q := New(), &questions{asked: map[string]int{}, fails: map[string]bool{}}
		r := newReporter(d, ReportPorts{
			Out: &said{info: map[string]topic.CSINodeInfo{}}, Published: map[string]topic.CSINodeInfo{},
			Health: deaf{}, Log: slog.New(slog.DiscardHandler),
		})
		r.question = q.ask
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })
		d.Registered(map[string]topic.Plugin{
			"a": {Type: topic.CSIPlugin, Name: "a", PluginEndpoint: topic.PluginEndpoint{Endpoint: "/nowhere/a"}},
			"b": {Type: topic.CSIPlugin, Name: "b", PluginEndpoint: topic.PluginEndpoint{Endpoint: "/nowhere/b"}},
		})
		synctest.Wait()
		body(d, q)
		cancel()
		running.Wait()
		d.Close()
		synctest.Wait()
	})
}

func every(seconds int64) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &seconds}}
}

// A driver is asked again as often as its CSIDriver object says at the moment, also where that comes or changes after
// the driver.
func TestPeriod(t *testing.T) {
	reporting(t, func(d *Drivers, q *questions) {
		expect := func(what string, passes time.Duration, want int) {
			t.Helper()
			time.Sleep(passes)
			synctest.Wait()
			if got := q.take("a"); got != want {
				t.Errorf("%s: asked %d times, want %d", what, got, want)
			}
		}
		expect("at the start", time.Second, 1)
		expect("before the objects are known", time.Hour, 0)
		d.Synced()
		expect("without an object", time.Hour, 0)
		d.SetObject("a", every(60))
		expect("the object has come", time.Second, 1)
		expect("each minute", 5*time.Minute, 5)
		d.SetObject("a", every(20))
		expect("more often", 5*time.Minute, 15)
		d.SetObject("a", every(600))
		expect("less often", 5*time.Minute, 0)
		d.SetObject("a", nil)
		expect("the object has gone", time.Hour, 0)
		if got := q.take("b"); got != 1 {
			t.Errorf("another driver was asked %d times", got)
		}
	})
}

// Failures to attach have a driver asked again, but not too often, and no other one.
func TestRefresh(t *testing.T) {
	reporting(t, func(d *Drivers, q *questions) {
		refresh := func(name string, may bool) {
			t.Helper()
			for range 30 {
				if got := d.Refresh(name); got != may {
					t.Errorf("%s may be asked again: %v", name, got)
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		q.take("a")
		refresh("a", false) // its object isn't known yet
		d.Synced()
		refresh("a", false) // it has none
		d.SetObject("a", &storagev1.CSIDriver{})
		refresh("a", false) // it has no period
		if got := q.take("a"); got != 0 {
			t.Errorf("asked %d times without a period", got)
		}
		d.SetObject("a", every(24*60*60))
		refresh("a", true)
		if got := q.take("a"); got < 2 || got > 4 {
			t.Errorf("asked %d times in 30 s", got)
		}
		d.Refresh("unknown")
		time.Sleep(time.Minute)
		q.take("a")
		time.Sleep(time.Hour)
		if got := q.take("a") + q.take("b") - 1; got != 0 {
			t.Errorf("asked %d times more", got)
		}
	})
}

// A driver that doesn't answer holds up no other.
func TestDeafDriver(t *testing.T) {
	reporting(t, func(d *Drivers, q *questions) {
		q.mu.Lock()
		q.fails["b"] = true
		q.mu.Unlock()
		d.Synced()
		d.SetObject("a", every(60))
		d.SetObject("b", every(60))
		time.Sleep(10*time.Minute + time.Second)
		if got := q.take("a"); got < 10 {
			t.Errorf("asked %d times in 10 minutes", got)
		}
	})
}

// node answers NodeGetInfo alone.
type node struct {
	csiapi.NodeClient
	answer *csiapi.NodeGetInfoResponse
}

func (n node) NodeGetInfo(context.Context, *csiapi.NodeGetInfoRequest, ...grpc.CallOption,
) (*csiapi.NodeGetInfoResponse, error) {
	return n.answer, nil
}

// What the API server would refuse isn't published.
func TestNonsense(t *testing.T) {
	topology := func(key, value string) *csiapi.Topology {
		return &csiapi.Topology{Segments: map[string]string{key: value}}
	}
	for want, answer := range map[string]*csiapi.NodeGetInfoResponse{
		"":                     {NodeId: "i", AccessibleTopology: topology("a/b", "c"), MaxVolumesPerNode: -1},
		"the node ID is empty": {},
		"the node ID has 300":  {NodeId: strings.Repeat("x", 300)},
		`topology key "a b"`:   {NodeId: "i", AccessibleTopology: topology("a b", "c")},
		`"c d", the value of`:  {NodeId: "i", AccessibleTopology: topology("a", "c d")},
		"the limit is 4096":    {NodeId: "i", AccessibleTopology: topology("a", strings.Repeat("x", 5000))},
	} {
		info, err := nodeInfo(t.Context(), &Client{Node: node{answer: answer}}, "d")
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n")) || info.MaxVolumes != 0 {
			t.Errorf("%+v, %v; want %q", info, err, want)
		}
	}
}
