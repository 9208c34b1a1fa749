package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/cri/cgroup/cgrouptest"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/ttlcache"
)

// add publishes another pod with a volume "data" at path.
func (n *node) add(uid, path string) {
	n.t.Helper()
	other := topic.Ref{Namespace: "ns", Name: uid, UID: uid}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	pod.Spec.Volumes = []corev1.Volume{{
		Name:         "data",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}}
	podsync, volume, pleg := n.bus.Conn("podsync"), n.bus.Conn("volume"), n.bus.Conn("pleg")
	n.t.Cleanup(func() { podsync.Close(); volume.Close(); pleg.Close() })
	if err := errors.Join(
		topic.PodUpdate.Writer(podsync).Set(uid, topic.Pod{Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
		topic.VolumeState.Writer(volume).Set(uid, topic.PodVolumes{
			Ref: other, Phase: topic.VolumeMounted,
			Volumes: map[string]topic.Volume{"data": {Phase: topic.VolumeMounted, HostPath: path}},
		}),
		topic.PLEGEvent.Writer(pleg).Set(uid, topic.PodObservation{
			Ref:       other,
			Sandboxes: []topic.Sandbox{{ID: "box-" + uid, Ready: true, CreatedAt: time.Now()}},
		}),
	); err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
}

// deep makes a tree that is too deep to be counted, with a file next to it.
func deep(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	for range 2100 {
		if err := root.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := root.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		root = next
	}
	root.Close()
	if err := os.WriteFile(filepath.Join(top, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return top
}

// A volume that can't be counted whole has its lower bound, and the daemon's health says so until it can, whatever
// other pods do.
func TestVolumeThatCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		n.add("uid-sick", deep(t))
		n.add("uid-gone", filepath.Join(t.TempDir(), "none"))
		var used uint64
		for _, p := range n.summary(topic.SummaryRequest{}).Pods {
			for _, v := range p.VolumeStats {
				if p.PodRef.UID == "uid-sick" {
					used = *v.UsedBytes
				}
			}
		}
		if used < 1<<20 {
			t.Errorf("%d bytes are used", used)
		}
		for range 20 {
			n.summary(topic.SummaryRequest{Pods: []string{cgrouptest.UID}, MaxAge: time.Millisecond})
			if message := n.health.why(); n.health.get() != topic.Degraded ||
				!strings.Contains(message, "volume data of pod uid-sick") ||
				!strings.Contains(message, "volume data of pod uid-gone") {
				t.Fatalf("the daemon is %s: %s", n.health.get(), message)
			}
		}
		n.drop("uid-sick")
		n.drop("uid-gone")
		n.summary(topic.SummaryRequest{})
		if n.health.get() != topic.Healthy {
			t.Errorf("after the pods went the daemon is %s: %s", n.health.get(), n.health.why())
		}
	})
}

// drop takes a pod back.
func (n *node) drop(uid string) {
	n.t.Helper()
	podsync, pleg := n.bus.Conn("podsync"), n.bus.Conn("pleg")
	defer podsync.Close()
	defer pleg.Close()
	if err := errors.Join(topic.PLEGEvent.Writer(pleg).Delete(uid),
		topic.PodUpdate.Writer(podsync).Delete(uid)); err != nil {
		n.t.Fatal(err)
	}
	synctest.Wait()
}

// A volume that can't be read isn't tried again at each request.
func TestFailedVolumeRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		path := filepath.Join(t.TempDir(), "late")
		n.add("uid-late", path)
		read := func() bool {
			for _, p := range n.summary(topic.SummaryRequest{MaxAge: 30 * time.Second}).Pods {
				if p.PodRef.UID == "uid-late" && len(p.VolumeStats) > 0 {
					return true
				}
			}
			return false
		}
		if read() {
			t.Fatal("a volume that isn't there was read")
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if read() {
			t.Error("the volume was tried again at once")
		}
		time.Sleep(31 * time.Second)
		if !read() {
			t.Error("the volume wasn't tried again")
		}
	})
}

func TestManyProblemsAreNotAllTold(t *testing.T) {
	s := &sources{problems: map[part]error{}}
	for i := range 10 {
		s.problems[filesPart(fmt.Sprint(i))] = errors.New("broken")
	}
	if text := s.podProblems().Error(); strings.Count(text, "broken") != 3 || !strings.Contains(text, "and 7 more") {
		t.Error(text)
	}
}

// Pages that show no CPU use don't wait for a second sample, in whatever turn they are asked for; the summary, which
// shows it, does.
func TestPagesDoNotWaitForRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		for range 3 {
			began := time.Now()
			n.metrics(pageResource)
			n.metrics(pageCadvisor)
			if took := time.Since(began); took >= secondSample {
				t.Errorf("the pages took %v", took)
			}
			time.Sleep(2 * rateMemory)
		}
		if s := n.summary(topic.SummaryRequest{OnlyCPUAndMemory: true}); s.Pods[0].CPU.UsageNanoCores == nil {
			t.Error("the summary has no CPU use")
		}
	})
}

