package stats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/ttlcache"
)

// Figures from before the moment that the caller names show it though times have whole seconds, and the number of
// processes, which has no time, is left out.
func TestFiguresFromBefore(t *testing.T) {
	moment := time.Date(2026, 1, 1, 12, 0, 0, int(900*time.Millisecond), time.UTC)
	for name, c := range map[string]struct {
		read       time.Duration // after the moment
		want       time.Duration // how many seconds after the moment's own
		usable, at bool
	}{
		"right before":   {-time.Millisecond, -time.Second, false, true},
		"in its second":  {-800 * time.Millisecond, -time.Second, false, true},
		"long before":    {-time.Minute, -time.Minute, false, true},
		"at the moment":  {0, 0, true, true},
		"right after it": {99 * time.Millisecond, 0, true, true},
		"any age":        {-time.Millisecond, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := moment.Add(c.read)
			u := newUsage()
			u.pods["uid"] = podUsage{reading: reading{Sample: cgroup.Sample{At: at, Memory: &cgroup.Memory{}}}}
			f := &figures{
				view: view{pods: []podView{{
					ref: topic.Ref{UID: "uid"}, containers: []containerView{{id: "app", name: "app", running: true}},
					volumes: []volumeView{{name: "data"}},
				}}},
				usage: u, rootFS: &disk.Filesystem{}, layers: map[string]layer{"app": {at: at}},
				files:   map[string]podFiles{"uid": {at: at}},
				volumes: map[string]map[string]volumeUsage{"uid": {"data": {at: at}}},
			}
			if c.at {
				f.notBefore = moment
			}
			p := build(f, topic.SummaryRequest{}).Pods[0]
			for what, told := range map[string]time.Time{
				"memory": p.Memory.Time.Time, "layer": p.Containers[0].Rootfs.Time.Time, "logs": p.Containers[0].Logs.Time.Time,
				"volume": p.VolumeStats[0].Time.Time,
			} {
				if got, want := told.Truncate(time.Second), moment.Truncate(time.Second).Add(c.want); !got.Equal(want) {
					t.Errorf("%s: told as of %v, want %v", what, got, want)
				}
			}
			if (p.ProcessStats != nil) != c.usable {
				t.Errorf("processes %v", p.ProcessStats)
			}
		})
	}
}

// Who evicts by the figures doesn't wait until what takes long may be counted again.
func TestNoRestBeforeAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &sources{
			walks: newTurns(1), rest: time.Minute, volumes: map[part]*ttlcache.Cell[volumeUsage]{},
			files: map[part]*ttlcache.Cell[podFiles]{}, counted: map[part]*ttlcache.Cell[layer]{},
		}
		group, n := ttlcache.NewGroup(ctx), 0
		count := func() {
			read := func() { n++; time.Sleep(3 * time.Second) }
			p := part{"uid", "what"}
			cellOf(s, s.volumes, p).Get(ctx, group, 1, time.Minute, func(context.Context) (volumeUsage, error) {
				read()
				return volumeUsage{}, nil
			})
			cellOf(s, s.files, p).Get(ctx, group, 1, time.Minute, func(context.Context) (podFiles, error) {
				read()
				return podFiles{}, nil
			})
			cellOf(s, s.counted, p).Get(ctx, group, 1, time.Minute, func(context.Context) (layer, error) {
				read()
				return layer{}, nil
			})
		}
		for _, step := range []struct {
			hurry bool
			want  int
		}{{false, 3}, {false, 3}, {true, 6}} {
			if time.Sleep(4 * time.Second); step.hurry {
				s.hurry()
			}
			if count(); n != step.want {
				t.Errorf("%d readings, want %d", n, step.want)
			}
		}
		cancel()
		group.Wait(time.Hour)
	})
}
