package crash

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

const (
	// annotators is how many pods the tenant has, each with the 256 KiB of annotations that the API server takes. With
	// more than that it is the API server on this machine that falls behind: its watch cache is minutes late with a
	// hundred.
	annotators     = 20
	annotationSize = 256<<10 - 64
	// others is how many pods of somebody else come and go meanwhile, some at a time.
	others, othersAtOnce = 20, 5
	// enough is how many updates the test ends with at the latest: etcd keeps each of them, and the API server computes a
	// tenth of a second for each. All of them are more than the bus has room for at a time.
	enough = 1100
)

// downward has one of the pod's annotations in a file, and mount has the container use it: other volumes aren't set up.
const (
	downward = `, volumes: [{name: d, downwardAPI: {items: [{path: mark, ` +
		`fieldRef: {fieldPath: "metadata.annotations['mark']"}}]}}]`
	mount = `, volumeMounts: [{name: d, mountPath: /d}]`
)

// TestAnnotationsUpToTheirLimit has a tenant change the annotations of twenty pods each second, all of them as
// large as they may be. Other pods start and stop all the same, the bus answers, and in the end the node knows the
// last of all annotations.
func TestAnnotationsUpToTheirLimit(t *testing.T) {
	b, err := kit.Start(t.Context(), kit.Options{Scripted: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	tenant, other := b.Namespace(t), b.Namespace(t)
	tenants := annotated(tenant)

	watching, cancel := context.WithCancel(t.Context())
	look := sync.WaitGroup{}
	taps, looks := newTap(watching, t, b), atomic.Int64{}
	look.Go(func() { lookAtPods(watching, t, b, &looks) })

	updating, stop := context.WithCancel(t.Context())
	updates := atomic.Int64{}
	update := sync.WaitGroup{}
	for _, p := range tenants {
		update.Go(func() { annotate(updating, t, b, p, &updates) })
	}
	comeAndGo(t, b, other, &updates)
	stop()
	update.Wait()
	if n := updates.Load(); n < annotators {
		t.Errorf("the %d pods' annotations were updated %d times while %d others came and went: too few to show anything",
			annotators, n, others)
	}
	t.Logf("%d updates, %d looks at the pods", updates.Load(), looks.Load())

	for _, p := range tenants[:10] {
		lastMark(t, b, p)
	}
	cancel()
	look.Wait()
	if looks.Load() == 0 {
		t.Error("nobody has looked at the pods")
	}
	taps.saw(t, other.Name)
	for _, refusal := range []string{"larger than the bus allows", "can't write its store", "maximum bytes exceeded"} {
		if log := proc.Tail(b.Node.LogPath(), 16<<20); strings.Contains(log, refusal) {
			t.Errorf("kubelot's log has %q", refusal)
		}
	}
	for _, p := range tenants {
		tenant.Delete(p.Name, 1)
	}
	for _, p := range tenants {
		tenant.Gone(p)
	}
}

// annotated makes the tenant's pods, ten of them with a volume of their annotations.
func annotated(ns *kit.Namespace) []*corev1.Pod {
	var manifests strings.Builder
	for i := range annotators {
		mounts, volumes := "", ""
		if i < 10 {
			mounts, volumes = mount, downward
		}
		fmt.Fprintf(&manifests, "{apiVersion: v1, kind: Pod, metadata: {name: tenant-%d, annotations: {mark: none}}, "+
			"spec: {containers: [{name: app, image: \"busybox:1.36\"%s}]%s}}\n---\n", i, mounts, volumes)
	}
	ns.Apply(manifests.String())
	var pods []*corev1.Pod
	for i := range annotators {
		pods = append(pods, ns.Running(fmt.Sprintf("tenant-%d", i)))
	}
	return pods
}

// annotate changes the pod's annotations each second, or as fast as the API server tells its watches, until ctx ends.
func annotate(ctx context.Context, t *testing.T, b *kit.Bed, p *corev1.Pod, updates *atomic.Int64) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	noise := make([]byte, annotationSize/2) // no two are alike, and none can be compressed
	for i := 0; updates.Load() < enough; i++ {
		if _, err := rand.Read(noise); err != nil {
			t.Error(err)
			return
		}
		p.Annotations = map[string]string{"mark": fmt.Sprint(i)}
		values := map[string]string{"mark": fmt.Sprint(i), "noise": hex.EncodeToString(noise)}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
		if err != nil {
			t.Error(err)
			return
		}
		// Not with ctx: the last update's outcome must be known.
		version := ""
		if err := tryAgain(context.WithoutCancel(ctx), func(ctx context.Context) error {
			changed, err := b.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
				metav1.PatchOptions{})
			if err != nil {
				return err
			}
			version = changed.ResourceVersion
			return nil
		}); err != nil {
			t.Errorf("annotate pod %s: %v", p.Name, err)
			return
		}
		updates.Add(1)
		if err := watchable(context.WithoutCancel(ctx), b, p.Namespace, version); err != nil {
			t.Errorf("wait until the API server's watches have the new annotations of pod %s: %v", p.Name, err)
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// watchable waits until the API server's watch cache has reached a version. The cache falls minutes behind what is
// written on a machine that is slow enough, and then no pod starts, whatever the node does.
func watchable(ctx context.Context, b *kit.Bed, namespace, version string) error {
	return tryAgain(ctx, func(ctx context.Context) error {
		// A read of this version or a later one comes from the cache, and waits for it; the pod needn't be there.
		_, err := b.Client.CoreV1().Pods(namespace).Get(ctx, "absent", metav1.GetOptions{ResourceVersion: version})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// tryAgain is for an API server that is as busy as the test makes it.
func tryAgain(ctx context.Context, do func(context.Context) error) error {
	return errors.Join(wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, kit.Patience, true,
		func(ctx context.Context) (bool, error) {
			err := do(ctx)
			if apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) ||
				apierrors.IsServerTimeout(err) {
				return false, nil
			}
			return true, err
		}))
}

// comeAndGo has the other pods start and stop, some at a time.
func comeAndGo(t *testing.T, b *kit.Bed, ns *kit.Namespace, updates *atomic.Int64) {
	t.Helper()
	for round := range others / othersAtOnce {
		before, began := updates.Load(), time.Now()
		var manifests strings.Builder
		for i := range othersAtOnce {
			fmt.Fprintf(&manifests, "{apiVersion: v1, kind: Pod, metadata: {name: other-%d-%d}, "+
				"spec: {containers: [{name: app, image: \"busybox:1.36\"}]}}\n---\n", round, i)
		}
		ns.Apply(manifests.String())
		var pods []*corev1.Pod
		for i := range othersAtOnce {
			pods = append(pods, ns.Running(fmt.Sprintf("other-%d-%d", round, i)))
		}
		for _, p := range pods {
			ns.Delete(p.Name, 1)
		}
		for _, p := range pods {
			ns.Gone(p)
		}
		kit.Eventually(t, "updates of annotations next to the other pods", func() error {
			if n := updates.Load(); n == before && n < enough {
				return fmt.Errorf("there are still %d", n)
			}
			return nil
		})
		t.Logf("%d pods came and went in %v, during %d updates", othersAtOnce, time.Since(began).Round(time.Second),
			updates.Load()-before)
	}
}

// lookAtPods runs kubelot pods again and again until ctx ends. It must never fail. Looks may be late for a minute: this
// test itself is what loads the machine.
func lookAtPods(ctx context.Context, t *testing.T, b *kit.Bed, looks *atomic.Int64) {
	for onTime := time.Now(); ctx.Err() == nil; {
		out, err := kit.Output(exec.CommandContext(ctx, b.Program("kubelot"), "pods", "--run-dir="+b.Bed.Path("run"),
			"--output=json"))
		late := strings.Contains(out, "doesn't answer within") || strings.Contains(out, "deadline exceeded")
		if err == nil {
			onTime = time.Now()
		} else if ctx.Err() == nil && (!late || time.Since(onTime) > time.Minute) {
			t.Errorf("kubelot pods: %v\n%s", err, out)
			return
		}
		looks.Add(1)
	}
}

// tapped is a kubelot tap that runs all the while.
type tapped struct {
	out   bytes.Buffer
	ended chan error
}

func newTap(ctx context.Context, t *testing.T, b *kit.Bed) *tapped {
	t.Helper()
	tap := &tapped{ended: make(chan error, 1)}
	cmd := exec.CommandContext(ctx, b.Program("kubelot"), "tap", "--run-dir="+b.Bed.Path("run"), "--no-color")
	cmd.Stdout, cmd.Stderr = &tap.out, &tap.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { tap.ended <- errors.Join(context.Cause(ctx), cmd.Wait()) }()
	return tap
}

// saw fails the test unless the tap, which was told to end, has shown every other pod.
func (tap *tapped) saw(t *testing.T, namespace string) {
	t.Helper()
	if err := <-tap.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("kubelot tap ended before it was told to: %v", err)
	}
	for round := range others / othersAtOnce {
		for i := range othersAtOnce {
			if name := fmt.Sprintf("%s/other-%d-%d", namespace, round, i); !strings.Contains(tap.out.String(), name) {
				t.Errorf("kubelot tap has shown nothing of pod %s", name)
			}
		}
	}
}

// lastMark waits until the volume has the annotation that was set last.
func lastMark(t *testing.T, b *kit.Bed, p *corev1.Pod) {
	t.Helper()
	pattern := filepath.Join(b.Node.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~downward-api", "d", "mark")
	kit.Eventually(t, "the last annotations of "+p.Name+" in its volume", func() error {
		data, err := os.ReadFile(pattern)
		if err == nil && string(data) != p.Annotations["mark"] {
			return fmt.Errorf("it has the mark %s, the last is %s", data, p.Annotations["mark"])
		}
		return err
	})
}