// A page doesn't wait for ever for a disk or the cgroups.
func TestPagesDoNotWaitForADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := &answers{group: ttlcache.NewGroup(ctx), report: &report{
			problems: daemon.NewProblems(&health{}, ""),
			failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"source"}),
		}}
		a.sources = &sources{group: a.group, report: a.report}
		a.view = func(context.Context, []string) (view, error) { return view{}, nil }
		hang := func(ctx context.Context) { <-ctx.Done() }
		go a.sources.rootFS.Get(ctx, a.group, 0, time.Hour, func(ctx context.Context) (disk.Filesystem, error) {
			hang(ctx)
			return disk.Filesystem{}, ctx.Err()
		})
		for i := range a.cells {
			go a.cells[i].Get(ctx, a.group, 0, time.Hour, func(ctx context.Context) (*usage, error) {
				hang(ctx)
				return nil, ctx.Err()
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, err := a.metrics(t.Context(), newOOMKills()); err != nil || time.Since(began) > patience {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if a.usage(t.Context(), view{}, rated, false, 0); time.Since(began) > 2*patience {
			t.Errorf("the usage took %v", time.Since(began))
		}
		cancel()
		a.group.Wait(time.Hour)
	})
}

// Cgroups that can't be read make no idle pods: there is no answer, and the pages say so.
func TestCgroupsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := newReport(daemon.Env{Health: &health{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		a := &answers{group: ttlcache.NewGroup(ctx), report: r}
		a.sources = &sources{group: a.group, report: r, rootDir: t.TempDir()}
		pod := podView{ref: ref, sandbox: "box", containers: []containerView{{id: "app", name: "app", running: true}}}
		a.view = func(context.Context, []string) (view, error) { return view{pods: []podView{pod}}, nil }
		read := func() (*usage, error) {
			u := newUsage()
			u.node.At = time.Now()
			u.pods[ref.UID] = podUsage{reading: reading{Sample: cgroup.Sample{At: time.Now()}}}
			return u, nil
		}
		for i := range a.cells {
			a.cells[i].Get(ctx, a.group, 0, time.Hour, func(context.Context) (*usage, error) { return read() })
			time.Sleep(time.Millisecond)
			go a.cells[i].Get(ctx, a.group, 0, time.Hour, func(ctx context.Context) (*usage, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}
		req := topic.SummaryRequest{OnlyCPUAndMemory: true, Processes: true, MaxAge: time.Second}
		time.Sleep(2 * time.Second)
		if s, err := a.reply(t.Context(), req); err != nil || len(s.Pods) != 1 {
			t.Errorf("soon after the last reading: %v, %+v", err, s)
		}
		time.Sleep(usageTimeout)
		if s, err := a.reply(t.Context(), req); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("long after the last reading: %v, %+v", err, s)
		}
		in, err := a.metrics(t.Context(), newOOMKills())
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := writeCadvisor(&page, in); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			"container_scrape_error 1\n": true, "machine_scrape_error 0\n": true,
			"container_last_seen": false, "machine_cpu_cores": true,
		} {
			if strings.Contains(page.String(), text) != want {
				t.Errorf("%q on the page: %v\n%s", text, !want, &page)
			}
		}
		cancel()
		a.group.Wait(time.Hour)
	})
}

// A filesystem that hangs takes its own walk and nobody else's turn.
func TestWalkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sources{walks: newTurns(walkers), walkTime: walkTimeout}
		hang := make(chan struct{})
		defer close(hang)
		for range walkers {
			go func() { _ = s.walk(t.Context(), func(context.Context) { <-hang }) }()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		began, ran := time.Now(), false
		if err := s.walk(t.Context(), func(context.Context) { ran = true }); err != nil || !ran ||
			time.Since(began) > walkTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// What an eviction waits for is counted though all turns are taken, and not at the lowest priority.
func TestWalksBeforeAnEvictionGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sources{walks: newTurns(walkers), walkTime: walkTimeout}
		// The system call gives 20 minus the niceness.
		priority := func() (raw int) {
			err := s.walk(t.Context(), func(context.Context) { raw, _ = unix.Getpriority(unix.PRIO_PROCESS, 0) })
			if err != nil {
				t.Error(err)
			}
			return raw
		}
		own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := priority(); got != 1 {
			t.Errorf("a walk has the priority %d, want 1, the lowest", got)
		}
		for range walkers {
			s.walks.routine <- struct{}{}
		}
		s.hurry()
		began := time.Now()
		if got := priority(); got != own || time.Since(began) > 0 {
			t.Errorf("a walk before an eviction has the priority %d after %v, want %d at once", got, time.Since(began), own)
		}
		time.Sleep(pressing)
		<-s.walks.routine
		if got := priority(); got != 1 {
			t.Errorf("a walk after the eviction has the priority %d, want 1", got)
		}
	})
}

// What has been counted when the time for it is over is what there is at least; whoever wasn't counted at all has
// nothing to show.
func TestAWalkThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := newReport(daemon.Env{Health: &health{}})
		if err != nil {
			t.Fatal(err)
		}
		s := &sources{
			group: ttlcache.NewGroup(ctx), report: r, walks: newTurns(1),
			volumes: map[part]*ttlcache.Cell[volumeUsage]{}, problems: map[part]error{},
		}
		v := volumeView{name: "data", path: t.TempDir(), walk: true}
		if u, ok := s.volume(ctx, "uid", v, 0); !ok || u.usage.Inodes == 0 || s.podProblems() == nil {
			t.Errorf("usage %+v, %v, problem %v", u, ok, s.podProblems())
		}
		s.walks.routine <- struct{}{}
		v.name = "other"
		if u, ok := s.volume(ctx, "uid", v, 0); ok || !strings.Contains(s.podProblems().Error(), "wait for its turn") {
			t.Errorf("usage %+v, %v, problem %v", u, ok, s.podProblems())
		}
		cancel()
		s.group.Wait(time.Hour)
	})
}
