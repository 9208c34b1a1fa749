package shutdown

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake records what is stopped. All containers must be stopped side by side: each waits for all.
type fake struct {
	containers []*runtimeapi.Container
	together   sync.WaitGroup
	mu         sync.Mutex
	calls      []string
	err        error
}

func (f *fake) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if filter.GetState().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, errors.New("want those that run")
	}
	return f.containers, f.err
}

func (f *fake) StopContainer(_ context.Context, id string, grace time.Duration) error {
	f.together.Done()
	f.together.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, id+" "+grace.String())
	if id == "stuck" {
		return errors.New("it hangs")
	}
	return nil
}

func container(id, grace string) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: id,
		Labels: map[string]string{
			labels.PodUID: "u", labels.PodName: "web", labels.PodNamespace: "default", labels.ContainerName: id,
		},
		Annotations: map[string]string{labels.PodTerminationGracePeriod: grace},
	}
}

func TestHaltStopsThePodsContainers(t *testing.T) {
	f := &fake{containers: []*runtimeapi.Container{
		container("quick", "3"), container("slow", "600"), container("endless", "9223372036854775807"),
		container("odd", "soon"), container("negative", "-1"), container("stuck", "0"),
		{Id: "of-no-pod"},
	}}
	f.together.Add(6)
	var out bytes.Buffer
	err := Halt(t.Context(), f, 30*time.Second, &out)
	slices.Sort(f.calls)
	want := []string{"endless 30s", "negative 0s", "odd 30s", "quick 3s", "slow 30s", "stuck 0s"}
	if !slices.Equal(f.calls, want) {
		t.Errorf("stopped are %q, want %q", f.calls, want)
	}
	if err == nil || !strings.Contains(err.Error(), "stop container default/web stuck: it hangs") {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(out.String(), "stopped default/web "); n != 5 {
		t.Errorf("told of %d:\n%s", n, out.String())
	}
	f.err = errors.New("no runtime")
	if err := Halt(t.Context(), f, time.Second, &out); err == nil || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("error %v", err)
	}
}

// systemctl ends with an error while the system stops; what it prints counts.
func TestStopping(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	for script, want := range map[string]string{
		"echo stopping; exit 1": "true <nil>", "echo degraded; exit 1": "false <nil>", "echo running": "false <nil>",
		"exit 1": "false ask systemd",
	} {
		text := "#!/bin/sh\n[ \"$1\" = is-system-running ] || exit 2\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		is, err := Stopping(t.Context())
		got := "false"
		if is {
			got = "true"
		}
		if got += " "; err == nil {
			got += "<nil>"
		} else {
			got += err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", script, got, want)
		}
	}
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestText(t *testing.T) {
	groups := []topic.ShutdownGroup{{Priority: 0, GracePeriodSeconds: 20}, {Priority: 2000000000, GracePeriodSeconds: 10}}
	for want, s := range map[string]topic.Shutdown{
		"The node isn't shutting down.\n": {},
		"The node isn't shutting down. The last shutdown began 60s ago and was cancelled.\n": {Started: began},
		"The node has been shutting down for 60s: group 2 of 2 ends (priority 2000000000 or higher, within 10 s).\n" +
			"It was started by logind, because the machine shuts down. " +
			"To admit pods again, run kubelot shutdown cancel.\n": {
			Active: true, Started: began, Trigger: topic.ByLogind, Groups: groups, Group: 1,
		},
		"The node's pods have ended, and the machine may shut down. It took 12s.\n" +
			"Not done: pod \\x1b.\n" +
			"It was started by a command. To admit pods again, run kubelot shutdown cancel.\n": {
			Active: true, Started: began, Trigger: topic.ByCommand, Groups: groups, Group: 2, Done: began.Add(12 * time.Second),
			Message: "pod \x1b",
		},
	} {
		if got := Text(s, began.Add(time.Minute)); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	for name, c := range map[string]struct {
		steps []topic.Shutdown
		want  string
		err   error
	}{
		"done": {
			steps: []topic.Shutdown{
				{Active: true, Started: began, Groups: []topic.ShutdownGroup{{GracePeriodSeconds: 5}}},
				{Active: true, Started: began, Groups: []topic.ShutdownGroup{{GracePeriodSeconds: 5}}, Group: 1},
				{Active: true, Started: began, Done: began, Message: "a pod"},
			},
			want: "group 1 of 1 ends (priority 0 or higher, within 5 s)\n" +
				"all groups have ended; waiting until the API server has the pods' statuses\ndone\nnot done: a pod\n",
		},
		"cancelled": {
			steps: []topic.Shutdown{{Active: true, Started: began, Group: 0}, {Started: began}},
			want:  "all groups have ended; waiting until the API server has the pods' statuses\n", err: errCancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bustest.New()
				gc, cli := b.Conn("gc"), b.Conn("cli")
				defer gc.Close()
				defer cli.Close()
				w := topic.NodeShutdown.Writer(gc)
				before := topic.Shutdown{Active: true, Started: began.Add(-time.Hour), Done: began}
				if err := errors.Join(w.Set("", before), w.Flush(t.Context())); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				ended := make(chan error)
				var last topic.Shutdown
				go func() {
					var err error
					last, err = Follow(t.Context(), cli, began, &out)
					ended <- err
				}()
				synctest.Wait()
				for _, s := range c.steps {
					if err := errors.Join(w.Set("", s), w.Flush(t.Context())); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if err := <-ended; !errors.Is(err, c.err) || out.String() != c.want {
					t.Errorf("%v\n%swant %v\n%s", err, out.String(), c.err, c.want)
				}
				if want := c.steps[len(c.steps)-1]; !reflect.DeepEqual(last, want) {
					t.Errorf("it is %+v at the end, want %+v", last, want)
				}
			})
		})
	}
}
